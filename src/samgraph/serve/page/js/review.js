// The list of frames to review.

import { $, h } from "./dom.js";
import { frameImage } from "./frames.js";
import { goTo } from "./playback.js";
import { selectObject } from "./prompts.js";
import { state, watch } from "./state.js";

const WORDS = {
  "area jump": "Its size changed at once", "low score": "The model is unsure", disappeared: "It disappeared", "came back": "It came back",
};
const MOST = 200;

/** Keeps the list in step with the timeline. */
export function startReview() {
  watch(["timeline", "objects", "medium"], draw);
  watch(["frame"], mark);
}

let drawn = null;

function draw() {
  const video = state.medium?.kind === "video";
  $("tab-review").hidden = !video;
  if (!video) { $("review-count").textContent = ""; drawn = null; return; }
  const items = state.timeline?.review ?? [];
  const key = JSON.stringify([items, state.objects.map(({ id, name, color }) => [id, name, color])]);
  if (key === drawn) return;
  drawn = key;
  $("review-count").textContent = items.length ? String(items.length) : "";
  const list = items.slice(0, MOST).map((item) => {
    const object = state.objects.find(({ id }) => id === item.object);
    return h("li", {}, h("button", { type: "button", "data-frame": item.frame, onclick: () => { selectObject(item.object); goTo(item.frame); } },
      frameImage(item.frame),
      h("div", {}, h("strong", {}, h("i", { style: { background: object?.color ?? "gray" } }), `${object?.name ?? "Object"}, frame ${item.frame}`), h("span", {}, WORDS[item.reason] ?? item.reason))));
  });
  const more = items.length > MOST ? h("p", { class: "empty" }, `and ${items.length - MOST} more; correct these first.`) : null;
  const nothing = h("p", { class: "empty" }, h("strong", {}, "Nothing to review"), state.timeline?.objects.some(({ tracked }) => tracked.length) ? "No sudden changes and no low scores were found." : "After tracking, frames that are worth a look are listed here.");
  $("pane-review").replaceChildren(...(list.length ? [h("ul", { class: "review" }, list), more].filter(Boolean) : [nothing]));
  mark();
}

function mark() {
  for (const button of document.querySelectorAll("#pane-review [data-frame]")) {
    if (Number(button.dataset.frame) === state.frame) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

/** Seeks to the next or previous frame of the list. */
export function nextReview(direction) {
  const frames = [...new Set((state.timeline?.review ?? []).map(({ frame }) => frame))].sort((a, b) => a - b);
  const frame = direction > 0 ? frames.find((n) => n > state.frame) : frames.findLast((n) => n < state.frame);
  if (frame !== undefined) goTo(frame);
}
