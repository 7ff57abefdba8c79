renderers.phases = (data, root, report) => {
  put(root, 
    el(
      "p",
      { class: "lead" },
      "A peak includes what was in use when the phase began. “Kept each”: what it allocated less what it freed, per time it was entered." +
        (data.merged_steps
          ? ` Of ${plural(data.merged_steps, "step")} that share summaries, to keep the file small, no phases are known: they count as “(no phase)”.`
          : ""),
    ),
  );
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    put(root, phasesTable(device, report));
    if (device.steps) {
      put(root, el("h3", {}, "Peak of each phase over the steps"));
      phasesOverSteps(device, root, report);
    }
  }
};

function phaseName(name) {
  return name || "(no phase)";
}

function phasesTable(device, report) {
  const rows = device.rows.map((row) => ({ ...row, shown: phaseName(row.name) }));
  return makeTable(
    [
      {
        key: "shown",
        title: "Phase",
        text: true,
        swatch: (row) => swatch(report.colors.phases[row.name]?.fill ?? "transparent"),
      },
      { key: "count", title: "Times", format: (count) => (count === null ? "" : number(count)) },
      { key: "time_s", title: "In total", format: duration },
      { key: "allocated", title: "Peak allocated", format: bytes },
      { key: "reserved", title: "Peak reserved", format: bytes },
      { key: "kept_each", title: "Kept each", format: signedBytes },
    ],
    rows,
    { caption: `Phases on cuda:${device.device}` },
  );
}

const PHASE_DASHES = [null, [8, 3], [3, 3], [10, 3, 2, 3], [2, 2], [6, 2, 2, 2], [14, 4]];

function phasesOverSteps(device, root, report) {
  const { number: numbers, last, phases, each } = device.steps;
  const known = (line) => Array.from(line, (value) => (value < 0 ? null : value));
  const data = [Array.from(numbers), ...phases.map((phase) => known(phase.peak_bytes))];
  const colorOf = (name) => report.colors.phases[name] ?? report.colors.phases[""];
  const holder = el("div", { class: "chart" });
  const spoken = el("p", { class: "unseen", role: "status" });
  const where = el("p", { class: "readout" });
  const label = (i) => (each > 1 ? `steps ${number(numbers[i])} to ${number(last[i])}` : `step ${number(numbers[i])}`);
  const legend = makeLegend(
    phases.map((phase, i) => ({
      label: phaseName(phase.name),
      color: () => colorOf(phase.name),
      dash: i ? "dashed" : "solid",
    })),
    (i, shown) => chart.setSeries(i + 1, { show: shown }),
  );
  const read = (i) => {
    phases.forEach((phase, k) => {
      const value = i === null ? -1 : phase.peak_bytes[i];
      legend.values[k].textContent = value < 0 ? "" : bytes(value);
    });
    where.textContent = i === null ? "" : label(i);
  };
  put(root, holder, el("div", { class: "under" }, legend.root, where), spoken);
  if (each > 1) put(root, el("p", { class: "quiet-text" }, `Each point is the highest of ${number(each)} steps.`));
  const chart = makeChart(
    holder,
    {
      height: 260,
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
      axes: [
        axis({
          values: stepTicks,
          space: 60,
          incrs: STEP_INCREMENTS,
          label: "step",
          size: 30,
          labelSize: 18,
          labelFont: FONT,
          labelGap: 0,
        }),
        byteAxis(),
      ],
      series: [
        {},
        ...phases.map((phase, i) =>
          lineSeries(phaseName(phase.name), () => colorOf(phase.name), {
            width: 1.75,
            dash: PHASE_DASHES[i % PHASE_DASHES.length],
            points: { show: numbers.length <= 60, size: 5 },
          }),
        ),
      ],
      hooks: { setCursor: [(u) => read(u.cursor.idx ?? null)] },
    },
    data,
  );
  let at = -1;
  const move = (by) => () => {
    at = Math.min(Math.max(at + by, 0), numbers.length - 1);
    chart.setCursor({ left: chart.valToPos(numbers[at], "x"), top: 20 });
    const told = phases.filter((phase) => phase.peak_bytes[at] >= 0);
    spoken.textContent = `${label(at)}: ${told.map((p) => `${phaseName(p.name)} ${bytes(p.peak_bytes[at])}`).join(", ")}`;
  };
  const whole = () => chart.setScale("x", { min: numbers[0], max: numbers[numbers.length - 1] });
  focusable(holder, `Peak of each phase over the steps on cuda:${device.device}. Arrow keys move from step to step.`, {
    ArrowLeft: move(-1),
    ArrowRight: move(1),
    "Shift+ArrowLeft": move(-10),
    "Shift+ArrowRight": move(10),
    0: whole,
  });
}
