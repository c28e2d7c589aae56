// The effects tab: tiles that show each effect on this picture, its target and numbers.

import { picture, visibleMasks } from "./canvas.js";
import { $, debounce, h } from "./dom.js";
import { compose, defaultTarget } from "./effects.js";
import { set, state, watch } from "./state.js";

const TILE_PIXELS = 168 * 126;
const NAMES = { strength: "Strength", width: "Width", size: "Block size", opacity: "Opacity" };

/** Keeps the tab in step. */
export function startEffects() {
  watch(["info", "effect"], draw);
  watch(["objects", "results", "frame", "medium", "info"], redrawTiles);
}

function draw() {
  const pane = $("pane-effects");
  if (!state.info) return;
  const focused = pane.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const tile = (name, title) => h("button", {
    type: "button", class: "effect", role: "radio", "data-name": `effect-${name}`, "data-effect": name, "aria-checked": String((state.effect?.name ?? "none") === name),
    tabindex: (state.effect?.name ?? "none") === name ? 0 : -1,
    onclick: () => set({ effect: name === "none" ? null : { name, target: defaultTarget(name) } }),
  }, h("canvas", { width: 168, height: 126 }), title);
  const tiles = [tile("none", "None"), ...state.info.effects.map(({ name, title }) => tile(name, title))];
  pane.replaceChildren(
    h("div", { class: "effects", role: "radiogroup", "aria-label": "Effect", "data-roving": true }, tiles),
    state.effect ? options() : h("p", { class: "empty" }, "Effects are shown live on what is selected, and are part of pictures and videos you export."));
  if (focused) pane.querySelector(`[data-name="${focused}"]`)?.focus();
  redrawTiles();
}

function options() {
  const known = state.info.effects.find(({ name }) => name === state.effect.name);
  const change = (patch) => set({ effect: { ...state.effect, ...patch } });
  const target = (value, text) => h("button", { type: "button", "data-name": `target-${value}`, "aria-pressed": String(state.effect.target === value), onclick: () => change({ target: value }) }, text);
  const parts = [];
  if (known.name !== "outline") {
    parts.push(h("h2", {}, known.name === "cutout" ? "Take away" : "Applies to"),
      h("div", { class: "segments", role: "group", "aria-label": "What the effect changes" }, target("object", "Objects"), target("background", "Background")));
  }
  for (const param of known.params) {
    const now = state.effect[param.name] ?? param.default;
    const fine = param.max - param.min <= 1;
    const words = (value) => (fine ? `${Math.round(value * 100)} %` : `${value} px`);
    const output = h("output", {}, words(now));
    parts.push(h("label", { class: "field" }, h("span", {}, NAMES[param.name] ?? param.name), h("input", {
      type: "range", min: param.min, max: param.max, step: fine ? 0.05 : 1, value: now, "data-name": `param-${param.name}`,
      oninput: (event) => { output.textContent = words(Number(event.target.value)); quiet({ [param.name]: Number(event.target.value) }); },
    }), output));
  }
  if (["outline", "colour"].includes(known.name)) parts.push(colorField(change));
  return h("div", { class: "effect-options" }, parts);
}

/** A change from a slider: the image is updated, the panel is not redrawn during the drag. */
function quiet(patch) {
  state.effect = { ...state.effect, ...patch };
  set({ results: state.results + 1 });
}

function colorField(change) {
  const own = !state.effect.color;
  return h("label", { class: "switch" }, h("span", {}, "Colours of the objects"), h("input", {
    type: "checkbox", role: "switch", checked: own, "data-name": "own-colour",
    onchange: (event) => change({ color: event.target.checked ? undefined : "#ffffff" }),
  }), own ? null : h("input", { type: "color", value: state.effect.color, "aria-label": "Colour", onchange: (event) => change({ color: event.target.value }) }));
}

const redrawTiles = debounce(() => {
  const source = state.medium && !$("pane-effects").hidden && !state.playing ? picture() : null;
  if (!source) return;
  const masks = visibleMasks();
  for (const tile of document.querySelectorAll("[data-effect]")) {
    const canvas = tile.querySelector("canvas"), context = canvas.getContext("2d");
    const name = tile.dataset.effect;
    const chosen = state.effect?.name === name ? state.effect : { name, target: defaultTarget(name) };
    const small = compose(source, masks, name === "none" ? null : louder(chosen), TILE_PIXELS * 2);
    const scale = Math.max(canvas.width / small.width, canvas.height / small.height);
    const [width, height] = [small.width * scale, small.height * scale];
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(small, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
  }
}, 120);

/** On a tile, effects measured in pixels would be too small to be seen. */
function louder(effect) {
  const factor = Math.max(1, Math.sqrt((state.medium.width * state.medium.height) / (TILE_PIXELS * 6)));
  const known = state.info.effects.find(({ name }) => name === effect.name).params[0];
  return known && known.max > 1 ? { ...effect, [known.name]: (effect[known.name] ?? known.default) * factor } : effect;
}

/** Draws the tiles: the tab was opened. */
export const showEffects = () => redrawTiles();
