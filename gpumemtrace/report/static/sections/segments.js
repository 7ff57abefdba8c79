const CACHE_COLORS = {
  active: "#0072B2",
  private_pool: "#CC79A7",
  other_stream: "#E69F00",
  idle: "#56B4E9",
  small_pool: "#F0E442",
  interleaved: "#D55E00",
};

renderers.segments = (data, root, report) => {
  const second = (data.end_s - data.start_s) / data.ticks;
  const seconds = (ticks) => Float64Array.from(ticks, (tick) => data.start_s + tick * second);
  const view = report.time?.view ?? new TimeView(data.start_s, data.end_s, 24 * second);
  const describe = (time) => momentInWords(time, report.time, view);
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    put(root, el("p", { class: "verdict" }, device.sentence));
    if (!device.known) continue;
    if (device.index !== null) {
      put(
        root,
        el(
          "p",
          { class: "quiet-text" },
          `Fragmentation index ${device.index.toFixed(2)} (0: the free memory of the main stream is one block; near 1: many small ones).`,
        ),
      );
    }
    if (device.map) {
      const map = { ...device.map, time: seconds(device.map.time) };
      const chart = makeSegmentMap(map, device.device, view, describe);
      put(
        root,
        el("h3", {}, "Addresses over time"),
        el("p", { class: "lead" }, "Everything that was ever reserved, lowest address below, without the holes between. Pale stripes that stay are memory that the allocator keeps and nobody uses."),
        chart.root,
      );
      chart.attach();
    }
    if (device.cached.layers.length) {
      const chart = makeStackChart({
        label: `Reserved memory of cuda:${device.device}, in use and cached by cause, over time. ${KEYS_HELP}`,
        x: seconds(device.cached.time),
        layers: device.cached.layers.map((layer) => ({
          label: layer.label,
          color: () => CACHE_COLORS[layer.name],
          values: layer.bytes,
        })),
        view,
        tickText: timeTicks,
        describe,
      });
      put(root, el("h3", {}, "Reserved: in use, and cached by cause"), chart.root);
      chart.attach();
      put(root, makeList(device.cached.layers.map((layer) => [layer.label, layer.meaning])));
    }
    if (device.pinned.length) put(root, pinnedTable(device));
  }
};

function pinnedTable(device) {
  return [
    el("h3", {}, "Segments that blocks in use pin"),
    makeTable(
      [
        { key: "base", title: "Segment", text: true },
        { key: "size_bytes", title: "Size", format: bytes },
        { key: "free_bytes", title: "Free", format: bytes },
        { key: "block_count", title: "Pinned by", format: (count) => plural(count, "block") },
        { key: "oldest_bytes", title: "The oldest", format: bytes },
        { key: "phase", title: "Born in", text: true, format: phaseName },
        { key: "step", title: "Step", format: (step) => number(step) },
        { key: "age_s", title: "Age", format: duration },
      ],
      device.pinned,
      { caption: `Segments of cuda:${device.device} that are partly free` },
    ),
    device.pinned.length < device.pinned_in_all
      ? el("p", { class: "quiet-text" }, `Showing ${number(device.pinned.length)} of ${plural(device.pinned_in_all, "segment")}.`)
      : null,
  ];
}
