// Tracking: start, progress as server-sent events, cancel.

import { post, remove } from "./api.js";
import { announce, clear, fail, tell } from "./notices.js";
import { set, state } from "./state.js";
import { address, forgetMasks, refreshSoon, refreshTimeline, settled } from "./video.js";

let events = null;
let lastRefresh = 0;

/** Listens to the events of the open video's tracking until it ends. */
export function listen() {
  stopListening();
  events = new EventSource(`api/${address()}/events`);
  events.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  events.addEventListener("done", () => finish("Tracking is done."));
  events.addEventListener("cancelled", () => finish("Tracking was cancelled; what was tracked stays."));
  events.addEventListener("error", (event) => {
    if (event.data === undefined) return; // the connection: the browser tries again by itself
    const { message, hint } = JSON.parse(event.data);
    finish(null);
    fail("timeline-notice", { message, hint }, { retry: () => track() });
  });
}

/** Stops listening: another medium was opened. */
export function stopListening() {
  events?.close();
  events = null;
}

function progress({ frame, done, total, fps, seconds_left: secondsLeft }) {
  set({ tracking: { frame, done, total, fps, secondsLeft } });
  if (frame == null) return;
  forgetMasks(frame);
  if (state.settings.follow && !state.playing) set({ frame });
  if (performance.now() - lastRefresh > 1500) {
    lastRefresh = performance.now();
    refreshTimeline();
  }
}

function finish(text) {
  stopListening();
  const cancelled = text?.includes("cancelled");
  set({ tracking: null, stale: cancelled ? state.stale : null });
  forgetMasks();
  refreshTimeline();
  if (text) {
    announce(text);
    if (!document.hasFocus()) document.title = `✓ ${state.medium.name}`;
  }
}

/** Frames on which any object has prompts, in order. */
export function promptedFrames() {
  const frames = new Set(state.objects.flatMap((object) => Object.keys(object.prompts).map(Number)));
  state.timeline?.objects.forEach((object) => object.prompts.forEach((frame) => frames.add(frame)));
  return [...frames].sort((a, b) => a - b);
}

/**
 * Tracks: `both` through the whole video from the earliest correction or prompt, `forward` or `backward` from
 * the frame shown. The server computes again only what a change affects.
 */
export async function track(direction = "both") {
  if (state.tracking) return;
  const prompted = promptedFrames();
  if (!prompted.length) {
    tell("timeline-notice", "Click on something first: tracking follows what you selected.");
    return;
  }
  const start = direction === "both" ? state.stale ?? prompted[0] : state.frame;
  clear("timeline-notice");
  set({ tracking: { done: 0, total: null, fps: null, secondsLeft: null, frame: null }, playing: false });
  try {
    await settled();
    const { total } = await post(`${address()}/track`, { start, direction, frames: null });
    set({ tracking: { ...state.tracking, total } });
    announce(`Tracking ${total ?? ""} frames.`);
    listen();
  } catch (error) {
    set({ tracking: null });
    fail("timeline-notice", error, { retry: () => track(direction) });
  }
}

/** Stops tracking after the frame at work. */
export async function cancel() {
  try {
    await remove(`${address()}/track`);
    refreshSoon();
  } catch (error) {
    fail("timeline-notice", error);
  }
}
