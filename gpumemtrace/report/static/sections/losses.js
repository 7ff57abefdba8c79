renderers.losses = (data, root) => {
  if (data.dropped_events) {
    const all = data.events + data.dropped_events;
    const part = ((data.dropped_events / all) * 100).toPrecision(2);
    put(
      root,
      el(
        "p",
        { class: "notice warning" },
        `${number(data.dropped_events)} of ${number(all)} events (${part} %) were lost, in ${plural(data.gaps_in_all, "gap")}. ` +
          "From each gap to the next reading of the allocator's counters the lines are uncertain (hatched above); peaks in between may be higher.",
      ),
    );
  }
  put(
    root,
    makeList([
      ["Events lost", number(data.dropped_events)],
      ...(data.aged.steps
        ? [
            ["Steps in summary", `${number(data.aged.steps)}, from ${number(data.aged.first_step)} to ${number(data.aged.last_step)}: ${number(data.aged.left_out_events)} events left out to keep the file small`],
            ["Steps in full detail", data.detail],
          ]
        : []),
      ["The file", data.complete ? "closed in order" : "not closed: what came last may be missing"],
      ["Check", data.verdict],
      ["Frees of blocks from before the trace or a gap", number(data.unseen_allocs)],
    ]),
  );
  if (data.gaps.length) {
    put(
      root,
      el("h3", {}, "Gaps"),
      makeTable(
        [
          { key: "time_s", title: "From", format: duration },
          { key: "length_s", title: "Lasted", format: duration },
          { key: "phase", title: "Ended in", text: true, format: phaseName },
          { key: "step", title: "Step", format: (step) => number(step) },
          { key: "lost", title: "Events lost", format: (count) => number(count) },
          { key: "alloc_bytes", title: "Asked for in them", format: bytes },
          { key: "frees", title: "Frees in them", format: (count) => number(count) },
        ],
        data.gaps,
        { caption: "Gaps in the trace" },
      ),
    );
    if (data.gaps.length < data.gaps_in_all) {
      put(root, el("p", { class: "quiet-text" }, `Showing ${number(data.gaps.length)} of ${number(data.gaps_in_all)} gaps.`));
    }
  }
  if (data.diagnostics.length) {
    put(root, 
      el("h3", {}, "Findings"),
      makeTable(
        [
          { key: "kind", title: "What", text: true },
          { key: "message", title: "In words", text: true },
        ],
        data.diagnostics,
        { caption: "Findings of the check" },
      ),
    );
  }
};
