// A video: prompts are sent to the server, which keeps them; masks are fetched for frames that are looked at.

import { get, mayPass, post, remove, send } from "./api.js";
import { plain } from "./image.js";
import { announce, fail } from "./notices.js";
import { failOnMedium } from "./opening.js";
import { isMaskOnly, promptBefore } from "./prompts.js";
import { rememberPrompts } from "./remember.js";
import { set, state } from "./state.js";
import { debounce } from "./dom.js";

const SPAN = 24;          // frames of masks asked for at once
const MOST_FRAMES = 1500; // frames whose masks are kept

let masks = new Map();      // frame -> Map(object -> {rle, score, present, box, area})
let serverIds = new Map();  // our id -> the server's
let choices = new WeakMap(); // Prompt -> the image decoder's candidates for it
let queue = [];             // changes that the server does not have yet
let work = Promise.resolve();
let fetching = null;
let refreshing = null;      // the timeline: null, "once", or "again" when asked for meanwhile
let outdated = new Set();   // frames whose masks here are older than the server's

export const address = () => `videos/${state.medium.id}`;
const ourId = (id) => [...serverIds].find(([, theirs]) => theirs === id)?.[0] ?? id;

/** Starts over with a video's objects as the server tells them: {id, name, color, prompts: [frame]}. */
export function startVideo(objects) {
  masks = new Map();
  queue = [];
  choices = new WeakMap();
  fetching = null;
  outdated = new Set();
  serverIds = new Map(objects.map(({ id }) => [id, id]));
}

/** Sends what differs between two documents, in order; what cannot be sent now is kept and sent later. */
export function sync(before, after) {
  const jobs = changesBetween(before.objects, after.objects);
  queue.push(...jobs);
  if (jobs.length) resume();
}

/** Sends what is still to be sent. */
export function resume() {
  if (!queue.length) return;
  work = work.then(sendAll);
  work.then(refreshTimeline); // not waited for: the next click comes first
}

async function sendAll() {
  const jobs = queue; // another video has another list
  while (jobs === queue && jobs.length) {
    const { run, host } = jobs[0];
    try {
      await run();
    } catch (error) {
      if (host) fail(host, error, mayPass(error) ? { retry: resume } : {});
      else failOnMedium(error, mayPass(error) ? resume : undefined);
      if (mayPass(error)) return;
    }
    jobs.shift();
  }
  if (jobs === queue) remember(state.objects);
}

function remember(objects) {
  rememberPrompts(state.medium.id, Object.fromEntries(objects.map(({ id, prompts }) => [serverIds.get(id), prompts])));
}

function changesBetween(before, after) {
  const jobs = [];
  const old = new Map(before.map((object) => [object.id, object]));
  for (const object of before) {
    if (!after.some(({ id }) => id === object.id)) jobs.push({ run: () => deleteObject(object.id), host: "objects-notice" });
  }
  for (const object of after) {
    const was = old.get(object.id);
    if (!was) jobs.push({ run: () => createObject(object) });
    else if (was.name !== object.name || was.color !== object.color) {
      jobs.push({ run: () => describe(object), host: "objects-notice" });
    }
    const frames = new Set([...Object.keys(was?.prompts ?? {}), ...Object.keys(object.prompts)].map(Number));
    for (const frame of frames) {
      const prompt = object.prompts[frame], index = object.choice[frame];
      if (prompt === was?.prompts[frame] && index === was?.choice[frame]) continue;
      jobs.push({ run: () => (prompt ? sendPrompt(object.id, frame, prompt, index) : clearPrompt(object.id, frame)) });
    }
  }
  return jobs;
}

async function createObject({ id, name, color }) {
  const made = await post(`${address()}/objects`, { name, color });
  serverIds.set(id, made.id);
}

const describe = ({ id, name, color }) => send("PATCH", `${address()}/objects/${serverIds.get(id)}`, { name, color });

async function deleteObject(id) {
  if (serverIds.has(id)) await remove(`${address()}/objects/${serverIds.get(id)}`);
  serverIds.delete(id);
  forgetMasks();
}

async function clearPrompt(id, frame) {
  await remove(`${address()}/objects/${serverIds.get(id)}/prompts/${frame}`);
  markStale(id, frame);
  forgetMasks();
}

async function sendPrompt(id, frame, prompt, choice) {
  let body = plain(prompt);
  if (choice != null && choices.get(prompt)) {
    body = { mask: choices.get(prompt).masks[choice].rle };
  } else if (body.mask && !isMaskOnly(prompt)) { // a video takes a mask as the answer: clicks on it are made first
    const result = await post(`${address()}/frames/${frame}/predict`, { ...body, multimask: false });
    body = { mask: result.masks[result.best].rle };
  }
  const wasTracked = Boolean(masks.get(frame)?.get(id));
  const reply = await post(`${address()}/prompts`, { frame, object: serverIds.get(id), ...body });
  markStale(id, frame);
  take(reply);
  const own = masks.get(frame)?.get(id);
  if (own) announce(`Mask on frame ${frame}${own.score == null ? "" : `, score ${own.score.toFixed(2)}`}.`);
  if (choice == null && !wasTracked) offerChoices(prompt, frame);
}

