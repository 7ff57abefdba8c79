const GROUPINGS = {
  category: "what it is for",
  phase: "phase of birth",
  step: "step of birth",
  size_class: "size of block",
  module: "module",
  site: "line that allocated",
};

renderers.peak = (data, root, report) => {
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    put(
      root,
      el("p", { class: "lead" }, `${bytes(device.bytes)} in ${plural(device.blocks, "block")}, ${place(device)}.`),
      groupsOfPeak(device, report),
      adviceTable(device),
      el("h3", {}, "The blocks"),
      blocksOfPeak(device, report),
    );
  }
};

function groupsOfPeak(device, report) {
  const holder = el("div", { class: "groups" });
  const name = `grouping-${device.device}`;
  const show = (by) => holder.replaceChildren(groupTable(device, by, report));
  const first = Object.hasOwn(device.groups, report.by) ? report.by : "category";
  const known = Object.entries(GROUPINGS).filter(([by]) => Object.hasOwn(device.groups, by));
  const choices = known.map(([by, text]) =>
    el(
      "label",
      {},
      el("input", { type: "radio", name, value: by, checked: by === first, onchange: () => show(by) }),
      text,
    ),
  );
  show(first);
  return el("div", {}, el("fieldset", { class: "choices" }, el("legend", {}, "By"), choices), holder);
}

function groupTable(device, by, report) {
  const colors = by === "category" ? report.colors.categories : by === "phase" ? report.colors.phases : {};
  return makeTable(
    [
      {
        key: "name",
        title: "Group",
        text: true,
        format: (name) => (by === "category" ? name.replace("_", " ") : name),
        swatch: (row) => (Object.hasOwn(colors, row.name) ? swatch(colors[row.name].fill) : null),
      },
      { key: "bytes", title: "Bytes", format: bytes, bar: (row) => Math.max(row.bytes, 0) / device.bytes },
      { key: "bytes", title: "Part", format: (value) => `${((value / device.bytes) * 100).toFixed(1)} %` },
      { key: "blocks", title: "Blocks", format: (count) => (count === null ? "" : number(count)) },
    ],
    device.groups[by],
    {
      caption: `The peak of cuda:${device.device} by ${GROUPINGS[by]}`,
      filter: { module: "layers.3, mlp, …", site: "train.py, forward, …" }[by],
    },
  );
}

function adviceTable(device) {
  if (!device.advice.length) return null;
  return [
    el("h3", {}, "What would lower the peak"),
    makeTable(
      [
        { key: "change", title: "Change", text: true },
        {
          key: "saves_bytes",
          title: "Saves at most",
          format: (size, row) => bytes(size) + (row.line === "allocated" ? "" : ` of ${row.line}`),
        },
        { key: "evidence", title: "Since", text: true },
      ],
      device.advice,
      { caption: `What would lower the peak of cuda:${device.device}, computed from the trace` },
    ),
  ];
}

function blocksOfPeak(device, report) {
  const columns = device.rows;
  const rows = Array.from(columns.size_bytes, (size, i) => ({
    total: size * columns.count[i],
    count: columns.count[i],
    size,
    category: columns.category_names[columns.category[i]].replace("_", " "),
    color: columns.category_names[columns.category[i]],
    phase: columns.phase[i] < 0 ? "(no phase)" : columns.phase_names[columns.phase[i]],
    step: columns.step[i],
    ...Object.fromEntries(Object.entries(columns.owners).map(([by, { names, place }]) => [by, names[place[i]]])),
  }));
  const owner = (key, title) => (Object.hasOwn(columns.owners, key) ? [{ key, title, text: true }] : []);
  const table = makeTable(
    [
      {
        key: "category",
        title: "For",
        text: true,
        swatch: (row) => swatch(report.colors.categories[row.color].fill),
      },
      ...owner("module", "Module"),
      { key: "total", title: "Bytes", format: bytes },
      { key: "count", title: "Blocks", format: (count) => number(count) },
      { key: "size", title: "Each", format: bytes },
      { key: "phase", title: "Born in", text: true },
      { key: "step", title: "Step", format: (step) => (step < 0 ? "before the trace" : number(step)) },
      ...owner("site", "Line"),
    ],
    rows,
    {
      caption: `Blocks in use at the peak of cuda:${device.device}, equal ones in one row`,
      filter: Object.hasOwn(columns.owners, "module") ? "activation, layers.3, …" : "activation, backward, 6.0 MiB, …",
      order: ["total", "descending"],
    },
  );
  if (rows.length === device.rows_in_all) return table;
  const left = device.rows_in_all - rows.length;
  return [table, el("p", { class: "quiet-text" }, `${plural(left, "row")} of smaller ones are left out.`)];
}
