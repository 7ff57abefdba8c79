// Bytes and durations as gpumemtrace/units.py writes them.

const UNITS = [
  [2 ** 30, "GiB", 3],
  [2 ** 20, "MiB", 1],
  [2 ** 10, "KiB", 1],
  [1, "B", 0],
];

function number(value, decimals = 0) {
  return value.toLocaleString("en-US", {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  });
}

function bytes(value) {
  if (value === null || value === undefined) return "not known";
  const [factor, name, decimals] = UNITS.find(([f]) => Math.abs(value) >= f) ?? UNITS.at(-1);
  return `${number(value / factor, decimals)} ${name}`;
}

function signedBytes(value) {
  return (value > 0 ? "+" : "") + bytes(value).replace("-", "−");
}

function digits(value, count) {
  return String(Number(value.toPrecision(count)));
}

function duration(seconds) {
  if (seconds < 0) return "-" + duration(-seconds);
  // Rounded first: 999.9 us are 1 ms.
  const rounded = Number(seconds.toPrecision(3));
  for (const [limit, factor, name] of [[1e-6, 1e9, "ns"], [1e-3, 1e6, "us"], [1, 1e3, "ms"]]) {
    if (rounded < limit) return `${digits(seconds * factor, 3)} ${name}`;
  }
  if (rounded < 100) return `${digits(seconds, 3)} s`;
  return clock(Math.round(seconds));
}

function clock(seconds) {
  const two = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

/** A moment of the run, as fine as a view of `span` seconds can tell. */
function moment(seconds, span) {
  if (span > 600) return clock(Math.round(seconds));
  const decimals = Math.min(Math.max(Math.ceil(4 - Math.log10(Math.max(span, 1e-9))), 1), 9);
  return `${seconds.toFixed(Math.min(decimals, 7))} s`;
}

function plural(count, one, several = one + "s") {
  return `${number(count)} ${count === 1 ? one : several}`;
}

function place(where) {
  const step = `step ${number(where.step)}`;
  return `${where.phase ? where.phase + ", " : ""}${step}, at ${duration(where.time_s)}`;
}

function capitalized(text) {
  return text[0].toUpperCase() + text.slice(1);
}
