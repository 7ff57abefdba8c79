// The lines of one device over time. Of the rows in view a chart gets as many as it has pixels for:
// first, lowest, highest and last value of each pixel column, so that no peak is lost.

const LINE_DASHES = { device_used: [2, 3], active: [7, 4], requested: [4, 2] };
// Above the highest line: the peak's text stands there.
const HEADROOM = 1.16;
// Of the program's marks in view: more would cover the lines, or each other's texts.
const MOST_NOTE_LINES = 24;
const MOST_NOTE_TEXTS = 12;
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

/** uPlot's data for the view, at most four rows per column of `width`. */
function reduceRows(time, lines, view, width) {
  const [first, last] = rowsWithin(time, view);
  const known = (value) => (Number.isNaN(value) ? null : value);
  if (last - first <= 4 * width) {
    // What held at the beginning, every row, and what holds at the end.
    const x = Array.from(time.subarray(first, last), (t) => Math.max(t, view.start));
    const rows = lines.map((line) => Array.from(line.subarray(first, last), known));
    return [[...x, view.end], ...rows.map((row) => [...row, row.at(-1)])];
  }
  const column = view.span / width;
  const x = [];
  const reduced = lines.map(() => []);
  // Row `first` is what the view begins with.
  for (const [left, begin, end] of pixelColumns(time, first + 1, last, view, width)) {
    for (let part = 0; part < 4; part++) x.push(left + (part / 4) * column);
    lines.forEach((line, which) => {
      // The value carried in from the left counts as the first of the column.
      const carried = line[begin - 1];
      let [low, high] = [carried, carried];
      for (let k = begin; k < end; k++) {
        // Written so that NaN, "not known yet", gives way to any figure.
        if (!(line[k] >= low)) low = line[k];
        if (!(line[k] <= high)) high = line[k];
      }
      reduced[which].push(known(carried), known(low), known(high), known(line[end - 1]));
    });
  }
  x.push(view.end);
  lines.forEach((line, which) => reduced[which].push(reduced[which].at(-1) ?? null));
  return [x, ...reduced];
}

/** Chart and legend of one device. context: {view, phases, steps, report, timeline}. */
function makeLinesChart(device, context) {
  const { view, phases, steps, report, timeline } = context;
  const rows = lineRows(device, timeline);
  const names = LINE_ORDER.filter((name) => name in rows.values);
  const lines = names.map((name) => rows.values[name]);
  const shown = names.map((name) => name !== "device_used" || !pressesDown(rows.values));
  const holder = el("div", { class: "chart" });
  const styleOf = (name) => report.lines[name];

  const legend = makeLegend(
    names.map((name, i) => ({
      isHidden: !shown[i],
      label: styleOf(name).label,
      color: () => report.colors.lines[name],
      dash: LINE_DASHES[name] ? (name === "device_used" ? "dotted" : "dashed") : "solid",
    })).reverse(),
    (i, isShown) => {
      shown[names.length - 1 - i] = isShown;
      made.chart().setSeries(names.length - i, { show: isShown });
      made.refresh();
    },
  );

  let top = 1;
  function data() {
    const reduced = reduceRows(rows.time, lines, view, plotWidth(holder));
    top = 0;
    reduced.slice(1).forEach((line, i) => {
      if (shown[i]) for (const value of line) if (value > top) top = value;
    });
    // The capacity where it is near: else it would only press the lines down.
    const capacity = device.capacity_bytes ?? Infinity;
    if (capacity < top * 1.25) top = Math.max(top, capacity);
    top = (top || 1) * HEADROOM;
    return reduced;
  }

  function valuesAt(time) {
    const row = countUpTo(rows.time, time) - 1;
    return names.map((name) => (row < 0 ? NaN : rows.values[name][row]));
  }

  function toPeak() {
    if (!device.peak) return;
    const at = device.peak.time_s;
    const half = Math.min(view.span, 200 * rows.column) / 2;
    view.set(at - half, at + half);
    made.moveCursor(at);
  }

  const made = makeTimeChart({
    holder,
    label: `Memory of cuda:${device.device} over time. ${KEYS_HELP} P goes to the peak.`,
    height: 300,
    view,
    isSynced: true,
    xAxis: { values: timeTicks, space: 64, size: 32 },
    series: names.map((name, i) =>
      lineSeries(styleOf(name).label, () => report.colors.lines[name], {
        show: shown[i],
        dash: LINE_DASHES[name],
        paths: uPlot.paths.stepped({ align: 1 }),
        fill: name === "allocated" ? () => report.colors.lines[name][currentTheme()] + "38" : null,
      }),
    ),
    hooks: {
      drawClear: [(u) => drawSummarised(u, context.timeline), (u) => drawUncertain(u, device)],
      draw: [(u) => drawMarks(u, device, context)],
    },
    legend,
    data,
    top: () => top,
    told: (at) => {
      const values = valuesAt(at).map((value) => (Number.isNaN(value) ? null : value));
      return names.map((name, i) => [styleOf(name).label, values[i]]).reverse();
    },
    speaks: () => true,
    describe: (at) => momentInWords(at, { steps, phases }, view),
    keys: { p: toPeak },
  });
  if (shown.includes(false)) {
    put(made.root, el("p", { class: "quiet-text" }, "“device used” is hidden at first: beside it, the other lines would lie on the ground."));
  }
  return { root: made.root, attach: made.attach, toPeak, rows, names, valuesAt };
}

/** Whether what the whole device has in use (its context alone is half a GiB) dwarfs the rest. */
function pressesDown({ device_used: used, ...others }) {
  const highest = (line) => line.reduce((most, value) => (value > most ? value : most), 0);
  return used !== undefined && highest(used) > 5 * Math.max(...Object.values(others).map(highest));
}

function drawSummarised(chart, { aged_s: stretches }) {
  const { ctx: context, bbox } = chart;
  if (!stretches.length) return;
  context.save();
  context.beginPath();
  context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  context.clip();
  context.fillStyle = themeColor("summarised");
  for (const [from, to] of stretches) {
    const [left, right] = [from, to].map((time) => chart.valToPos(time, "x", true));
    context.fillRect(left, bbox.top, Math.max(right - left, 1), bbox.height);
  }
  context.restore();
}

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
  const notes = timeline.notes.filter(({ time_s: time }) => inside(time));
  // Many full lines would hide what they stand in: then they are ticks on the ground.
  const areMany = notes.length > MOST_NOTE_LINES;
  const ground = bbox.top + bbox.height;
  for (const note of notes) {
    context.strokeStyle = themeColor("note");
    context.lineWidth = ratio;
    if (!areMany) context.setLineDash([8 * ratio, 3 * ratio, 2 * ratio, 3 * ratio]);
    line(context, x(note.time_s), areMany ? ground - 8 * ratio : bbox.top, x(note.time_s), ground);
    context.setLineDash([]);
    if (notes.length <= MOST_NOTE_TEXTS) {
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
