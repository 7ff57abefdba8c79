// The lines of one device over time. Of the rows in view a chart gets as many as it has pixels for:
// first, lowest, highest and last value of each pixel column, so that no peak is lost.

const LINE_DASHES = { device_used: [2, 3], active: [7, 4], requested: [4, 2] };
// Above the highest line: the peak's text stands there.
const HEADROOM = 1.16;
// Drawn in this order: the later, the further in front.
const LINE_ORDER = ["device_used", "reserved", "active", "requested", "allocated"];

/** The rows of a device: times in seconds and bytes per line (NaN where not known yet). */
function lineRows(device, timeline) {
  const second = (timeline.end_s - timeline.start_s) / Math.max(device.places, 1);
  const time = Float64Array.from(device.place, (place) => timeline.start_s + place * second);
  const values = {};
  for (const line of device.lines) {
    const whole = new Float64Array(time.length).fill(NaN);
    const below = line.over ? values[line.over] : null;
    line.bytes.forEach((value, i) => {
      whole[line.first + i] = below ? below[i] + value : value;
    });
    values[line.name] = whole;
  }
  return { time, values, column: 4 * second };
}

/** uPlot's data for a stretch of time, at most four rows per column of `width`. */
function reduceRows(time, lines, start, end, width) {
  const first = Math.max(countUpTo(time, start) - 1, 0);
  const last = Math.max(countUpTo(time, end), first + 1);
  const known = (value) => (Number.isNaN(value) ? null : value);
  if (last - first <= 4 * width) {
    // What held at the beginning, every row, and what holds at the end.
    const x = Array.from(time.subarray(first, last), (t) => Math.max(t, start));
    const rows = lines.map((line) => Array.from(line.subarray(first, last), known));
    return [[...x, end], ...rows.map((row) => [...row, row.at(-1)])];
  }
  const column = (end - start) / width;
  const x = [];
  const reduced = lines.map(() => []);
  // Row `first` is what the view begins with.
  let row = first + 1;
  for (let i = 0; i < width; i++) {
    const left = start + i * column;
    const begin = row;
    while (row < last && (time[row] < left + column || i === width - 1)) row++;
    if (row === begin && i > 0) continue;
    for (let part = 0; part < 4; part++) x.push(left + (part / 4) * column);
    lines.forEach((line, which) => {
      // The value carried in from the left counts as the first of the column.
      const carried = line[begin - 1];
      let [low, high] = [carried, carried];
      for (let k = begin; k < row; k++) {
        // Written so that NaN, "not known yet", gives way to any figure.
        if (!(line[k] >= low)) low = line[k];
        if (!(line[k] <= high)) high = line[k];
      }
      const end = row > begin ? line[row - 1] : carried;
      reduced[which].push(known(carried), known(low), known(high), known(end));
    });
  }
  x.push(end);
  lines.forEach((line, which) => reduced[which].push(reduced[which].at(-1) ?? null));
  return [x, ...reduced];
}

