renderers.growth = (data, root, report) => {
  for (const device of data.devices) {
    if (data.devices.length > 1) put(root, el("h3", {}, `cuda:${device.device}`));
    put(
      root,
      el("p", { class: `verdict ${device.verdict}` }, `${capitalized(device.sentence)}.`),
    );
    if (!device.groups.length) {
      put(root, el("p", { class: "quiet-text" }, "Nothing that the trace has seen is in use at the end of a step."));
      continue;
    }
    put(root, el("h3", {}, "In use at the end of each step, by where it was born"));
    if (device.number.length > 1) retainedChart(device, root, report);
    put(
      root,
      makeTable(
        [
          { key: "phase", title: "Born in", text: true, format: phaseName },
          { key: "category", title: "For", text: true, format: (name) => name.replace("_", " ") },
          { key: "first_bytes", title: `After step ${number(device.first_step)}`, format: bytes },
          { key: "last_bytes", title: `After step ${number(device.last_step)}`, format: bytes },
          {
            key: "change",
            title: "Change",
            format: (_, row) => signedBytes(row.last_bytes - row.first_bytes),
          },
        ],
        device.groups.map((row) => ({ ...row, change: row.last_bytes - row.first_bytes })),
        { caption: `In use at the end of steps on cuda:${device.device}` },
      ),
    );
  }
};

function retainedChart(device, root, report) {
  const colorOf = (category) => report.colors.categories[category]?.fill ?? "#999999";
  const layers = device.layers.map((layer) => ({
    label: `${layer.category.replace("_", " ")}, ${phaseName(layer.phase)}`,
    color: () => colorOf(layer.category),
    values: layer.bytes,
  }));
  if (device.others_bytes) {
    layers.push({ label: "others", color: () => "#999999", values: device.others_bytes });
  }
  const view = new TimeView(device.number[0], device.number.at(-1) + 1, 4);
  const chart = makeStackChart({
    label: `In use at the end of each step on cuda:${device.device}. Arrow keys move the cursor, plus and minus zoom, 0 shows all.`,
    x: device.number,
    layers,
    view,
    tickText: stepTicks,
    describe: (at) => `step ${number(device.number[Math.max(countUpTo(device.number, at) - 1, 0)])}`,
    xLabel: "step",
    incrs: STEP_INCREMENTS,
  });
  put(root, chart.root);
  chart.attach();
}
