// Light and dark, and what colour a thing has in each.

const themeListeners = [];

function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function startTheme(button) {
  const remembered = recall("gpumemtrace-theme");
  if (remembered) document.documentElement.dataset.theme = remembered;
  const tell = () => {
    button.textContent = currentTheme() === "dark" ? "Light colours" : "Dark colours";
    for (const listener of themeListeners) listener();
  };
  button.addEventListener("click", () => {
    const next = currentTheme() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    remember("gpumemtrace-theme", next);
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
}

// A page from a file may have no storage: then the choice lasts as long as the page.
function recall(key) {
  try {
    const value = localStorage.getItem(key);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // See recall().
  }
}

/** A colour of page.css, by the name of its variable. */
function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Black or white, whichever reads better on `color`. */
function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
}

function swatch(color, dash) {
  const mark = el("span", { class: dash ? "swatch line" : "swatch", "aria-hidden": "true" });
  mark.style.setProperty("--swatch", color);
  if (dash) mark.dataset.dash = dash;
  return mark;
}
