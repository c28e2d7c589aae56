// What the page says: failures where they happen, results to a screen reader.

import { $, h, icon } from "./dom.js";

/** Says something to a screen reader. */
export function announce(text) {
  $("live").textContent = "";
  requestAnimationFrame(() => { $("live").textContent = text; });
}

function notice(host, mild, parts, actions) {
  const box = h("div", { class: mild ? "notice mild" : "notice", role: mild ? "status" : "alert" },
    icon(mild ? "check" : "warn"),
    h("div", {}, ...parts.filter(Boolean).map((text) => h("p", {}, text)), actions.length ? h("div", { class: "actions" }, actions) : null),
    h("button", { class: "icon small", type: "button", "aria-label": "Dismiss", onclick: () => box.remove() }, icon("close")));
  const place = typeof host === "string" ? $(host) : host;
  place.replaceChildren(box);
  return box;
}

/** Says a failure in a host (an element or its id), with what to do and, where it makes sense, a retry. */
export function fail(host, error, { retry, label = "Try again" } = {}) {
  if (error.name === "AbortError") return;
  const actions = retry ? [h("button", { class: "button small", type: "button", onclick: () => { box.remove(); retry(); } }, label)] : [];
  const box = notice(host, false, [error.message, error.hint], actions);
  box.toggleAttribute("data-away", error.code === "offline");
}

/** Shows a success; disappears by itself. */
export function tell(host, text, actions = []) {
  const box = notice(host, true, [text], actions);
  setTimeout(() => box.remove(), 6000);
}

/** Takes away what was said of a server that could not be reached. */
export const clearAway = () => document.querySelectorAll("[data-away]").forEach((box) => box.remove());

/** Takes away what was said in a host. */
export const clear = (host) => $(host)?.replaceChildren();

let tasks = 0;

/** Shows what is being done while a promise runs. */
export async function busy(text, promise) {
  tasks += 1;
  $("busy-text").textContent = text;
  $("busy").hidden = false;
  try {
    return await promise;
  } finally {
    tasks -= 1;
    if (!tasks) $("busy").hidden = true;
  }
}

/** Changes the words of what is being done. */
export const busyText = (text) => { $("busy-text").textContent = text; };
