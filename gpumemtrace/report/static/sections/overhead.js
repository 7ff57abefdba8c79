renderers.overhead = (data, root) => {
  const per = (value, format) => (value === null ? "not known" : format(value));
  const high = data.ring_high_water;
  put(root, 
    makeList([
      ["File", bytes(data.file_bytes)],
      ["Per event", per(data.bytes_per_event, (value) => `${value.toFixed(2)} bytes`)],
      ["Per hour", per(data.bytes_per_hour, bytes)],
      ["Writer's processor time", per(data.drain_cpu_s, (value) => `${duration(value)}, ${((value / data.duration_s) * 100).toFixed(2)} % of one core`)],
      ["Ring, fullest", high === null || !data.ring_capacity ? "not known" : `${number(high)} of ${number(data.ring_capacity)} records`],
    ]),
  );
};
