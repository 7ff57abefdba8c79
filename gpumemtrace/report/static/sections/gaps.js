renderers.gaps = (data, root) => {
  put(
    root,
    el(
      "p",
      { class: "lead" },
      "From what the program asked for up to the whole card: each part lies between two of the five lines.",
    ),
  );
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    put(
      root,
      makeGapBars(
        data.parts,
        device.moments.map((moment) => ({ ...moment, label: `${moment.label}: ${place(moment)}` })),
      ),
      gapsOfMoments(data, device),
      gapNotes(device),
      device.cached ? cachedByCause(device) : null,
      device.phases.length > 1 ? gapsByPhase(device) : null,
      device.outside.length > 1 ? outsideChanges(device) : null,
    );
  }
};

function gapsOfMoments(data, device) {
  const highest = (row) => device.highest[row.name];
  return makeGapTable(data.parts, device.moments, {
    caption: `The parts of cuda:${device.device} at the moments that matter`,
    more: [
      {
        key: "name",
        title: "Highest",
        format: (name, row) =>
          name === "device_free" || !highest(row) ? "" : bytes(highest(row).bytes),
      },
      {
        key: "line",
        title: "In",
        text: true,
        format: (_, row) => {
          const found = row.name === "device_free" ? null : highest(row);
          return found && found.bytes ? `${phaseName(found.phase)}, step ${number(found.step)}` : "";
        },
      },
    ],
  });
}

function gapNotes(device) {
  const { least_with_cache: least } = device;
  const notes = [];
  if (least) {
    notes.push(
      `Were the cache given back, never less than ${bytes(least.bytes)} would be free on the device (${place(least)}).`,
    );
  }
  if (device.highest.outside && !device.own_is_known) {
    notes.push("The driver did not tell of each process: “outside PyTorch” holds other processes, too.");
  }
  const told = notes.map((note) => el("p", { class: "quiet-text" }, note));
  for (const found of device.breaks) {
    const text =
      `${found.lower} lies above ${found.upper} in ${plural(found.records, "record")}, by ` +
      `${bytes(found.most_bytes)} at most: ${found.reason}`;
    told.push(
      found.is_harmless
        ? el("p", { class: "quiet-text" }, `${text} (the order in which things are recorded; harmless).`)
        : el("p", { class: "notice warning" }, `${text}.`),
    );
  }
  return told;
}

function cachedByCause(device) {
  const { cached } = device;
  return [
    el("h3", {}, "The cache at its largest, by cause"),
    el("p", {}, `${bytes(cached.bytes)} cached in step ${number(cached.step)}, at ${duration(cached.time_s)}.`),
    makeTable(
      [
        { key: "label", title: "Cause", text: true, swatch: (row) => swatch(CACHE_COLORS[row.name]) },
        { key: "bytes", title: "Bytes", format: bytes, bar: (row) => row.bytes / cached.bytes },
        { key: "meaning", title: "What it is", text: true },
      ],
      cached.causes,
      { caption: `Cached on cuda:${device.device}, by cause`, order: ["bytes", "descending"] },
    ),
  ];
}

function gapsByPhase(device) {
  const has = (name) => device.phases.some((row) => row[name]);
  const column = (key, title) => (has(key) ? [{ key, title, format: bytes }] : []);
  return [
    el("h3", {}, "At the peak of each phase"),
    makeTable(
      [
        { key: "phase", title: "Phase", text: true, format: phaseName },
        { key: "allocated", title: "Allocated", format: bytes },
        { key: "rounding", title: "Rounding", format: bytes },
        ...column("pending", "Pending free"),
        { key: "cached", title: "Cached", format: bytes },
        ...column("outside", "Outside"),
        ...column("device_free", "Free"),
        ...(has("outside_change")
          ? [{ key: "outside_change", title: "Outside, grown in it", format: signedBytes }]
          : []),
      ],
      device.phases,
      { caption: `The gaps on cuda:${device.device} at the allocated peak of each phase` },
    ),
  ];
}

function outsideChanges(device) {
  return [
    el("h3", {}, "Changes outside PyTorch"),
    makeTable(
      [
        { key: "time_s", title: "Seen at", format: duration },
        { key: "bytes", title: "Outside", format: bytes },
        { key: "change", title: "Change", format: signedBytes },
        { key: "phase", title: "Phase", text: true, format: phaseName },
        { key: "step", title: "Step", format: (step) => number(step) },
      ],
      device.outside,
      { caption: `What lies outside PyTorch on cuda:${device.device}, each change` },
    ),
    device.outside.length < device.outside_in_all
      ? el("p", { class: "quiet-text" }, `Showing ${number(device.outside.length)} of ${number(device.outside_in_all)}.`)
      : null,
  ];
}
