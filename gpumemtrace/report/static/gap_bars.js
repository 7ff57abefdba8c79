// The card as bars: what was asked for at the left, then each gap up to the capacity.

const GAP_COLORS = {
  requested: "#0072B2",
  rounding: "#56B4E9",
  pending: "#F0E442",
  cached: "#E69F00",
  outside: "#CC79A7",
  others: "#D55E00",
  unattributed: "#8c8c8c",
};

// Where more than this of the card is free, bars of all of it would show nothing else.
const MOSTLY_FREE = 0.6;

/**
 * parts: [{name, label, line}], lowest first; moments: [{label, gaps: {name: bytes or null}}].
 * All bars have one scale.
 */
function makeGapBars(parts, moments) {
  const sum = (some, gaps) => some.reduce((all, { name }) => all + Math.max(gaps[name] ?? 0, 0), 0);
  const most = (some) => Math.max(...moments.map(({ gaps }) => sum(some, gaps)), 1);
  const inUse = parts.filter(({ name }) => name !== "device_free");
  const drawn = most(inUse) < (1 - MOSTLY_FREE) * most(parts) ? inUse : parts;
  const used = drawn.filter(({ name }) => moments.some(({ gaps }) => gaps[name] > 0));
  return el(
    "div",
    { class: "gap-bars" },
    moments.map((moment) => gapBar(used, moment, most(drawn))),
    el(
      "ul",
      { class: "keys bare", "aria-label": "Colours of the bars" },
      used.map(({ name, label }) => el("li", {}, gapSwatch(name), label)),
      drawn === parts ? null : el("li", {}, "(what is free is left out: it is most of the card)"),
    ),
  );
}

function gapBar(parts, moment, longest) {
  const bar = el("div", { class: "gap-bar", "aria-hidden": "true" });
  const told = parts.filter(({ name }) => moment.gaps[name] > 0);
  for (const { name, label } of told) {
    const size = moment.gaps[name];
    const part = el("span", { class: `part ${name}`, title: `${label} ${bytes(size)}` });
    part.style.width = `${(size / longest) * 100}%`;
    if (GAP_COLORS[name]) part.style.background = GAP_COLORS[name];
    bar.append(part);
  }
  return el(
    "figure",
    {},
    moment.label ? el("figcaption", {}, capitalized(moment.label)) : null,
    bar,
    el("p", { class: "unseen" }, told.map(({ name, label }) => `${label} ${bytes(moment.gaps[name])}`).join(", ")),
  );
}

function gapSwatch(name) {
  return GAP_COLORS[name]
    ? swatch(GAP_COLORS[name])
    : el("span", { class: "swatch free", "aria-hidden": "true" });
}

/** The parts and, where one ends at a line, that line; a column per moment. */
function makeGapTable(parts, moments, { caption, more = [] }) {
  const row = (part) => ({ ...part, ...Object.fromEntries(moments.map(({ gaps }, i) => [`at${i}`, gaps[part.name]])) });
  const rows = parts.flatMap((part) => [
    row(part),
    ...(part.line ? [row({ name: part.line, label: `= ${part.line.replace("_", " ")}`, meaning: "", isLine: true })] : []),
  ]);
  return makeTable(
    [
      { key: "label", title: "Part", text: true, swatch: ({ name, isLine }) => (isLine ? null : gapSwatch(name)) },
      ...moments.map(({ label }, i) => ({
        key: `at${i}`,
        title: capitalized(label),
        format: bytes,
      })),
      ...more,
      { key: "meaning", title: "What it is", text: true },
    ],
    rows,
    { caption, strong: ({ isLine }) => isLine },
  );
}
