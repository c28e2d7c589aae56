// The bar over the picture: what the chosen tool can do.

import { post } from "./api.js";
import { $, h, icon } from "./dom.js";
import { findEverything, pickAll } from "./everything.js";
import { predictPath, shown } from "./masks.js";
import { fail } from "./notices.js";
import { setMask } from "./prompts.js";
import { active, set, state, watch } from "./state.js";
import { chooseTool } from "./tools.js";

const coarse = matchMedia("(pointer: coarse)");

/** Keeps the bar in step with the tool. */
export function startOptions() {
  watch(["tool", "sign", "found", "activeId", "results", "objects", "medium"], draw);
  watch(["tool", "medium"], () => {
    for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === state.tool));
    $("view").style.cursor = state.tool === "pan" ? "grab" : state.tool === "brush" || state.tool === "erase" ? "none" : "crosshair";
    if (state.tool === "everything" && state.medium) findEverything();
  });
  watch(["frame"], () => { if (state.tool === "everything" && state.found && state.found.frame !== state.frame) set({ found: null, tool: "point" }); });
  for (const button of document.querySelectorAll("[data-tool]")) button.addEventListener("click", () => chooseTool(button.dataset.tool));
}

let drawn = "";

function draw() {
  const bar = $("options");
  const { tool, sign, found } = state;
  const object = active();
  const key = [tool, sign, found?.masks.length, object?.id, Boolean(object && shown(object)), state.medium?.id].join();
  if (key === drawn) return;
  drawn = key;
  const content = (CONTENT[tool] ?? (() => []))(object);
  const focused = bar.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  bar.replaceChildren(...content);
  bar.classList.toggle("wordy", tool === "everything");
  bar.hidden = !state.medium || !content.length;
  if (focused) bar.querySelector(`[data-name="${focused}"]`)?.focus();
}

const words = (text) => h("p", {}, text);

function signs() {
  const button = (value, kind, name, label, key) => h("button", {
    type: "button", class: kind, "aria-pressed": String(state.sign === value), "data-name": kind, "data-hint": label, "data-key": key, onclick: () => set({ sign: value }),
  }, icon(name), kind === "in" ? "Include" : "Exclude");
  return h("div", { class: "segments", role: "group", "aria-label": "What a click says" },
    button(1, "in", "plus", "Clicks add what they hit", "+"), button(0, "out", "minus", "Clicks take away what they hit (or right-click)", "−"));
}

const CONTENT = {
  point: (object) => [signs(), words(coarse.matches ? "Tap the object" : object ? "Click to correct it, N for the next object" : "Click what you want, or drag a box round it")],
  box: () => [words("Drag a box round the object")],
  brush: (object) => strokes(object),
  erase: (object) => strokes(object),
  everything: () => (state.found
    ? [words(`${state.found.masks.length} masks: click those you want`), h("button", { type: "button", class: "button small", onclick: pickAll }, "Add all"),
      h("button", { type: "button", class: "button small plain", "data-hint": "Search with a finer grid: slower, smaller parts", onclick: () => findEverything("fine", { again: true }) }, "Search finer")]
    : [words("Finding everything in the picture")]),
  pan: () => [words("Drag to move, wheel or pinch to zoom")],
};

function strokes(object) {
  const mask = object && shown(object);
  const size = h("input", { type: "range", min: 4, max: 160, value: state.brush, "aria-label": "Size of the brush", oninput: (event) => set({ brush: Number(event.target.value) }) });
  return [
    h("label", {}, "Size", size),
    mask ? h("button", { type: "button", class: "button small", "data-hint": "Let the model redraw the edges of this mask", onclick: refine }, icon("spark"), "Refine edges") : words(state.tool === "brush" ? "Paint the object" : "Select an object first"),
  ];
}

async function refine() {
  try {
    const { rle } = shown(active());
    const result = await post(predictPath(), { mask: rle, multimask: false });
    setMask(result.masks[result.best].rle, "refine edges");
  } catch (error) {
    fail("stage-notice", error);
  }
}
