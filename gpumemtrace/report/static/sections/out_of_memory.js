renderers.out_of_memory = (data, root, report) => {
  const parts = [];
  if (data.failures) {
    const last = data.failures > 1 ? "the last one" : "it";
    const end = data.died_of_it ? `The program ended with ${last}.` : "The program went on.";
    parts.push(`${plural(data.failures, "request")} could not be served. ${end}`);
  }
  if (data.retries) {
    parts.push(`The allocator flushed its cache and tried again ${plural(data.retries, "time")}.`);
  }
  if (parts.length) put(root, el("p", { class: "lead" }, parts.join(" ")));
  if (data.outside) put(root, el("p", { class: "notice bad" }, data.outside));
  data.explained.forEach((request, i) => {
    if (i === 0) put(root, el("h3", {}, request.headline), explanation(request, data.parts, report));
    else put(root, otherFailure(request, data.parts, report));
  });
  if (data.failures > 1) put(root, el("h3", {}, "All failed requests"), failuresTable(data));
  if (data.rows.length < data.failures) {
    put(root, el("p", { class: "quiet-text" }, `Showing ${number(data.rows.length)} of ${number(data.failures)}.`));
  }
};

/** A failure that is not the last one: folded, and filled when it is opened. */
function otherFailure(request, parts, report) {
  const details = el("details", { class: "more" }, el("summary", {}, request.headline));
  details.addEventListener("toggle", () => put(details, explanation(request, parts, report)), { once: true });
  return details;
}

function explanation(request, parts, report) {
  return [
    el("p", { class: "notice bad" }, el("strong", {}, "Cause: "), request.cause),
    request.figures.map((sentence) => el("p", {}, sentence)),
    request.helps.length ? [el("h4", {}, "What would have helped"), helpsTable(request)] : null,
    request.before
      ? [
          el("h4", {}, "The card just before"),
          makeGapBars(parts, [{ ...request.before, label: null }]),
          makeGapTable(parts, [request.before], { caption: "The card just before the request" }),
        ]
      : null,
    request.groups.length ? [el("h4", {}, "Largest in use"), largestTable(request, report)] : null,
  ].flat(2);
}

function helpsTable(request) {
  return makeTable(
    [
      { key: "change", title: "Change", text: true },
      { key: "size_bytes", title: "Gives at most", format: bytes },
      { key: "is_enough", title: "Enough", format: (is) => (is ? "yes" : "no") },
      { key: "evidence", title: "Since", text: true },
    ],
    request.helps,
    { caption: "What would have helped, computed from the trace" },
  );
}

function largestTable(request, report) {
  const steps = (row) =>
    row.first_step === row.last_step ? number(row.first_step) : `${number(row.first_step)} to ${number(row.last_step)}`;
  return makeTable(
    [
      {
        key: "category",
        title: "For",
        text: true,
        format: (name) => name.replace("_", " "),
        swatch: (row) => swatch(report.colors.categories[row.category].fill),
      },
      { key: "total_bytes", title: "In all", format: bytes },
      { key: "blocks", title: "Blocks", format: (count) => number(count) },
      { key: "size_bytes", title: "Each", format: bytes },
      { key: "phase", title: "Born in", text: true, format: phaseName },
      { key: "first_step", title: "Steps", format: (_, row) => steps(row) },
    ],
    request.groups,
    { caption: "The largest blocks in use, those that are alike in one row" },
  );
}

function failuresTable(data) {
  return makeTable(
    [
      { key: "device", title: "Device", text: true, format: (device) => `cuda:${device}` },
      { key: "bytes", title: "Requested", format: bytes },
      { key: "phase", title: "Phase", text: true, format: phaseName },
      { key: "step", title: "Step", format: (step) => number(step) },
      { key: "time_s", title: "At", format: duration },
    ],
    data.rows,
    { caption: "Requests that could not be served" },
  );
}
