// Changes to the document: objects and their prompts. A prompt is never changed, only replaced:
// {points: [[x, y]], labels: [1 | 0], box: [x0, y0, x1, y1] | null, mask: RLE | null}.

import { commit, replace } from "./history.js";
import { shown } from "./masks.js";
import { active, set, state } from "./state.js";

export const COLORS = ["#2e90fa", "#f97316", "#12b76a", "#d444f1", "#eab308", "#f43f5e", "#06b6d4", "#84cc16", "#8b5cf6", "#fb7aa8", "#0ea5a4", "#c2703d"];

const earlier = new WeakMap(); // Prompt -> the prompt it was made from

/** The prompt that another was made from, or undefined. */
export const promptBefore = (prompt) => earlier.get(prompt);
/** The prompt of an object on a frame, or null. */
export const promptOf = (object, frame = state.frame) => object?.prompts[frame] ?? null;
/** Whether a prompt is a mask and nothing else: it is shown as it is. */
export const isMaskOnly = (prompt) => Boolean(prompt.mask) && !prompt.points.length && !prompt.box;

const EMPTY = { points: [], labels: [], box: null, mask: null };

/** A prompt made from another; what follows from it is shown until its own result is there. */
export function makePrompt(from, change) {
  const prompt = Object.freeze({ ...(from ?? EMPTY), ...change });
  if (from) earlier.set(prompt, from);
  return prompt;
}

/** A new object with a free id, name and colour. */
export function makeObject(change = {}) {
  const id = Math.max(0, ...state.objects.map((object) => object.id)) + 1;
  const used = new Set(state.objects.map((object) => object.color));
  const color = COLORS.find((candidate) => !used.has(candidate)) ?? COLORS[(id - 1) % COLORS.length];
  return { id, name: `Object ${id}`, color, visible: true, prompts: {}, choice: {}, ...change };
}

function changed(id, change) {
  return state.objects.map((object) => (object.id === id ? { ...object, ...(typeof change === "function" ? change(object) : change) } : object));
}

/** Prompts of another browser on a frame are known by their mask alone: clicks start from it. */
function promptElsewhere(object, frame) {
  const lane = state.timeline?.objects.find(({ id }) => id === object.id);
  const mask = lane?.prompts.includes(frame) ? shown(object, frame)?.rle : null;
  return mask ? makePrompt(null, { mask }) : null;
}

/** Gives the active object a prompt on this frame, or starts an object with it. */
export function setPrompt(label, change) {
  const frame = state.frame;
  const object = active();
  if (!object) {
    const made = makeObject({ prompts: { [frame]: makePrompt(null, change) } });
    commit(label, { objects: [...state.objects, made], activeId: made.id });
    return;
  }
  const prompt = makePrompt(promptOf(object, frame) ?? promptElsewhere(object, frame), change);
  const { [frame]: _, ...choice } = object.choice;
  commit(label, { objects: changed(object.id, { prompts: { ...object.prompts, [frame]: prompt }, choice, visible: true }) });
}

/** A click: label 1 inside, 0 outside. */
export function addPoint(x, y, label) {
  const prompt = promptOf(active());
  setPrompt(label ? "point inside" : "point outside", { points: [...(prompt?.points ?? []), [x, y]], labels: [...(prompt?.labels ?? []), label] });
}

/** Removes the point at an index; without points the prompt of the frame is removed. */
export function removePoint(index) {
  const object = active(), prompt = promptOf(object);
  const without = (list) => list.filter((_, i) => i !== index);
  if (prompt.points.length === 1 && !prompt.box && !prompt.mask) return clearFrame(object.id, state.frame);
  setPrompt("remove point", { points: without(prompt.points), labels: without(prompt.labels) });
}

/** A box, which replaces earlier clicks of the object on this frame. */
export const setBox = (box) => setPrompt("box", { ...EMPTY, box });

/** A mask made by hand or picked; it replaces all other prompts on this frame. */
export const setMask = (mask, label = "paint") => setPrompt(label, { ...EMPTY, mask });

/** Adds objects that are masks: picked in everything mode. */
export function addMasks(masks) {
  let { objects } = state;
  for (const { rle } of masks) {
    const prompts = { [state.frame]: makePrompt(null, { ...EMPTY, mask: rle }) };
    const id = Math.max(0, ...objects.map((object) => object.id)) + 1;
    const color = COLORS[(id - 1) % COLORS.length];
    objects = [...objects, { id, name: `Object ${id}`, color, visible: true, prompts, choice: {} }];
  }
  commit(masks.length === 1 ? "pick mask" : "pick masks", { objects, activeId: objects.at(-1)?.id ?? null });
}

/** Removes the prompts of an object on a frame. */
export function clearFrame(id, frame) {
  const object = state.objects.find((candidate) => candidate.id === id);
  const { [frame]: gone, ...prompts } = object.prompts;
  if (!gone) return;
  const image = state.medium.kind === "image";
  if (image) commit("clear", { objects: state.objects.filter((other) => other.id !== id), activeId: null });
  else commit("clear frame", { objects: changed(id, { prompts }) });
}

/** Takes away an object. */
export function removeObject(id) {
  const at = state.objects.findIndex((object) => object.id === id);
  const objects = state.objects.filter((object) => object.id !== id);
  const activeId = state.activeId === id ? objects[Math.min(at, objects.length - 1)]?.id ?? null : state.activeId;
  commit("remove object", { objects, activeId });
}

/** Selects an object; null: the next click starts one. */
export const selectObject = (id) => set({ activeId: id });

/** Names or colours an object; `typing` makes no step of history. */
export function describeObject(id, change, { typing = false } = {}) {
  const objects = changed(id, change);
  if (typing) replace({ objects });
  else commit("name" in change ? "rename" : "colour", { objects });
}

/** Shows or hides an object. */
export const showObject = (id, visible) => replace({ objects: changed(id, { visible }) });

/** Chooses among the candidate masks of an object on this frame. */
export function choose(id, index) {
  commit("choose mask", { objects: changed(id, (object) => ({ choice: { ...object.choice, [state.frame]: index } })) });
}
