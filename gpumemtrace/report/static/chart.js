// What all charts have in common: axes, colours, size, legend, the keyboard.

const AXIS_WIDTH = 66;
const RIGHT_MARGIN = 22;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
// Powers of two, so that ticks are round in binary units: 256 MiB, 0.5 GiB.
const BYTE_INCREMENTS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** Charts over time share the cursor, but a drag is that of one of them. */
const SAME_CURSOR = {
  key: "time",
  scales: ["x", null],
  filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
};

function byteTicks(_, ticks) {
  const highest = ticks.reduce((most, tick) => Math.max(most, Math.abs(tick ?? 0)), 0);
  const [factor, name] = UNITS.find(([f]) => highest >= f) ?? UNITS.at(-1);
  return ticks.map((tick) => (tick === null ? null : `${digits(tick / factor, 5)} ${name}`));
}

/** Seconds as ticks `increment` apart: no more decimals than tell them apart. */
function timeTicks(_, ticks, __, ___, increment) {
  if (increment >= 10 && ticks.at(-1) >= 600) return ticks.map((tick) => clock(Math.round(tick)));
  const decimals = Math.max(0, Math.ceil(-Math.log10(increment) - 1e-9));
  return ticks.map((tick) => `${tick.toFixed(Math.min(decimals, 9))} s`);
}

function axis(options) {
  return {
    stroke: () => themeColor("quiet"),
    font: FONT,
    grid: { stroke: () => themeColor("grid"), width: 1 },
    ticks: { stroke: () => themeColor("grid"), width: 1, size: 5 },
    ...options,
  };
}

function byteAxis() {
  return axis({
    scale: "y",
    size: AXIS_WIDTH,
    incrs: BYTE_INCREMENTS,
    values: byteTicks,
    space: 38,
  });
}

/** A line's colours come from the report's palette, and dashes so that colour is not needed. */
function lineSeries(label, color, options = {}) {
  return {
    label,
    stroke: () => color()[currentTheme()],
    width: 1.25,
    points: { show: false },
    ...options,
  };
}

/** A uPlot chart in `holder`: as wide as it, redrawn in another theme. */
function makeChart(holder, options, data) {
  const chart = new uPlot(
    {
      width: Math.max(holder.clientWidth, 200),
      height: 300,
      padding: [10, RIGHT_MARGIN, 0, 0],
      legend: { show: false },
      ...options,
    },
    data,
    holder,
  );
  const height = options.height ?? 300;
  new ResizeObserver(() => {
    const width = holder.clientWidth;
    if (width && width !== chart.width) chart.setSize({ width, height });
  }).observe(holder);
  themeListeners.push(() => chart.redraw());
  return chart;
}

/**
 * Buttons that show and hide series, each with the value at the cursor.
 * entries: [{label, color, dash: null for an area, isHidden}]. Returns {root, values: [element]}.
 */
function makeLegend(entries, toggle) {
  const values = [];
  const buttons = entries.map((entry, i) => {
    const value = el("span", { class: "value" });
    values.push(value);
    const mark = swatch("", entry.dash);
    const recolor = () => mark.style.setProperty("--swatch", entry.color()[currentTheme()]);
    recolor();
    themeListeners.push(recolor);
    const button = el(
      "button",
      { type: "button", "aria-pressed": String(!entry.isHidden), title: `Show or hide ${entry.label}` },
      mark,
      el("span", { class: "name" }, entry.label),
      value,
    );
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      toggle(i, shown);
    });
    return button;
  });
  return { root: el("div", { class: "legend", role: "group", "aria-label": "Lines" }, buttons), values };
}

/** A chart that takes the focus: `keys` maps names of keys to functions. */
function focusable(holder, label, keys) {
  holder.setAttribute("tabindex", "0");
  holder.setAttribute("role", "group");
  holder.setAttribute("aria-roledescription", "chart");
  holder.setAttribute("aria-label", label);
  holder.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = keys[(event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "") + event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

/** Text on a canvas with a halo, so that lines behind it don't disturb. */
function drawText(context, text, x, y, color) {
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeStyle = themeColor("surface");
  context.strokeText(text, x, y);
  context.fillStyle = color;
  context.fillText(text, x, y);
}
