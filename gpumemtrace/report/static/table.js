// Tables that can be sorted by each column, and filtered where they are long.

const ROWS_AT_FIRST = 20;

/**
 * columns: [{key, title, format(value, row), text: true for words, swatch(row): an element before
 * it, bar(row): a part of 1 to show}]; rows: objects.
 * options: {caption, filter: placeholder of a filter, order: [key, "ascending" | "descending"],
 * strong(row): whether it stands out}
 */
function makeTable(columns, rows, options = {}) {
  let [orderKey, direction] = options.order ?? [null, "ascending"];
  let wanted = "";
  let limit = ROWS_AT_FIRST;
  const body = el("tbody");
  const status = el("p", { class: "quiet-text", role: "status" });
  const more = el("button", { type: "button", onclick: () => ((limit *= 10), update()) });
  const heads = columns.map((column) => {
    const button = el("button", { type: "button", onclick: () => sortBy(column) }, column.title);
    return el("th", { scope: "col", class: column.text ? "text" : null }, button);
  });
  const table = el(
    "table",
    {},
    el("caption", { class: options.showCaption ? null : "unseen" }, options.caption ?? ""),
    el("thead", {}, el("tr", {}, heads)),
    body,
  );

  function sortBy(column) {
    const turn = { ascending: "descending", descending: "ascending" };
    // Figures are asked for from the top, words from A.
    direction = orderKey === column.key ? turn[direction] : column.text ? "ascending" : "descending";
    orderKey = column.key;
    update();
  }

  function cellText(column, row) {
    const value = row[column.key];
    if (column.format) return column.format(value, row);
    return value === null || value === undefined ? "" : String(value);
  }

  function ordered() {
    const column = columns.find(({ key }) => key === orderKey);
    const lower = wanted.toLowerCase();
    const kept = rows.filter(
      (row) => !lower || columns.some((c) => cellText(c, row).toLowerCase().includes(lower)),
    );
    if (!column) return kept;
    const sign = direction === "ascending" ? 1 : -1;
    return kept.sort((a, b) => sign * compare(a[column.key], b[column.key]));
  }

  function update() {
    const found = ordered();
    const shown = found.slice(0, limit);
    body.replaceChildren(
      ...shown.map((row) =>
        el(
          "tr",
          { class: options.strong?.(row) ? "strong" : null },
          columns.map((column, i) => {
            const attributes = { class: column.text ? "text" : null };
            const tag = i === 0 ? "th" : "td";
            if (i === 0) attributes.scope = "row";
            const swatch = column.swatch?.(row);
            const cell = el(tag, attributes, swatch ?? null, cellText(column, row));
            if (column.bar) {
              cell.classList.add("meter");
              cell.style.setProperty("--part", `${Math.min(column.bar(row), 1) * 100}%`);
            }
            return cell;
          }),
        ),
      ),
    );
    heads.forEach((head, i) => {
      if (columns[i].key === orderKey) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    const part = shown.length < found.length ? `Showing ${number(shown.length)} of ` : "";
    const matching = wanted ? `${plural(found.length, "row")} with “${wanted}”` : "";
    status.textContent = part || wanted ? part + (matching || plural(found.length, "row")) : "";
    more.textContent = `Show ${number(Math.min(limit * 9, found.length - shown.length))} more`;
    more.hidden = shown.length >= found.length;
  }

  update();
  const filter = options.filter
    ? el(
        "label",
        { class: "filter" },
        el("span", {}, "Filter"),
        el("input", {
          type: "search",
          placeholder: options.filter,
          oninput: (event) => ((wanted = event.target.value.trim()), update()),
        }),
      )
    : null;
  // Wide tables scroll by themselves; focus makes that possible from the keyboard.
  const scroller = el("div", { class: "scroller", tabindex: "0", role: "region" }, table);
  scroller.setAttribute("aria-label", options.caption ?? "Table");
  return el("div", { class: "table" }, filter, scroller, status, more);
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === "string" || typeof b === "string") {
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }
  return a - b;
}

/** Names and texts, side by side. */
function makeList(rows) {
  return el(
    "dl",
    { class: "facts" },
    rows.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
  );
}
