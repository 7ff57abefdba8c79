// Layers on each other over time or steps.

/**
 * x: Float64Array, ascending; layers: [{label, color: () => fill, values}], bottom first; a row
 * holds until the next. view: TimeView; tickText(_, ticks, …); describe(x): words for a moment.
 */
function makeStackChart({ label, x, layers, view, tickText, describe, xLabel, incrs }) {
  const holder = el("div", { class: "chart" });
  const shown = layers.map(() => true);
  const legend = makeLegend(
    [...layers].reverse().map((layer) => ({
      label: layer.label,
      color: () => ({ light: layer.color(), dark: layer.color() }),
      dash: null,
    })),
    (i, isShown) => {
      shown[layers.length - 1 - i] = isShown;
      made.refresh();
    },
  );
  const total = (row) => layers.reduce((sum, layer, i) => sum + (shown[i] ? layer.values[row] : 0), 0);
  let top = 1;

  /** Rows of the view with their places; of many in a pixel column the highest and the last. */
  function rowsInView() {
    const [first, last] = rowsWithin(x, view);
    const width = plotWidth(holder);
    const [rows, at] = [[], []];
    if (last - first <= width / 2) {
      for (let row = first; row < last; row++) {
        rows.push(row);
        at.push(Math.max(x[row], view.start));
      }
      return [rows, at];
    }
    for (const [left, begin, end] of pixelColumns(x, first, last, view, width)) {
      if (begin === end) continue; // before the first row
      let highest = begin;
      for (let row = begin; row < end; row++) if (total(row) > total(highest)) highest = row;
      // The highest fills its pixel, so that it can be seen; what came last holds from there on.
      rows.push(highest, end - 1);
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
    top = (below.reduce((most, value) => Math.max(most, value), 0) || 1) * 1.06;
    return [at, ...sums.reverse()];
  }

  const made = makeTimeChart({
    holder,
    label,
    height: 260,
    view,
    isSynced: Boolean(view.shared),
    xAxis: {
      values: tickText,
      space: 64,
      size: xLabel ? 30 : 32,
      ...(incrs ? { incrs } : {}),
      ...(xLabel ? { label: xLabel, labelSize: 18, labelFont: FONT, labelGap: 0 } : {}),
    },
    series: [...layers].reverse().map((layer) => ({
      label: layer.label,
      stroke: () => layer.color(),
      width: 0,
      fill: () => layer.color(),
      paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
    })),
    hooks: {},
    legend,
    data,
    top: () => top,
    told: (at) => {
      const row = countUpTo(x, at) - 1;
      return layers.map((layer) => [layer.label, row < 0 ? null : layer.values[row]]).reverse();
    },
    speaks: (value) => value > 0,
    describe,
    keys: {},
  });
  return { root: made.root, attach: made.attach };
}

/** Whole numbers on an axis of steps. */
const STEP_INCREMENTS = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((power) => [1, 2, 5].map((f) => f * 10 ** power));

function stepTicks(_, ticks) {
  return ticks.map((tick) => (Number.isInteger(tick) ? number(tick) : ""));
}
