// Tracking: start, progress as server-sent events, cancel.

import { get, post, remove, sentence } from "./api.js";
import { announce, clear, fail, tell } from "./notices.js";
import { set, state } from "./state.js";
import { arrival } from "./frames.js";
import { openEvents } from "./transport.js";
import { address, forgetMasks, refreshSoon, refreshTimeline, settled, want } from "./video.js";

let events = null;
let lastRefresh = 0;
let following = false;
let before = null; // the frame shown before tracking began to move

/** Listens to the events of the open video's tracking until it ends. */
export function listen() {
  stopListening();
  events = openEvents(`${address()}/events`);
  events.addEventListener("open", () => { clear("timeline-notice"); done(); }); // what was said while nobody listened
  events.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  events.addEventListener("done", done);
  events.addEventListener("cancelled", () => finish("Tracking was cancelled; what was tracked stays."));
  events.addEventListener("error", (event) => {
    if (event.data === undefined) return lost(event.target);
    const { message, hint } = JSON.parse(event.data);
    finish(null);
    fail("timeline-notice", { message: sentence(message), hint }, { retry: () => track() });
    return undefined;
  });
}

/** The connection was lost: the browser tries again by itself, unless the server refused it. */
function lost(source) {
  if (source !== events) return;
  fail("timeline-notice", { message: "The connection to the server was lost.", hint: "Trying again. What was tracked is kept." });
  if (source.readyState === 2) setTimeout(() => { if (source === events) listen(); }, 2000);
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
  if (state.settings.follow && !state.playing) follow(frame);
  if (performance.now() - lastRefresh > 1500) {
    lastRefresh = performance.now();
    refreshTimeline();
  }
}

/** Shows a tracked frame once its picture and masks are there; frames that come meanwhile are left out. */
async function follow(frame) {
  if (following) return;
  following = true;
  await Promise.all([want(frame), arrival(frame)]);
  if (state.tracking && state.settings.follow && !state.playing) set({ frame });
  following = false;
}

/** A track may be done; the server may tell of one that ended just before the one that runs. */
async function done() {
  const { id } = state.medium;
  const known = await get(`videos/${id}`).catch(() => null);
  if (!known || known.tracking || state.medium?.id !== id || !state.tracking) return;
  const isInterrupted = known.interrupted?.length > 0;
  finish(isInterrupted ? null : "Tracking is done.");
  if (isInterrupted) offerToGoOn();
}

/** A track ended with the server: what is left of it can be done now. */
export function offerToGoOn() {
  const error = { message: "Tracking stopped when the server did.", hint: "What was tracked is kept." };
  fail("timeline-notice", error, { retry: () => track("both"), label: "Go on" });
}

function finish(text) {
  stopListening();
  clear("timeline-notice");
  const cancelled = text?.includes("cancelled");
  set({ tracking: null, stale: cancelled ? state.stale : null });
  if (state.settings.follow && before !== null) set({ frame: before });
  before = null;
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
 * Tracks: `both` through the whole video, after a correction from there on; `forward` or `backward` from the
 * frame shown.
 */
export async function track(direction = "both") {
  if (state.tracking) return;
  const prompted = promptedFrames();
  if (!prompted.length) {
    tell("timeline-notice", "Click on something first: tracking follows what you selected.");
    return;
  }
  let start = state.frame;
  if (direction === "both") {
    start = state.stale ?? prompted[0];
    if (state.stale !== null && prompted[0] < state.stale) direction = "forward"; // what is before a correction stands
  }
  before = state.frame;
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
