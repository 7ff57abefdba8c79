renderers.losses = (data, root) => {
  put(root, 
    makeList([
      ["Events lost", number(data.dropped_events)],
      ["The file", data.complete ? "closed in order" : "not closed: what came last may be missing"],
      ["Check", data.verdict],
      ["Frees of blocks from before the trace or a gap", number(data.unseen_allocs)],
    ]),
  );
  if (data.gaps.length) {
    put(root, 
      el("h3", {}, "Gaps"),
      makeTable(
        [
          { key: "time_s", title: "At", format: duration },
          { key: "lost", title: "Events lost", format: (count) => number(count) },
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
