renderers.overhead = (data, root) => {
  const per = (value, format) => (value === null ? "not known" : format(value));
  const percent = (part) => (part === null ? "" : `, ${(part * 100).toFixed(2)} % of the run`);
  const { ring_high_water: high, ring_capacity: capacity } = data;
  put(
    root,
    el(
      "p",
      { class: "lead" },
      "Time in the training's own threads is estimated from the number of events; all else was counted.",
    ),
    makeList([
      ["In the training's threads", `about ${duration(data.hook_s)}${percent(data.hook_share)}`],
      ["In the writer's thread", per(data.drain_cpu_s, (value) => duration(value) + percent(data.drain_share))],
      ["File", `${bytes(data.bytes_written)}${data.bytes_per_event === null ? "" : `, ${data.bytes_per_event.toFixed(2)} bytes per event`}`],
      ["Per hour", per(data.bytes_per_hour, bytes)],
      ["Ring, fullest", high === null || !capacity ? "not known" : `${number(high)} of ${number(capacity)} records`],
      ["Events lost", number(data.dropped_events)],
    ]),
  );
};
