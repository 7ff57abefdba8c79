// What stands above all sections: what ran, where, and whether it was simulated.

function makeHead(data) {
  return el(
    "header",
    { class: "head" },
    el("h1", {}, data.title),
    el("p", { class: "subtitle" }, subtitle(data).join(" · ")),
    data.simulated ? simulatedNotice(data.simulated) : null,
  );
}

function subtitle(data) {
  const summarised = data.summarised_steps ? ` (${number(data.summarised_steps)} in summary only)` : "";
  const parts = [plural(data.steps, "step") + summarised, duration(data.duration_s), plural(data.events, "event")];
  const names = [...new Set(data.devices.filter(Boolean))];
  parts.push(...names);
  if (data.torch) parts.push(`torch ${data.torch}`);
  if (data.world_size > 1) parts.push(`rank ${data.rank} of ${data.world_size}`);
  return parts;
}

function simulatedNotice(simulated) {
  const entries = simulated.approximations.map(({ name, calls, what }) =>
    el(
      "li",
      {},
      el("strong", {}, name),
      calls === null || calls === undefined ? "" : ` (${plural(calls, "call")})`,
      what ? `: ${what}` : "",
    ),
  );
  return el(
    "div",
    { class: "notice warning", id: "simulated" },
    el("p", {}, el("strong", {}, `Simulated ${simulated.gpu.replace(/^Simulated /, "")}: there was no GPU.`)),
    entries.length
      ? el(
          "details",
          { open: entries.length <= 4 },
          el("summary", {}, `What was approximated (${entries.length})`),
          el("ul", {}, entries),
        )
      : el("p", {}, "Nothing was approximated."),
  );
}
