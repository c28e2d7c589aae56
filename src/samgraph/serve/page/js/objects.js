// The list of objects, the candidates of the active object, and how masks are shown.

import { paintThumbnail } from "./canvas.js";
import { $, h, icon, iconButton } from "./dom.js";
import { candidates, shown } from "./masks.js";
import { openSample } from "./opening.js";
import { choose, describeObject, removeObject, selectObject, showObject } from "./prompts.js";
import { active, setting, set, state, watch } from "./state.js";
import { knownOf } from "./video.js";

const LOW = 0.6;

/** Keeps the panel in step with the document. */
export function startObjects() {
  watch(["objects", "activeId", "results", "frame", "medium", "tool", "timeline"], drawList);
  watch(["objects", "activeId", "results", "frame", "medium", "playing"], drawCandidates);
  for (const id of ["new-object", "next-object"]) $(id).addEventListener("click", newObject);
  settingsFields();
}

/** The next click starts an object. */
export function newObject() {
  selectObject(null);
  if (!["point", "box", "brush"].includes(state.tool)) set({ tool: "point" });
}

const rows = new Map();

function drawList() {
  const list = $("objects");
  for (const [id, row] of rows) if (!state.objects.some((object) => object.id === id)) { row.remove(); rows.delete(id); }
  state.objects.forEach((object, i) => {
    if (!rows.has(object.id)) rows.set(object.id, makeRow(object.id));
    const row = rows.get(object.id);
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
    updateRow(row, object);
  });
  drawEmpty();
}

function drawEmpty() {
  const box = $("objects-empty");
  const starting = state.activeId === null && state.objects.length;
  $("next-object").hidden = !state.objects.length || state.activeId === null;
  box.hidden = !state.medium || (state.objects.length > 0 && !starting);
  if (starting) box.replaceChildren(h("strong", {}, "Next object"), "Click it in the picture.");
  else box.replaceChildren(h("strong", {}, "Nothing selected yet"), "Click something in the picture. Its mask appears here, ready to be named, corrected and exported.", ...sampleClips());
}

/** Beside a sample picture: the samples that are clips, a click away. */
function sampleClips() {
  if (state.medium?.kind !== "image" || !state.medium.source.sample) return [];
  const clips = state.info.samples.filter(({ kind }) => kind === "video");
  return clips.map((sample) => h("div", { class: "review" }, h("button", { type: "button", "data-clip": sample.id, onclick: () => openSample(sample) },
    h("img", { src: sample.thumbnail, alt: "" }), h("div", {}, h("strong", {}, sample.title), h("span", {}, "Or try a video: click, then Track")))));
}

const find = (id) => state.objects.find((object) => object.id === id);

function makeRow(id) {
  const color = h("input", {
    type: "color",
    oninput: (event) => describeObject(id, { color: event.target.value }, { typing: true }),
    onchange: (event) => describeObject(id, { color: event.target.value }),
  });
  let typed = null;
  const name = h("input", {
    class: "name", spellcheck: "false", maxlength: 100, "aria-label": "Name",
    onfocus: (event) => { typed = event.target.value; selectObject(id); },
    onkeydown: (event) => { if (event.key === "Enter") event.target.blur(); if (event.key === "Escape") { event.target.value = typed; event.target.blur(); } },
    onblur: (event) => {
      const text = event.target.value.trim() || typed;
      event.target.value = text;
      if (find(id) && text !== find(id).name) describeObject(id, { name: text });
    },
  });
  const eye = iconButton("eye", "Show", () => showObject(id, !find(id).visible), { class: "small" });
  const bin = iconButton("trash", "Remove", () => removeObject(id), { class: "small" });
  const row = h("li", { class: "object", onclick: () => { if (find(id)) selectObject(id); } },
    h("label", { class: "swatch", "data-hint": "Colour" }, color), name, h("span", { class: "score" }), eye, bin);
  Object.assign(row, { parts: { color, name, eye, bin, score: row.querySelector(".score") } });
  return row;
}

