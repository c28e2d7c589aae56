// A picture: prompts go to `predict`, results are kept per prompt, so that undo needs no server.

import { post, send } from "./api.js";
import { announce, fail } from "./notices.js";
import { failOnMedium } from "./opening.js";
import { isMaskOnly, promptBefore, promptOf } from "./prompts.js";
import { measure } from "./rle.js";
import { debounce } from "./dom.js";
import { set, state } from "./state.js";

const results = new WeakMap(); // Prompt -> {masks: [{rle, score, box, area}], best, refine}
const refined = new WeakMap(); // Prompt -> the index of the mask that was chosen by hand
let failed = new WeakSet(); // prompts that are not asked again until something changes
let working = false;

export const address = () => `images/${state.medium.id}`;

/** What is known of a prompt, from it or from the prompt it was made from. */
export function resultOf(prompt) {
  for (let at = prompt; at; at = promptBefore(at)) {
    if (isMaskOnly(at)) return { masks: [{ rle: at.mask, score: null, ...measured(at.mask) }], best: 0, byHand: true };
    const result = results.get(at);
    if (result) return result;
  }
  return null;
}

const sizes = new WeakMap();
function measured(rle) {
  if (!sizes.has(rle)) sizes.set(rle, measure(rle));
  return sizes.get(rle);
}

/** A prompt as requests carry it: what is empty is null. */
export const plain = ({ points, labels, box, mask }) => ({
  points: points.length ? points : null, labels: points.length ? labels : null, box, mask,
});

/** The body of a predict request; it refines the mask that was shown before, also one chosen by hand. */
function predictBody(prompt) {
  const before = promptBefore(prompt);
  const known = before && results.get(before);
  const chosen = before && refined.get(before);
  const refine = known?.refine && !prompt.mask ? `${known.refine}${chosen == null ? "" : `.${chosen}`}` : null;
  return { ...plain(prompt), multimask: null, refine };
}

/** Asks for the masks of every prompt that has none yet; one request at a time, the newest prompts only. */
export async function sync() {
  for (const object of state.objects) {
    const prompt = promptOf(object, 0);
    if (prompt && object.choice[0] != null) refined.set(prompt, object.choice[0]);
  }
  failed = new WeakSet();
  if (working) return;
  working = true;
  for (let prompt; (prompt = waiting());) {
    const { id } = state.medium;
    try {
      const result = await post(`${address()}/predict`, predictBody(prompt));
      if (state.medium?.id !== id) continue;
      results.set(prompt, result);
      set({ results: state.results + 1 });
      say(result);
    } catch (error) {
      failed.add(prompt);
      if (state.medium?.id === id) failOnMedium(error, sync);
    }
  }
  working = false;
  store();
}

function waiting() {
  if (state.medium?.kind !== "image") return null;
  const prompts = state.objects.map((object) => promptOf(object, 0));
  return prompts.find((prompt) => prompt && !isMaskOnly(prompt) && !results.has(prompt) && !failed.has(prompt)) ?? null;
}

function say(result) {
  const mask = result.masks[result.best];
  if (!mask) return;
  const share = (100 * mask.area) / (state.medium.width * state.medium.height);
  announce(`Mask found, score ${mask.score.toFixed(2)}, ${share.toFixed(share < 10 ? 1 : 0)} percent of the picture. ${result.masks.length} candidates.`);
}

/** The document as the server keeps it and as a session file holds it. */
export function documentJson() {
  return {
    objects: state.objects.map((object) => ({
      id: object.id, name: object.name, color: object.color, choice: object.choice[0] ?? null,
      prompts: object.prompts[0] ?? null, mask: shown(object)?.rle ?? null, score: shown(object)?.score ?? null,
    })),
  };
}

const store = debounce(() => {
  if (state.medium?.kind !== "image") return;
  send("PUT", `${address()}/document`, documentJson()).catch((error) => fail("objects-notice", error));
}, 700);

/** The objects of a stored document. */
export function objectsFrom(document) {
  return (document?.objects ?? []).map((kept) => {
    const made = Object.freeze({ points: [], labels: [], box: null, mask: kept.mask, ...kept.prompts });
    if (kept.mask && !isMaskOnly(made)) {
      results.set(made, { masks: [{ rle: kept.mask, score: kept.score ?? 0, ...measured(kept.mask) }], best: 0, refine: null });
    }
    return { id: kept.id, name: kept.name, color: kept.color, visible: true, prompts: made.mask || made.points.length || made.box ? { 0: made } : {}, choice: {} };
  });
}

/** The mask shown for an object: {rle, score, box, area}, or null. */
export function shown(object) {
  const prompt = promptOf(object, 0);
  const result = prompt && resultOf(prompt);
  return result ? result.masks[object.choice[0] ?? result.best] ?? null : null;
}

/** The candidate masks of an object and the index of the one chosen. */
export function candidates(object) {
  const prompt = promptOf(object, 0);
  const result = prompt && resultOf(prompt);
  return result && !result.byHand ? { masks: result.masks, chosen: object.choice[0] ?? result.best } : null;
}
