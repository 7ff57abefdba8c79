// Layers on each other over time or steps.

/**
 * x: Float64Array, ascending; layers: [{label, color: () => fill, values}], bottom first; a row
 * holds until the next. view: TimeView; tickText(_, ticks, …); describe(x): words for a moment.
 */
function makeStackChart({ label, x, layers, view, tickText, describe, xLabel, incrs }) {
  const holder = el("div", { class: "chart" });
  const spoken = el("p", { class: "unseen", role: "status" });
  const where = el("p", { class: "readout" });
  const shown = layers.map(() => true);
  const legend = makeLegend(
    [...layers].reverse().map((layer) => ({ ...layer, color: () => ({ light: layer.color(), dark: layer.color() }) })),
    (i, isShown) => {
      shown[layers.length - 1 - i] = isShown;
      refresh();
    },
  );
  let top = 1;

  /** Rows of the view with their places; of many in a pixel column the highest and the last. */
  function rowsInView() {
    const first = Math.max(countUpTo(x, view.start) - 1, 0);
    const last = Math.max(countUpTo(x, view.end), first + 1);
    const width = Math.max(holder.clientWidth - AXIS_WIDTH - RIGHT_MARGIN, 100);
    const [rows, at] = [[], []];
    if (last - first <= width / 2) {
      for (let row = first; row < last; row++) {
        rows.push(row);
        at.push(Math.max(x[row], view.start));
      }
      return [rows, at];
    }
    const total = (row) => layers.reduce((sum, layer, i) => sum + (shown[i] ? layer.values[row] : 0), 0);
    let row = first;
    for (let column = 0; column < width; column++) {
      const left = view.start + (column * view.span) / width;
      const edge = column === width - 1 ? Infinity : left + view.span / width;
      let highest = -1;
      const begin = row;
      for (; row < last && x[row] < edge; row++) {
        if (highest < 0 || total(row) > total(highest)) highest = row;
      }
      if (row === begin) continue;
      // The highest fills its pixel, so that it can be seen; what came last holds from there on.
      rows.push(highest, row - 1);
      at.push(left, left + view.span / width);
    }
    return [rows, at];
  }

  /** Sums from the bottom; uPlot draws the highest first, and the lower ones over it. */
  function data() {
    const [rows, places] = rowsInView();
    const at = [...places, view.end];
    const sums = [];
    let below = new Array(at.length).fill(0);
    layers.forEach((layer, i) => {
      if (shown[i]) {
        const values = [...rows, rows.at(-1)].map((row) => layer.values[row]);
        below = below.map((sum, k) => sum + values[k]);
      }
      sums.push(below);
    });
    top = below.reduce((most, value) => Math.max(most, value), 0) || 1;
    return [at, ...sums.reverse()];
  }

  function refresh() {
    const fresh = data();
    chart.batch(() => {
      chart.setData(fresh, false);
      chart.setScale("x", { min: view.start, max: view.end });
      chart.setScale("y", { min: 0, max: top * 1.06 });
    });
  }

  const valuesAt = (at) => {
    const row = countUpTo(x, at) - 1;
    return layers.map((layer) => (row < 0 ? null : layer.values[row]));
  };
  function read(at) {
    const values = at === null ? layers.map(() => null) : valuesAt(at);
    [...values].reverse().forEach((value, i) => {
      legend.values[i].textContent = value === null ? "" : bytes(value);
    });
    where.textContent = at === null ? "" : describe(at);
  }

  const options = {
    height: 260,
    cursor: {
      ...(view.shared ? { sync: SAME_CURSOR } : {}),
      drag: { x: true, y: false, setScale: false },
      points: { show: false },
      bind: { dblclick: () => null },
    },
    scales: {
      x: { time: false, range: () => [view.start, view.end] },
      y: { range: () => [0, top * 1.06] },
    },
    axes: [
      axis({
        values: tickText,
        space: 64,
        size: xLabel ? 30 : 32,
        ...(incrs ? { incrs } : {}),
        ...(xLabel ? { label: xLabel, labelSize: 18, labelFont: FONT, labelGap: 0 } : {}),
      }),
      byteAxis(),
    ],
    series: [
      {},
      ...[...layers].reverse().map((layer) => ({
        label: layer.label,
        stroke: () => layer.color(),
        width: 0,
        fill: () => layer.color(),
        paths: uPlot.paths.stepped({ align: 1 }),
        points: { show: false },
      })),
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
    },
  };

  let cursor = null;
  function moveCursor(at) {
    cursor = Math.min(Math.max(at, view.start), view.end);
    chart.setCursor({ left: chart.valToPos(cursor, "x"), top: 40 });
    const told = layers.map((layer, i) => [layer.label, valuesAt(cursor)[i]]).reverse();
    spoken.textContent = `${describe(cursor)}: ${told
      .filter(([, value]) => value)
      .map(([name, value]) => `${name} ${bytes(value)}`)
      .join(", ")}`;
  }
  const stepBy = (part) => () => moveCursor((cursor ?? (view.start + view.end) / 2) + part * view.span);
  focusable(holder, label, {
    ArrowLeft: stepBy(-0.01),
    ArrowRight: stepBy(0.01),
    "Shift+ArrowLeft": () => view.pan(-0.25),
    "Shift+ArrowRight": () => view.pan(0.25),
    "+": () => view.zoom(0.5),
    "=": () => view.zoom(0.5),
    "-": () => view.zoom(2),
    0: () => view.whole(),
  });

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
  return { root, attach };
}

/** Whole numbers on an axis of steps. */
const STEP_INCREMENTS = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((power) => [1, 2, 5].map((f) => f * 10 ** power));

function stepTicks(_, ticks) {
  return ticks.map((tick) => (Number.isInteger(tick) ? number(tick) : ""));
}