/** Chart and legend of one device. context: {view, phases, steps, report, timeline}. */
function makeLinesChart(device, context) {
  const { view, phases, steps, report, timeline } = context;
  const rows = lineRows(device, timeline);
  const names = LINE_ORDER.filter((name) => name in rows.values);
  const lines = names.map((name) => rows.values[name]);
  const shown = names.map(() => true);
  const holder = el("div", { class: "chart" });
  const spoken = el("p", { class: "unseen", role: "status" });
  const where = el("p", { class: "readout" });
  const styleOf = (name) => report.lines[name];

  const legend = makeLegend(
    [...names].reverse().map((name) => ({
      label: styleOf(name).label,
      color: () => report.colors.lines[name],
      dash: LINE_DASHES[name] ? (name === "device_used" ? "dotted" : "dashed") : "solid",
    })),
    (i, isShown) => {
      shown[names.length - 1 - i] = isShown;
      chart.setSeries(names.length - i, { show: isShown });
      refresh();
    },
  );

  function highest(data) {
    let most = 0;
    data.slice(1).forEach((line, i) => {
      if (shown[i]) for (const value of line) if (value > most) most = value;
    });
    return most || 1;
  }

  let top = 1;
  const data = () => reduceRows(rows.time, lines, view.start, view.end, plotWidth());
  const plotWidth = () => Math.max(holder.clientWidth - AXIS_WIDTH - RIGHT_MARGIN, 100);

  const options = {
    height: 300,
    cursor: {
      sync: SAME_CURSOR,
      drag: { x: true, y: false, setScale: false },
      points: { show: false },
      bind: { dblclick: () => null },
    },
    scales: {
      x: { time: false, range: () => [view.start, view.end] },
      y: { range: () => [0, top] },
    },
    axes: [
      axis({ values: timeTicks, space: 64, size: 32 }),
      byteAxis(),
    ],
    series: [
      {},
      ...names.map((name) =>
        lineSeries(styleOf(name).label, () => report.colors.lines[name], {
          dash: LINE_DASHES[name],
          paths: uPlot.paths.stepped({ align: 1 }),
          fill: name === "allocated" ? () => report.colors.lines[name][currentTheme()] + "38" : null,
        }),
      ),
    ],
    hooks: {
      setSelect: [
        (u) => {
          const { left, width } = u.select;
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          if (width > 3) view.set(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
        },
      ],
      setCursor: [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)],
      drawClear: [(u) => drawUncertain(u, device)],
      draw: [(u) => drawMarks(u, device, context)],
    },
  };

  function refresh() {
    const reduced = data();
    top = highest(reduced);
    // The capacity where it is near: else it would only press the lines down.
    const capacity = device.capacity_bytes ?? Infinity;
    if (capacity < top * 1.25) top = Math.max(top, capacity);
    top *= HEADROOM;
    chart.batch(() => {
      chart.setData(reduced, false);
      chart.setScale("x", { min: view.start, max: view.end });
      chart.setScale("y", { min: 0, max: top });
    });
  }

  function valuesAt(time) {
    const row = countUpTo(rows.time, time) - 1;
    return names.map((name) => (row < 0 ? NaN : rows.values[name][row]));
  }

  function describe(time) {
    const parts = [moment(time, view.span)];
    const [step, phase] = [steps.at(time), phases.at(time)];
    if (step !== null) parts.push(`step ${number(step)}`);
    if (phase) parts.push(phase);
    return parts.join(" · ");
  }

  function read(time) {
    const values = time === null ? names.map(() => NaN) : valuesAt(time);
    [...values].reverse().forEach((value, i) => {
      legend.values[i].textContent = Number.isNaN(value) ? "" : bytes(value);
    });
    where.textContent = time === null ? "" : describe(time);
  }

  let cursor = null;
  function moveCursor(time) {
    cursor = Math.min(Math.max(time, view.start), view.end);
    chart.setCursor({ left: chart.valToPos(cursor, "x"), top: 40 });
    const told = names.map((name, i) => [styleOf(name).label, valuesAt(cursor)[i]]).reverse();
    const known = told.filter(([, value]) => !Number.isNaN(value));
    spoken.textContent = `${describe(cursor)}: ${known.map(([n, v]) => `${n} ${bytes(v)}`).join(", ")}`;
  }

  function toPeak() {
    if (!device.peak) return;
    const at = device.peak.time_s;
    view.set(at - Math.min(view.span, 200 * rows.column) / 2, at + Math.min(view.span, 200 * rows.column) / 2);
    moveCursor(at);
  }

  const stepBy = (part) => () => moveCursor((cursor ?? (view.start + view.end) / 2) + part * view.span);
  const around = () => (cursor !== null && cursor >= view.start && cursor <= view.end ? cursor : undefined);
  focusable(holder, `Memory of cuda:${device.device} over time. ${KEYS_HELP}`, {
    ArrowLeft: stepBy(-0.01),
    ArrowRight: stepBy(0.01),
    "Shift+ArrowLeft": () => view.pan(-0.25),
    "Shift+ArrowRight": () => view.pan(0.25),
    "+": () => view.zoom(0.5, around()),
    "=": () => view.zoom(0.5, around()),
    "-": () => view.zoom(2, around()),
    0: () => view.whole(),
    Home: () => moveCursor(view.start),
    End: () => moveCursor(view.end),
    p: toPeak,
  });

  // uPlot measures its holder, which therefore has to be on the page already.
  let chart = null;
  function attach() {
    chart = makeChart(holder, options, data());
    steerWithPointer(chart, view);
    new ResizeObserver(refresh).observe(holder);
    view.listeners.push(refresh);
    refresh();
    return chart;
  }

  const root = el("div", { class: "device" }, holder, el("div", { class: "under" }, legend.root, where), spoken);
  return { root, attach, toPeak, rows, names, valuesAt };
}

const KEYS_HELP =
  "Arrow keys move the cursor, with Shift the view; plus and minus zoom, 0 shows the whole run, P goes to the peak.";

