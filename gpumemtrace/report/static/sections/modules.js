const TREES = {
  "module peak": "the peak, by module",
  "module allocated": "all that was allocated, by module",
  "site peak": "the peak, by call site",
  "site allocated": "all that was allocated, by call site",
};

renderers.modules = (data, root, report) => {
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    put(root, treesOf(device, report));
    for (const [by, groups] of Object.entries(device.groups)) {
      const title = by === "module" ? "Module" : "Line";
      put(
        root,
        el("h3", {}, by === "module" ? "The peak by module" : "The peak by the line that allocated"),
        makeTable(
          [
            { key: "name", title, text: true },
            { key: "bytes", title: "Bytes", format: bytes, bar: (row) => Math.max(row.bytes, 0) / device.bytes },
            { key: "bytes", title: "Part", format: (value) => `${((value / device.bytes) * 100).toFixed(1)} %` },
            { key: "blocks", title: "Blocks", format: (count) => (count === null ? "" : number(count)) },
          ],
          groups,
          {
            caption: `The peak of cuda:${device.device} by ${title.toLowerCase()}`,
            filter: by === "module" ? "layers.3, mlp, …" : "train.py, forward, …",
            order: ["bytes", "descending"],
          },
        ),
      );
    }
  }
};

function treesOf(device, report) {
  const holder = el("div");
  const show = (tree) => {
    const what = TREES[`${tree.by} ${tree.of}`];
    const unit = tree.of === "peak" ? "block" : "allocation";
    holder.replaceChildren(
      makeIcicle(tree.root, report.colors.categories, `Boxes of ${what}, of cuda:${device.device}`, unit),
    );
  };
  const name = `tree-${device.device}`;
  const first = device.trees.find((tree) => tree.by === report.by) ?? device.trees[0];
  const choices = device.trees.map((tree) =>
    el(
      "label",
      {},
      el("input", { type: "radio", name, checked: tree === first, onchange: () => show(tree) }),
      TREES[`${tree.by} ${tree.of}`],
    ),
  );
  show(first);
  const categories = Object.entries(report.colors.categories).map(([category, color]) =>
    el("li", {}, swatch(color.fill), category.replace("_", " ")),
  );
  return el(
    "div",
    {},
    el("fieldset", { class: "choices" }, el("legend", {}, "Show"), choices),
    holder,
    el("ul", { class: "keys bare", "aria-label": "Colours of what a module or line made itself" }, categories),
  );
}
