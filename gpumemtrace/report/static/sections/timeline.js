renderers.timeline = (data, root, report) => {
  const finest = Math.max(...data.devices.map((device) => device.places)) / 4;
  const view = new TimeView(data.start_s, data.end_s, ((data.end_s - data.start_s) / finest) * 24);
  const phases = new Phases(data.phases, data);
  const steps = new Steps(data.steps, data);
  const context = { view, phases, steps, report, timeline: data };
  const charts = data.devices.map((device) => ({ device, ...makeLinesChart(device, context) }));
  const colorOf = (name) => report.colors.phases[name].fill;

  put(root, 
    el(
      "p",
      { class: "lead" },
      "Drag over a stretch to zoom in, double-click for the whole run. Every view shows the true lowest and highest value of each pixel column.",
    ),
    toolbar(view, data, charts),
    makeStrip(view, phases, steps, colorOf),
    phases.any ? phaseLegend(phases, colorOf) : null,
  );
  for (const chart of charts) {
    if (charts.length > 1) put(root, el("h3", {}, deviceTitle(chart.device)));
    if (!chart.device.lines.length) {
      put(root, el("p", { class: "unknown" }, `No events on cuda:${chart.device.device}.`));
      continue;
    }
    put(root, chart.root);
    chart.uplot = chart.attach();
  }
  put(root, notesBelow(data, finest));
  if (data.first_work_s - data.start_s > 0.5 * (data.end_s - data.start_s)) {
    view.set(data.first_work_s, data.end_s);
  }
  report.time = { view, charts, phases, steps };
};

function deviceTitle({ device, name, capacity_bytes: capacity }) {
  return [`cuda:${device}`, name, capacity ? bytes(capacity) : null].filter(Boolean).join(" · ");
}

function toolbar(view, data, charts) {
  const button = (text, label, action) =>
    el("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
  const shown = el("span", { class: "shown", role: "status" });
  const tell = () => {
    const span = view.span;
    shown.textContent = `${moment(view.start, span)} to ${moment(view.end, span)}`;
  };
  view.listeners.push(tell);
  tell();
  return el(
    "div",
    { class: "toolbar", role: "toolbar", "aria-label": "View of the time axis" },
    button("Whole run", "Show the whole run", () => view.whole()),
    data.first_work_s > data.start_s
      ? button("Without init", "Leave out the phase init", () => view.set(data.first_work_s, data.end_s))
      : null,
    charts.some(({ device }) => device.peak)
      ? button("Peak", "Zoom in to the peak", () => charts.find(({ device }) => device.peak).toPeak())
      : null,
    button("−", "Zoom out", () => view.zoom(2)),
    button("+", "Zoom in", () => view.zoom(0.5)),
    button("◀", "Earlier", () => view.pan(-0.5)),
    button("▶", "Later", () => view.pan(0.5)),
    shown,
  );
}

function phaseLegend(phases, colorOf) {
  return el(
    "ul",
    { class: "keys", "aria-label": "Phases" },
    phases.names.map((name) => el("li", {}, swatch(colorOf(name)), name)),
  );
}

function notesBelow(data, finest) {
  const list = [];
  const least = duration((data.end_s - data.start_s) / finest);
  list.push(`The finest detail here is ${least}; what is shorter is shown by its lowest and highest value.`);
  if (data.phases.share_permille) {
    list.push(`${plural(data.phases.stretches, "stretch", "stretches")} of phases are shown as shares of time.`);
  }
  const lost = data.gaps.reduce((sum, gap) => sum + gap.lost, 0);
  if (lost) list.push(`Hatched: events were lost, so the lines are uncertain until the next reading of the counters.`);
  if (data.aged_s.length) {
    const stretches = data.aged_s.map(([begin, end]) => `${duration(begin)} to ${duration(end)}`);
    list.push(`Summarised, with the peak of each phase in place of its events: ${stretches.slice(0, 3).join(", ")}${stretches.length > 3 ? ", …" : ""}.`);
  }
  if (data.notes.length < data.notes_in_all) {
    list.push(`Showing ${number(data.notes.length)} of ${plural(data.notes_in_all, "mark")}.`);
  }
  return el("p", { class: "quiet-text" }, list.join(" "));
}
