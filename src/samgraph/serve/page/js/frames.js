// Frames of a video by address: a bounded store of bitmaps, the wanted frame first, never all frames.

import { h } from "./dom.js";
import { state } from "./state.js";
import { ask, showPicture } from "./transport.js";
import { view } from "./view.js";

const MOST_BYTES = 200e6;
const AT_ONCE = 4;
const SMALL = 160;
const WIDTHS = [320, 640, 960, 1280, 1920, 2560];

let cache = new Map(); // "frame@width" -> ImageBitmap, least recently used first
let held = 0;
let wanted = [];
const loading = new Map(); // key -> AbortController
let onFrame = () => {};
let waiting = []; // {frame, resolve}

/** Sets what is called with a frame's number when it arrived, or with an error. */
export function onArrival(f) { onFrame = f; }

/** Where the API has a frame's picture. */
export const framePath = (frame, width) => `videos/${state.medium.id}/frames/${frame}?width=${width}`;

/** A small picture of a frame, loaded when it comes into view. */
export function frameImage(frame, attributes = {}) {
  const image = h("img", { alt: "", loading: "lazy", ...attributes });
  showPicture(image, framePath(frame, SMALL));
  return image;
}

/** The width that the view needs, of a few, so that zooming does not reload each frame. */
function neededWidth() {
  const need = state.medium.width * view.scale * Math.min(2, devicePixelRatio || 1);
  return Math.min(state.medium.width, WIDTHS.find((width) => width >= need * 0.95) ?? state.medium.width);
}

const keyOf = (frame, width = neededWidth()) => `${state.medium.id}/${frame}@${width}`;

/** A frame's bitmap at the width now needed, or at another one that is there; else null. */
export function frameNow(frame) {
  const best = keyOf(frame);
  const key = cache.has(best) ? best : [...WIDTHS, state.medium.width].map((width) => keyOf(frame, width)).findLast((k) => cache.has(k));
  if (!key) return null;
  const bitmap = cache.get(key);
  cache.delete(key);
  cache.set(key, bitmap);
  return bitmap;
}

/** Whether a frame is there at the width now needed. */
export const hasFrame = (frame) => cache.has(keyOf(frame));

/** Asks for frames, most wanted first; frames asked for earlier and not begun are forgotten. */
export function want(frames) {
  const awaited = waiting.map(({ frame }) => frame);
  wanted = [...new Set([...frames, ...awaited])].filter((frame) => !hasFrame(frame)).map((frame) => ({ frame, key: keyOf(frame), width: neededWidth() }));
  const keys = new Set(wanted.map(({ key }) => key));
  for (const [key, controller] of loading) if (!keys.has(key)) controller.abort();
  pump();
}

/** Resolves when a frame is there, or cannot be had. */
export function arrival(frame) {
  if (hasFrame(frame)) return Promise.resolve();
  const promise = new Promise((resolve) => { waiting.push({ frame, resolve }); });
  want(wanted.map((item) => item.frame));
  return promise;
}

function settle(frame) {
  waiting.filter((item) => item.frame === frame).forEach(({ resolve }) => resolve());
  waiting = waiting.filter((item) => item.frame !== frame);
}

function pump() {
  while (loading.size < AT_ONCE) {
    const next = wanted.find(({ key }) => !loading.has(key) && !cache.has(key));
    if (!next) return;
    load(next);
  }
}

async function load({ frame, key, width }) {
  const controller = new AbortController();
  loading.set(key, controller);
  try {
    const response = await ask(framePath(frame, width), { signal: controller.signal });
    if (!response.ok) throw Object.assign(new Error(`Frame ${frame} could not be read.`), { status: response.status });
    keep(key, await createImageBitmap(await response.blob()));
    onFrame(frame, null);
  } catch (error) {
    wanted = wanted.filter((item) => item.key !== key);
    if (error.name !== "AbortError") onFrame(frame, error);
  } finally {
    loading.delete(key);
    settle(frame);
    pump();
  }
}

function keep(key, bitmap) {
  cache.set(key, bitmap);
  held += bitmap.width * bitmap.height * 4;
  for (const [oldest, old] of cache) {
    if (held <= MOST_BYTES || oldest === key) break;
    cache.delete(oldest);
    held -= old.width * old.height * 4;
    old.close();
  }
}

/** Forgets everything: another medium was opened. */
export function forgetFrames() {
  for (const controller of loading.values()) controller.abort();
  for (const bitmap of cache.values()) bitmap.close();
  cache = new Map();
  held = 0;
  wanted = [];
  waiting.forEach(({ resolve }) => resolve());
  waiting = [];
}