/** The other masks that a first click may mean, shown as candidates; a correction of a tracked mask means one. */
async function offerChoices(prompt, frame) {
  if (prompt.points.length !== 1 || !prompt.labels[0] || prompt.box || prompt.mask || promptBefore(prompt)) return;
  try {
    choices.set(prompt, await post(`${address()}/frames/${frame}/predict`, { ...plain(prompt), multimask: true }, { patient: false }));
    set({ results: state.results + 1 });
  } catch { /* candidates are an offer: without them the mask stands */ }
}

function markStale(id, frame) {
  const lane = state.timeline?.objects.find((object) => object.id === id);
  if (lane?.tracked.length) set({ stale: Math.min(frame, state.stale ?? frame) });
}

function take(reply) {
  const known = masks.get(reply.frame) ?? new Map();
  for (const object of reply.objects) known.set(ourId(object.id), object);
  masks.delete(reply.frame);
  masks.set(reply.frame, known);
  outdated.delete(reply.frame);
  for (const frame of masks.keys()) {
    if (masks.size <= MOST_FRAMES) break;
    masks.delete(frame);
  }
  set({ results: state.results + 1 });
}

/** The masks of a frame, or of all frames, are fetched again; a frame's old masks stay until then. */
export function forgetMasks(frame = null) {
  if (frame === null) {
    const shownNow = masks.get(state.frame);
    masks = new Map(shownNow ? [[state.frame, shownNow]] : []);
    outdated = new Set([state.frame]);
  } else outdated.add(frame);
  want(state.frame);
}

/** Asks for the masks of a frame and those after it. */
export async function want(frame) {
  if (fetching) await fetching.catch(() => {});
  if (fetching || state.medium?.kind !== "video" || hasMasks(frame)) return;
  const { id } = state.medium;
  const until = Math.min(frame + (state.tracking ? 0 : SPAN - 1), (state.medium.frames ?? Infinity) - 1);
  fetching = get(`${address()}/masks?from=${frame}&to=${until}`);
  try {
    const { frames } = await fetching;
    if (state.medium?.id !== id) return;
    for (let at = frame; at <= until; at += 1) {
      if (outdated.delete(at) || !masks.has(at)) masks.set(at, new Map());
    }
    frames.forEach(take);
    set({ results: state.results + 1 });
  } catch (error) {
    if (!masks.has(frame)) masks.set(frame, new Map());
    outdated.delete(frame);
    fail("stage-notice", error, { retry: () => forgetMasks(frame) });
  } finally {
    fetching = null;
    if (state.medium?.id === id && !hasMasks(state.frame)) want(state.frame);
  }
}

/** Whether a frame's masks are here. */
export const hasMasks = (frame) => masks.has(frame) && !outdated.has(frame);

/** The mask of an object on a frame, or null. */
export function shown(object, frame = state.frame) {
  const mask = masks.get(frame)?.get(object.id);
  return mask?.rle && mask.present !== false ? mask : null;
}

/** What is known of an object on a frame, also where it is occluded or absent. */
export const knownOf = (object, frame = state.frame) => masks.get(frame)?.get(object.id) ?? null;

/** The candidates of a single click and the index of the one chosen. */
export function candidates(object) {
  const prompt = object.prompts[state.frame];
  const result = prompt && choices.get(prompt);
  return result ? { masks: result.masks, chosen: object.choice[state.frame] ?? result.best } : null;
}

/** Fetches the timeline; object ids become ours. */
export async function refreshTimeline() {
  if (state.medium?.kind !== "video") return;
  if (refreshing) { refreshing = "again"; return; }
  refreshing = "once";
  const { id } = state.medium;
  try {
    const timeline = await get(`${address()}/timeline`, { patient: false });
    if (state.medium?.id !== id) return;
    timeline.objects.forEach((object) => { object.id = ourId(object.id); });
    timeline.review.forEach((item) => { item.object = ourId(item.object); });
    if (timeline.frames && timeline.frames !== state.medium.frames) set({ medium: { ...state.medium, frames: timeline.frames } });
    set({ timeline });
  } catch (error) {
    if (error.status !== 503) fail("timeline-notice", error, { retry: refreshTimeline });
  } finally {
    const again = refreshing === "again";
    refreshing = null;
    if (again) refreshTimeline();
  }
}

export const refreshSoon = debounce(refreshTimeline, 900);

/** Resolves when everything sent so far was answered. */
export const settled = () => work;
