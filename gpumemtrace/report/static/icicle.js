// A tree as boxes: below each its parts, as wide as their bytes. A click, or Enter, shows one of
// them at full width; the arrow keys go from box to box.

const ICICLE_ROW = 22;
const ICICLE_NARROW = 14; // pixels: no text fits
const ICICLE_HELP =
  "Arrow keys go to the parts, to the neighbours and back up; Enter shows a box at full width, 0 shows all.";

/** root: {name, bytes, blocks, category, children}; colors: category -> {fill}; unit: of blocks. */
function makeIcicle(root, colors, label, unit) {
  const holder = el("div", { class: "icicle" });
  const readout = el("p", { class: "icicle-readout", role: "status" });
  const nodes = [];
  let shown = 0;
  let current = 0;

  function add(node, up) {
    const place = nodes.length;
    nodes.push({ ...node, up, level: up === null ? 0 : nodes[up].level + 1, parts: [] });
    for (const child of node.children ?? []) {
      if (child.bytes > 0) nodes[place].parts.push(add(child, place));
    }
    return place;
  }
  add(root, null);

  /** The boxes that have a place when box `shown` has the full width: its ancestors and its parts. */
  function layOut() {
    const placed = [];
    const rows = [];
    for (let up = nodes[shown].up; up !== null; up = nodes[up].up) placed.push([up, 0, 1]);
    const place = (at, left, width) => {
      placed.push([at, left, width]);
      const total = nodes[at].parts.reduce((sum, part) => sum + nodes[part].bytes, 0);
      let from = left;
      for (const part of nodes[at].parts) {
        const part_width = (nodes[part].bytes / total) * width;
        if (part_width > 5e-4) place(part, from, part_width);
        from += part_width;
      }
    };
    place(shown, 0, 1);
    for (const [at] of placed) rows.push(nodes[at].level);
    holder.style.height = `${(Math.max(...rows) + 1) * ICICLE_ROW}px`;
    holder.replaceChildren(...placed.map(([at, left, width]) => box(at, left, width)));
    mark();
  }

  function box(at, left, width) {
    const node = nodes[at];
    const name = node.category ? node.name.replace("_", " ") : node.name;
    // Where both do not fit, the size is on a second line, which is not seen.
    const isWide = width * (holder.clientWidth || 900) > ICICLE_NARROW;
    const text = isWide ? `${name} ${bytes(node.bytes).replace(" ", "\u00a0")}` : "";
    const mine = el("div", {
      class: node.parts.length ? "box" : "box leaf",
      title: describe(at),
      onclick: () => show(at),
      onpointerenter: () => ((current = at), mark()),
    }, text);
    mine.dataset.at = at;
    mine.style.left = `${left * 100}%`;
    mine.style.width = `${width * 100}%`;
    mine.style.top = `${node.level * ICICLE_ROW}px`;
    const color = node.category ? colors[node.category]?.fill : null;
    if (color) {
      mine.style.background = color;
      mine.style.color = inkOn(color);
    }
    return mine;
  }

  function describe(at) {
    const way = [];
    for (let up = at; up !== null && up !== 0; up = nodes[up].up) way.unshift(nodes[up].name);
    const node = nodes[at];
    const share = `${((node.bytes / root.bytes) * 100).toFixed(1)} %`;
    return [way.join(" › ") || node.name, bytes(node.bytes), share, plural(node.blocks, unit)].join(" · ");
  }

  function mark() {
    for (const one of holder.children) one.classList.toggle("current", Number(one.dataset.at) === current);
    readout.textContent = describe(current);
  }

  function show(at) {
    shown = nodes[at].parts.length || at === 0 ? at : nodes[at].up;
    current = at;
    layOut();
  }

  const move = (choose) => () => {
    const next = choose(nodes[current]);
    if (next === undefined || next === null) return;
    current = next;
    if (!holder.querySelector(`[data-at="${current}"]`)) show(current);
    mark();
  };
  const beside = (step) =>
    move((node) => {
      if (node.up === null) return null;
      const all = nodes[node.up].parts;
      return all[all.indexOf(current) + step];
    });
  focusable(holder, `${label}. ${ICICLE_HELP}`, {
    ArrowDown: move((node) => node.parts[0]),
    ArrowUp: move((node) => node.up),
    ArrowRight: beside(1),
    ArrowLeft: beside(-1),
    Enter: () => show(current),
    0: () => show(0),
    Escape: () => show(0),
  });
  layOut();
  return el("div", {}, holder, readout);
}
