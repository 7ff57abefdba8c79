renderers.categories = (data, root, report) => {
  const lead = data.has_phases
    ? "Allocated memory by what it was for, at the highest moment of each column of time. Exact where objects were tagged, else told by rules from lifetimes, phases and sizes."
    : "The trace has no phases, so that only tags tell what memory was for.";
  put(root, el("p", { class: "lead" }, lead));
  const second = (data.end_s - data.start_s) / data.ticks;
  const view = report.time?.view ?? new TimeView(data.start_s, data.end_s, 24 * second);
  view.shared = Boolean(report.time);
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    if (!device.layers.length) {
      put(root, el("p", { class: "unknown" }, "No blocks."));
      continue;
    }
    const chart = makeStackChart({
      label: `Allocated memory of cuda:${device.device} by category over time. ${KEYS_HELP}`,
      x: Float64Array.from(device.time, (tick) => data.start_s + tick * second),
      layers: device.layers.map((layer) => ({
        label: layer.name.replace("_", " "),
        color: () => report.colors.categories[layer.name].fill,
        values: layer.bytes,
      })),
      view,
      tickText: timeTicks,
      describe: (time) => momentInWords(time, report.time, view),
    });
    put(root, chart.root);
    chart.attach();
  }
};