function drawUncertain(chart, device) {
  const { ctx: context, bbox } = chart;
  if (!device.uncertain_s.length) return;
  context.save();
  context.beginPath();
  for (const [from, to] of device.uncertain_s) {
    const [left, right] = [from, to].map((time) => chart.valToPos(time, "x", true));
    context.rect(left, bbox.top, Math.max(right - left, 2), bbox.height);
  }
  context.clip();
  context.beginPath();
  context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  context.clip();
  context.strokeStyle = themeColor("hatch");
  context.lineWidth = devicePixelRatio;
  context.beginPath();
  for (let x = bbox.left - bbox.height; x < bbox.left + bbox.width; x += 8 * devicePixelRatio) {
    context.moveTo(x, bbox.top + bbox.height);
    context.lineTo(x + bbox.height, bbox.top);
  }
  context.stroke();
  context.restore();
}

function drawMarks(chart, device, { view, timeline }) {
  const { ctx: context, bbox } = chart;
  const ratio = devicePixelRatio || 1;
  const inside = (time) => time >= view.start && time <= view.end;
  const x = (time) => chart.valToPos(time, "x", true);
  const y = (value) => chart.valToPos(value, "y", true);
  context.save();
  context.font = FONT.replace("12px", `${12 * ratio}px`);
  context.textBaseline = "top";
  for (const note of timeline.notes.filter(({ time_s: time }) => inside(time))) {
    context.strokeStyle = themeColor("note");
    context.lineWidth = ratio;
    context.setLineDash([8 * ratio, 3 * ratio, 2 * ratio, 3 * ratio]);
    line(context, x(note.time_s), bbox.top, x(note.time_s), bbox.top + bbox.height);
    context.setLineDash([]);
    if (timeline.notes.length <= 12) {
      context.textAlign = x(note.time_s) > bbox.left + bbox.width / 2 ? "right" : "left";
      const aside = context.textAlign === "left" ? 4 * ratio : -4 * ratio;
      drawText(context, note.text, x(note.time_s) + aside, bbox.top + 24 * ratio, themeColor("note"));
    }
  }
  if (device.capacity_bytes && y(device.capacity_bytes) >= bbox.top) {
    context.strokeStyle = themeColor("ink");
    context.lineWidth = ratio;
    context.setLineDash([6 * ratio, 4 * ratio]);
    line(context, bbox.left, y(device.capacity_bytes), bbox.left + bbox.width, y(device.capacity_bytes));
    context.setLineDash([]);
    context.textAlign = "left";
    const text = `capacity ${bytes(device.capacity_bytes)}`;
    drawText(context, text, bbox.left + 6 * ratio, y(device.capacity_bytes) + 4 * ratio, themeColor("ink"));
  }
  for (const failure of device.out_of_memory.filter(({ time_s: time }) => inside(time))) {
    triangle(context, x(failure.time_s), bbox.top + 26 * ratio, 6 * ratio, themeColor("bad"));
  }
  if (device.peak && inside(device.peak.time_s)) drawPeak(chart, device.peak, x, y, ratio);
  context.restore();
}

function drawPeak(chart, peak, x, y, ratio) {
  const { ctx: context, bbox } = chart;
  const [left, top] = [x(peak.time_s), y(peak.bytes)];
  context.beginPath();
  context.arc(left, top, 4.5 * ratio, 0, 2 * Math.PI);
  context.fillStyle = themeColor("ink");
  context.fill();
  context.lineWidth = 1.5 * ratio;
  context.strokeStyle = themeColor("surface");
  context.stroke();
  const full = `peak ${bytes(peak.bytes)} allocated, ${peak.phase ?? "no phase"}, step ${number(peak.step)}`;
  const isLeft = left < bbox.left + bbox.width / 2;
  const room = (isLeft ? bbox.left + bbox.width - left : left - bbox.left) - 12 * ratio;
  const text = context.measureText(full).width < room ? full : `peak ${bytes(peak.bytes)}`;
  // In the headroom above every line, tied to the point by a thin one.
  context.strokeStyle = themeColor("ink");
  context.lineWidth = 0.75 * ratio;
  line(context, left, top - 4.5 * ratio, left, bbox.top + 3 * ratio);
  context.textAlign = isLeft ? "left" : "right";
  context.textBaseline = "top";
  drawText(context, text, left + (isLeft ? 5 : -5) * ratio, bbox.top + 2 * ratio, themeColor("ink"));
}

function line(context, fromX, fromY, toX, toY) {
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}

function triangle(context, x, y, size, color) {
  context.beginPath();
  context.moveTo(x - size, y - size);
  context.lineTo(x + size, y - size);
  context.lineTo(x, y + size);
  context.fillStyle = color;
  context.fill();
}
