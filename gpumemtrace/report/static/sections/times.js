renderers.times = (data, root, report) => {
  put(
    root,
    el(
      "p",
      { class: "lead" },
      `Half of the steps took ${duration(data.median_s)} or less, 95 % of them at most ${duration(data.p95_s)}. ` +
        (data.slow_in_all
          ? `${plural(data.slow_in_all, "step was", "steps were")} slow: far beyond the median.`
          : "No step was slow: far beyond the median.") +
        (data.merged_steps
          ? ` How long each of ${plural(data.merged_steps, "more step")} took is not known: they share summaries, to keep the file small.`
          : ""),
    ),
  );
  if (data.number.length > 1) stepTimesChart(data, root);
  put(
    root,
    makeTable(
      [
        {
          key: "name",
          title: "Phase",
          text: true,
          format: phaseName,
          swatch: (row) => swatch((report.colors.phases[row.name ?? ""] ?? report.colors.phases[""]).fill),
        },
        { key: "median_s", title: "Median per step", format: duration },
        { key: "p95_s", title: "95th percentile", format: duration },
        { key: "total_s", title: "In total", format: duration },
      ],
      data.phases,
      { caption: "Time of phases per step" },
    ),
  );
  if (!data.slow.length) return;
  put(
    root,
    el("h3", {}, "Slow steps"),
    makeTable(
      [
        { key: "step", title: "Step", format: (step) => number(step) },
        { key: "duration_s", title: "Took", format: duration },
        { key: "extra_s", title: "Beyond the median", format: duration },
        { key: "phase", title: "Mostly in", text: true, format: phaseName },
        { key: "driver_s", title: "In the driver", format: duration },
        { key: "cause", title: "Because of", text: true, format: (cause) => CAUSES[cause] ?? "not the allocator" },
      ],
      data.slow,
      { caption: "Slow steps" },
    ),
  );
  if (data.slow.length < data.slow_in_all) {
    put(root, el("p", { class: "quiet-text" }, `Showing ${number(data.slow.length)} of ${number(data.slow_in_all)}.`));
  }
};

const CAUSES = { retry: "retries", empty_cache: "cache flushes", segments: "new segments" };

function stepTimesChart(data, root) {
  const holder = el("div", { class: "chart" });
  const where = el("p", { class: "readout", role: "status" });
  put(root, holder, el("div", { class: "under" }, where));
  const seconds = Array.from(data.longest_ns, (ns) => ns / 1e9);
  // The first step, with its start-up, would press all others down.
  const highest = Math.max(...seconds);
  const top = Math.min(highest, 5 * data.median_s) || highest || 1;
  if (top < highest) {
    put(root, el("p", { class: "quiet-text" }, `Longer than ${duration(top)} is cut off; the longest took ${duration(highest)}.`));
  }
  const told = (i) =>
    data.each > 1
      ? `steps ${number(data.number[i])} to ${number(data.last[i])}: longest ${duration(seconds[i])}`
      : `step ${number(data.number[i])}: ${duration(seconds[i])}`;
  const read = (i) => (where.textContent = i === null || i === undefined ? "" : told(i));
  const chart = makeChart(
    holder,
    {
      height: 180,
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: () => [0, top * 1.08] } },
      axes: [
        axis({ values: stepTicks, incrs: STEP_INCREMENTS, space: 60, size: 30, label: "step", labelSize: 18, labelFont: FONT, labelGap: 0 }),
        axis({ scale: "y", size: AXIS_WIDTH, values: (_, ticks) => ticks.map((tick) => (tick ? duration(tick) : "0 s")) }),
      ],
      series: [
        {},
        { stroke: () => themeColor("accent"), width: 1.25, points: { show: seconds.length <= 60, size: 5 } },
      ],
      hooks: { setCursor: [(u) => read(u.cursor.idx)] },
    },
    [Array.from(data.number), seconds],
  );
  let at = -1;
  const move = (by) => () => {
    at = Math.min(Math.max(at + by, 0), seconds.length - 1);
    chart.setCursor({ left: chart.valToPos(data.number[at], "x"), top: 20 });
    read(at);
  };
  focusable(holder, "Time of each step. Arrow keys move from step to step.", {
    ArrowLeft: move(-1),
    ArrowRight: move(1),
    "Shift+ArrowLeft": move(-10),
    "Shift+ArrowRight": move(10),
    0: () => chart.setScale("x", { min: data.number[0], max: data.number.at(-1) }),
  });
}
