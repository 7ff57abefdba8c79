// The data of the page, elements, and the list of renderers. Everything a trace holds goes onto the
// page as text (textContent), never as markup.

/** Undo gpumemtrace/report/packing.py. Resolves to the data with arrays as Float64Array. */
async function unpack(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(raw.buffer).getUint32(0, true);
  const json = new TextDecoder().decode(raw.subarray(4, 4 + length));
  const values = raw.subarray(4 + length);
  return JSON.parse(json, (_, value) =>
    value && typeof value === "object" && Array.isArray(value.$)
      ? decodeArray(values, ...value.$)
      : value,
  );
}

/** Differences, zigzag, LEB128; no bit operators, since those stop at 32 bits. */
function decodeArray(bytes, offset, count, scale) {
  const result = new Float64Array(count);
  let place = offset;
  let value = 0;
  for (let i = 0; i < count; i++) {
    let zigzag = 0;
    let factor = 1;
    let byte;
    do {
      byte = bytes[place++];
      zigzag += (byte & 127) * factor;
      factor *= 128;
    } while (byte & 128);
    value += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    result[i] = value * scale;
  }
  return result;
}

/** An element: el("p", {class: "x", onclick: f}, "text", child, …). Null children are left out. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return put(element, ...children);
}

/** Append children, also in lists; null ones are left out. */
function put(element, ...children) {
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Name of a section -> function(data, root, report): fills the section's element. */
const renderers = {};

/** How many values of a sorted array are at most `limit`. */
function countUpTo(sorted, limit) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
