// The mask under the pointer before a click: one request at a time, the newest position wins.

import { post } from "./api.js";
import { $ } from "./dom.js";
import { predictPath } from "./masks.js";
import { promptOf } from "./prompts.js";
import { contains } from "./rle.js";
import { active, set, state } from "./state.js";

const PAUSE = 40; // milliseconds between requests, so that a moving pointer does not fill the server's queue
let next = null, running = false, controller = null;

/** The pointer is at a position of the picture. */
export function hoverAt(x, y) {
  if (state.tool === "everything") return light(x, y);
  if (!allowed()) return leave();
  next = [Math.round(x), Math.round(y)];
  if (!running) run();
  return undefined;
}

/** The pointer left the picture, or something else is going on. */
export function leave() {
  next = null;
  controller?.abort();
  if (state.found?.lit != null) set({ found: { ...state.found, lit: null } });
  set({ hover: null });
  $("hover-card").hidden = true;
}

function allowed() {
  if (!state.settings.hover || state.playing || state.tracking || state.tool !== "point") return false;
  const prompt = promptOf(active());
  return state.sign === 1 || Boolean(prompt);
}

async function run() {
  running = true;
  while (next) {
    const [x, y] = next;
    next = null;
    controller = new AbortController();
    try {
      const result = await post(predictPath(), bodyAt(x, y), { signal: controller.signal, patient: false });
      const best = result.masks[result.best];
      if (!controller.signal.aborted && allowed() && best) show(best);
    } catch { /* a preview is an offer: a click says what is wrong */ }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
  running = false;
}

function bodyAt(x, y) {
  const prompt = promptOf(active());
  return {
    points: [...(prompt?.points ?? []), [x, y]], labels: [...(prompt?.labels ?? []), state.sign],
    box: prompt?.box ?? null, mask: prompt?.mask ?? null, multimask: null,
  };
}

function show({ rle, score, area }) {
  set({ hover: { rle, score } });
  const share = (100 * area) / (state.medium.width * state.medium.height);
  $("hover-card").textContent = `score ${score.toFixed(2)} · ${share < 10 ? share.toFixed(1) : Math.round(share)} % of the picture`;
  $("hover-card").hidden = false;
}

/** In everything mode the smallest mask under the pointer lights up. */
function light(x, y) {
  if (!state.found) return;
  const lit = smallestAt(x, y);
  if (lit !== state.found.lit) set({ found: { ...state.found, lit } });
}

/** The index of the smallest found mask that contains a position; null where there is none. */
export function smallestAt(x, y) {
  let best = null;
  state.found?.masks.forEach((mask, i) => {
    if ((best === null || mask.area < state.found.masks[best].area) && contains(mask.rle, x, y)) best = i;
  });
  return best;
}
