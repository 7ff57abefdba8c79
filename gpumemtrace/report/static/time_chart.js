// What charts over time or steps have in common: a view that a drag or a key changes, a cursor that
// is read out, rows reduced to pixel columns.

/**
 * The rows `from` to `last` (exclusive) of x by pixel column of the view: yields [left edge, first
 * row, end row]. A column without rows is left out, but for the first.
 */
function* pixelColumns(x, from, last, view, width) {
  const column = view.span / width;
  let row = from;
  for (let i = 0; i < width; i++) {
    const left = view.start + i * column;
    const begin = row;
    while (row < last && (x[row] < left + column || i === width - 1)) row++;
    if (row > begin || i === 0) yield [left, begin, row];
  }
}

/** The rows that a view shows, first and last (exclusive): the one before it holds at its start. */
function rowsWithin(x, view) {
  const first = Math.max(countUpTo(x, view.start) - 1, 0);
  return [first, Math.max(countUpTo(x, view.end), first + 1)];
}

function plotWidth(holder) {
  return Math.max(holder.clientWidth - AXIS_WIDTH - RIGHT_MARGIN, 100);
}

function timeCursor(isSynced) {
  return {
    ...(isSynced ? { sync: SAME_CURSOR } : {}),
    drag: { x: true, y: false, setScale: false },
    points: { show: false },
    bind: { dblclick: () => null },
  };
}

/** A hook for uPlot: what was dragged over becomes the view. */
function dragToZoom(view) {
  return (u) => {
    const { left, width } = u.select;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (width > 3) view.set(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
  };
}

/** Keys that move the view; `around()`: what stays in its place, undefined for the middle. */
function viewKeys(view, around = () => undefined) {
  return {
    "Shift+ArrowLeft": () => view.pan(-0.25),
    "Shift+ArrowRight": () => view.pan(0.25),
    "+": () => view.zoom(0.5, around()),
    "=": () => view.zoom(0.5, around()),
    "-": () => view.zoom(2, around()),
    0: () => view.whole(),
  };
}

const KEYS_HELP =
  "Arrow keys move the cursor, with Shift the view; plus and minus zoom, 0 shows the whole run.";

/**
 * A chart in `holder` with a legend below. data(): uPlot's, for the view; top(): of the y axis, after
 * data(); told(at): [name, value or null] of each entry of the legend; speaks(value): whether a
 * screen reader is told of it; describe(at): words for a moment.
 *
 * Returns {root, attach, refresh, moveCursor, chart()}: attach when `root` is on the page, since
 * uPlot measures its holder.
 */
function makeTimeChart({ holder, label, height, view, isSynced, xAxis, series, hooks, legend, data, top, told, speaks, describe, keys }) {
  const spoken = el("p", { class: "unseen", role: "status" });
  const where = el("p", { class: "readout" });
  let chart = null;
  let cursor = null;

  function read(at) {
    const values = told(at ?? view.start);
    values.forEach(([, value], i) => {
      legend.values[i].textContent = at === null || value === null ? "" : bytes(value);
    });
    where.textContent = at === null ? "" : describe(at);
  }

  const options = {
    height,
    cursor: timeCursor(isSynced),
    scales: { x: { time: false, range: () => [view.start, view.end] }, y: { range: () => [0, top()] } },
    axes: [axis(xAxis), byteAxis()],
    series: [{}, ...series],
    hooks: {
      ...hooks,
      setSelect: [dragToZoom(view)],
      setCursor: [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)],
    },
  };

  function refresh() {
    const fresh = data();
    chart.batch(() => {
      chart.setData(fresh, false);
      chart.setScale("x", { min: view.start, max: view.end });
      chart.setScale("y", { min: 0, max: top() });
    });
  }

  function moveCursor(at) {
    cursor = Math.min(Math.max(at, view.start), view.end);
    chart.setCursor({ left: chart.valToPos(cursor, "x"), top: 40 });
    const known = told(cursor).filter(([, value]) => value !== null && speaks(value));
    spoken.textContent = `${describe(cursor)}: ${known.map(([name, value]) => `${name} ${bytes(value)}`).join(", ")}`;
  }

  const stepBy = (part) => () => moveCursor((cursor ?? (view.start + view.end) / 2) + part * view.span);
  const isShown = () => cursor !== null && cursor >= view.start && cursor <= view.end;
  focusable(holder, label, {
    ArrowLeft: stepBy(-0.01),
    ArrowRight: stepBy(0.01),
    Home: () => moveCursor(view.start),
    End: () => moveCursor(view.end),
    ...viewKeys(view, () => (isShown() ? cursor : undefined)),
    ...keys,
  });

  function attach() {
    chart = makeChart(holder, options, data());
    steerWithPointer(chart, view);
    new ResizeObserver(refresh).observe(holder);
    view.listeners.push(refresh);
    refresh();
    return chart;
  }

  const root = el("div", { class: "device" }, holder, el("div", { class: "under" }, legend.root, where), spoken);
  return { root, attach, refresh, moveCursor, chart: () => chart };
}
