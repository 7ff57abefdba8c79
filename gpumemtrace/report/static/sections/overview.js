renderers.overview = (data, root, report) => {
  put(
    root,
    el("div", { class: "tiles" }, tiles(data)),
    el("h3", {}, "In words"),
    verdictList(data.verdicts, report),
  );
  for (const device of data.devices) put(root, peaksTable(device, data.devices.length, report));
};

function tiles(data) {
  const several = data.devices.length > 1;
  const found = data.devices.flatMap((device) => {
    const { allocated, reserved } = device.peaks;
    const on = several ? ` · cuda:${device.device}` : "";
    return [
      allocated && tile(`Peak allocated${on}`, bytes(allocated.bytes), place(allocated)),
      reserved && tile(`Peak reserved${on}`, bytes(reserved.bytes), reservedNote(device)),
    ];
  });
  found.push(
    tile(
      "Steps",
      number(data.steps),
      `in ${duration(data.duration_s)}` +
        (data.summarised_steps ? `; ${number(data.summarised_steps)} in summary only` : ""),
    ),
    tile(
      "Events lost",
      number(data.dropped_events),
      data.dropped_events ? `of ${number(data.recorded_events + data.dropped_events)}` : `of ${number(data.recorded_events)} recorded`,
      data.dropped_events ? "warning" : null,
    ),
  );
  return found.filter(Boolean);
}

function reservedNote({ peaks, capacity_bytes: capacity }) {
  if (!capacity) return place(peaks.reserved);
  const part = ((peaks.reserved.bytes / capacity) * 100).toFixed(1);
  return `${part} % of the device's ${bytes(capacity)}`;
}

function tile(label, value, note, level = null) {
  return el(
    "div",
    { class: level ? `tile ${level}` : "tile" },
    el("p", { class: "label" }, label),
    el("p", { class: "figure" }, value),
    el("p", { class: "note" }, note),
  );
}

const LEVELS = {
  bad: ["✕", "Bad"],
  warning: ["▲", "Warning"],
  note: ["●", "Note"],
  good: ["✓", "Good"],
};

function verdictList(verdicts, report) {
  return el(
    "ul",
    { class: "verdicts" },
    verdicts.map(({ level, text, section }) => {
      const [sign, name] = LEVELS[level];
      const target = report.titles[section];
      return el(
        "li",
        { class: level },
        el("span", { class: "sign", role: "img", "aria-label": name }, sign),
        el(
          "span",
          {},
          text,
          " ",
          target ? el("a", { href: `#${section}` }, `→ ${target}`) : null,
        ),
      );
    }),
  );
}

function peaksTable(device, count, report) {
  const title = count > 1 ? `Peaks of cuda:${device.device}` : "Peaks of the lines";
  const rows = Object.keys(report.lines)
    .filter((name) => name in device.peaks)
    .map((name) => ({ line: report.lines[name].label, ...(device.peaks[name] ?? { bytes: null }) }));
  return el(
    "section",
    { "aria-label": title },
    el("h3", {}, title),
    makeTable(
      [
        { key: "line", title: "Line", text: true },
        { key: "bytes", title: "Peak", format: bytes },
        { key: "phase", title: "Phase", text: true },
        { key: "step", title: "Step", format: (step) => (step === undefined ? "" : number(step)) },
        { key: "time_s", title: "At", format: (time) => (time === undefined ? "" : duration(time)) },
      ],
      rows,
      { caption: title },
    ),
  );
}
