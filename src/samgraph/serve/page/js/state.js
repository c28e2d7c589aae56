// The state of the page, in one object. `set` changes it, watchers are called once per turn of the event loop.

const SETTINGS = "samgraph.settings";
const defaults = { opacity: 0.5, outlines: true, prompts: true, hover: true, follow: true, keys: true, theme: null };

export const state = {
  info: null,          // GET api/info
  medium: null,        // {kind: "image" | "video", id, name, width, height, frames, fps, ...}
  objects: [],         // the document: [{id, name, color, visible, prompts: {frame: Prompt}, choice: {frame: n}}]
  activeId: null,      // the object that the next click changes; null: the next click starts an object
  tool: "point",       // point, box, brush, erase, everything, pan
  sign: 1,             // what a click says: 1 inside, 0 outside
  brush: 24,           // diameter, in pixels of the screen
  frame: 0,            // the frame shown, 0 for an image
  playing: false,
  results: 0,          // counts up when masks have changed
  hover: null,         // {rle, score} under the pointer
  found: null,         // everything mode: {masks, lit}
  effect: null,        // {name, target, ...parameters}
  tracking: null,      // {done, total, fps, secondsLeft}
  timeline: null,      // GET timeline
  stale: null,         // first frame whose masks are older than a correction
  history: null,       // changes with every step of history
  settings: { ...defaults, ...stored() },
};

function stored() {
  try { return JSON.parse(localStorage.getItem(SETTINGS) || "{}"); } catch { return {}; }
}

const watchers = [];
let changed = new Set();

/** Calls `f` after any of the keys changed, and once now. */
export function watch(keys, f) {
  watchers.push({ keys, f });
  f();
}

/** Changes keys of the state. */
export function set(patch) {
  for (const [key, value] of Object.entries(patch)) {
    if (state[key] === value) continue;
    state[key] = value;
    if (!changed.size) queueMicrotask(tell);
    changed.add(key);
  }
}

function tell() {
  const now = changed;
  changed = new Set();
  for (const { keys, f } of watchers) if (keys.some((key) => now.has(key))) f();
}

/** Changes settings, which outlive the page. */
export function setting(patch) {
  set({ settings: { ...state.settings, ...patch } });
  try { localStorage.setItem(SETTINGS, JSON.stringify(state.settings)); } catch { /* private window */ }
}

/** The object that clicks change, or undefined. */
export const active = () => state.objects.find((object) => object.id === state.activeId);

/** How many frames the medium has; 1 for an image. */
export const frameCount = () => state.medium?.kind === "video" ? Math.max(1, state.medium.frames || 1) : 1;
