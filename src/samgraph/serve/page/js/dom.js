// Small words for making elements.

/** The element with an id. */
export const $ = (id) => document.getElementById(id);

/**
 * An element: h("button", {class: "icon", onclick: f, "aria-label": "Undo"}, "text", child).
 * Functions become listeners, `true` and `false` become attributes that are there or not.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/**
 * Puts the icons into the page, under the ids `icon-NAME`: they are then there without the server, too. Until they
 * are, and where they cannot be had, they are parts of icons.svg.
 */
export async function loadIcons() {
  const response = await fetch("static/icons.svg").catch(() => null);
  if (!response?.ok || $("icon-open")) return;
  const sheet = new DOMParser().parseFromString(await response.text(), "image/svg+xml").documentElement;
  for (const symbol of sheet.querySelectorAll("symbol")) symbol.id = `icon-${symbol.id}`;
  sheet.setAttribute("hidden", "");
  document.body.append(document.adoptNode(sheet));
  for (const use of document.querySelectorAll("use")) use.setAttribute("href", use.getAttribute("href").replace("static/icons.svg#", "#icon-"));
}

/** An icon of icons.svg. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `${$(`icon-${name}`) ? "#icon-" : "static/icons.svg#"}${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/** A button that shows an icon alone, named for screen readers and on hover. */
export function iconButton(name, label, onclick, more = {}) {
  const { class: extra = "", ...rest } = more;
  return h("button", { type: "button", class: `icon ${extra}`, "aria-label": label, "data-hint": label, onclick, ...rest }, icon(name));
}

/** `1:05.2` of seconds; hours where there are any. */
export function clock(seconds) {
  const s = Math.max(0, seconds);
  const hours = Math.floor(s / 3600), minutes = Math.floor(s / 60) % 60;
  const rest = (s % 60).toFixed(1).padStart(4, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** How long something still takes, in words: `12 s`, `3 min`. */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** `2.4 MB` of bytes. */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < 4) { count /= 1000; unit += 1; }
  return `${count < 10 && unit ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

/** Calls `f` once, `ms` after the last of many calls. */
export function debounce(f, ms) {
  let timer = 0;
  return (...values) => { clearTimeout(timer); timer = setTimeout(() => f(...values), ms); };
}
