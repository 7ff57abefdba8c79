// Puts the sections on the page, in the order of the data.

function renderSection({ name, title, data }, report) {
  const root = el("section", { id: name, "aria-labelledby": `${name}-title` });
  root.append(el("h2", { id: `${name}-title` }, title));
  document.getElementById("main").append(root);
  if (data.unknown) root.append(el("p", { class: "unknown" }, data.unknown));
  else renderers[name](data, root, report);
}

function renderContents(sections) {
  const links = sections.map(({ name, title }) => {
    const link = el("a", { href: `#${name}` }, title);
    return [name, link, el("li", {}, link)];
  });
  document.getElementById("contents").append(...links.map(([, , item]) => item));
  // The section that the reader is at is marked in the list.
  const seen = new Map();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) seen.set(entry.target.id, entry.isIntersecting);
      const current = sections.find(({ name }) => seen.get(name));
      for (const [name, link] of links) {
        if (name === current?.name) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-15% 0px -60% 0px" },
  );
  for (const { name } of sections) observer.observe(document.getElementById(name));
}

async function start() {
  startTheme(document.getElementById("theme"));
  const data = await unpack(document.getElementById("data").textContent);
  const report = {
    ...data,
    titles: Object.fromEntries(data.sections.map(({ name, title }) => [name, title])),
  };
  document.getElementById("main").append(makeHead(data.head));
  for (const section of data.sections) renderSection(section, report);
  renderContents(data.sections);
  document.getElementById("footer").append(
    `Made by gpumemtrace ${data.gpumemtrace}. Charts: uPlot, © Leon Sorokin, MIT licence. This page loads nothing from outside.`,
  );
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  return report;
}

// For tests and the curious: `await gpumemtrace`.
window.gpumemtrace = start();