function updateRow(row, object) {
  const { color, name, eye, bin, score } = row.parts;
  row.toggleAttribute("data-object", true);
  if (object.id === state.activeId) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
  row.dataset.object = object.id;
  color.parentElement.style.background = object.color;
  if (color.value !== object.color) color.value = object.color;
  color.setAttribute("aria-label", `Colour of ${object.name}`);
  if (document.activeElement !== name && name.value !== object.name) name.value = object.name;
  eye.setAttribute("aria-label", object.visible ? `Hide ${object.name}` : `Show ${object.name}`);
  eye.dataset.hint = object.visible ? "Hide" : "Show";
  if (eye.dataset.icon !== String(object.visible)) eye.replaceChildren(icon(object.visible ? "eye" : "eye-off"));
  eye.dataset.icon = String(object.visible);
  bin.setAttribute("aria-label", `Remove ${object.name}`);
  const text = scoreText(object);
  if (score.textContent !== text.words) score.textContent = text.words;
  score.hidden = !text.words;
  score.classList.toggle("low", text.low);
  score.title = text.title;
}

/** What the row says of an object on this frame: its score, or that it is absent. */
function scoreText(object) {
  const known = state.medium?.kind === "video" ? knownOf(object) : shown(object);
  if (!known) return { words: "", low: false, title: "" };
  if (known.present === false) return { words: "absent", low: true, title: "Occluded or absent on this frame" };
  if (known.score == null) return { words: "by hand", low: false, title: "Painted or picked" };
  return { words: known.score.toFixed(2), low: isLow(object, known.score), title: "The model's own estimate of the mask's quality, 0 to 1" };
}

/** Whether a score is low: for an object of a tracked video, as its lane says. */
function isLow(object, score) {
  const lane = state.timeline?.objects.find(({ id }) => id === object.id);
  return lane?.tracked.length ? lane.low.some(([from, to]) => from <= state.frame && state.frame <= to) : score < LOW;
}

let drawnFor = null;

function drawCandidates() {
  const object = active();
  const offer = object && !state.playing && state.medium ? candidates(object) : null;
  $("candidates").hidden = !offer || offer.masks.length < 2;
  if ($("candidates").hidden) { drawnFor = null; return; }
  const key = [offer.masks, offer.chosen, object.color];
  if (drawnFor?.every((part, i) => part === key[i])) return;
  drawnFor = key;
  const had = $("candidates").contains(document.activeElement);
  const tiles = offer.masks.map((mask, i) => {
    const canvas = h("canvas", { width: 168, height: 126 });
    requestAnimationFrame(() => paintThumbnail(canvas, mask.rle, object.color));
    return h("button", {
      type: "button", class: "candidate", role: "radio", "aria-checked": String(i === offer.chosen), tabindex: i === offer.chosen ? 0 : -1,
      "aria-label": `Mask ${i + 1}, score ${mask.score.toFixed(2)}`, "data-key": String(i + 1), "data-hint": `Mask ${i + 1}`, onclick: () => choose(object.id, i),
    }, canvas, h("span", {}, h("kbd", {}, String(i + 1)), mask.score.toFixed(2)));
  });
  $("candidates").replaceChildren(h("h2", {}, "What the click may mean"), h("div", { class: "row", role: "radiogroup", "aria-label": "Candidate masks", "data-roving": true }, tiles));
  if (had) tiles[offer.chosen]?.focus();
}

/** Chooses a candidate of the active object by its number; says whether there was one. */
export function chooseCandidate(index) {
  const object = active();
  const offer = object && candidates(object);
  if (!offer || index >= offer.masks.length || offer.masks.length < 2) return false;
  choose(object.id, index);
  return true;
}

function settingsFields() {
  $("opacity").addEventListener("input", (event) => setting({ opacity: Number(event.target.value) / 100 }));
  for (const [id, name] of [["outlines", "outlines"], ["show-prompts", "prompts"], ["hover", "hover"]]) {
    $(id).addEventListener("change", (event) => setting({ [name]: event.target.checked }));
    watch(["settings"], () => { $(id).checked = state.settings[name]; });
  }
  watch(["settings"], () => {
    $("opacity").value = Math.round(state.settings.opacity * 100);
    $("opacity-value").textContent = `${Math.round(state.settings.opacity * 100)} %`;
  });
}
