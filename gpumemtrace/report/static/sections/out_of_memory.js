renderers.out_of_memory = (data, root) => {
  const parts = [];
  if (data.failures) parts.push(`${plural(data.failures, "request")} could not be served.`);
  if (data.retries) {
    parts.push(`The allocator flushed its cache and tried again ${plural(data.retries, "time")}.`);
  }
  put(root, el("p", { class: "lead" }, parts.join(" ")));
  if (!data.rows.length) return;
  put(root, 
    makeTable(
      [
        { key: "device", title: "Device", format: (device) => `cuda:${device}` },
        { key: "bytes", title: "Requested", format: bytes },
        { key: "phase", title: "Phase", text: true },
        { key: "step", title: "Step", format: (step) => number(step) },
        { key: "time_s", title: "At", format: duration },
      ],
      data.rows,
      { caption: "Requests that could not be served" },
    ),
  );
  if (data.rows.length < data.failures) {
    put(root, el("p", { class: "quiet-text" }, `Showing ${number(data.rows.length)} of ${number(data.failures)}.`));
  }
};
