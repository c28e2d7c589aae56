// A video that is prompted and tracked: its objects, its masks by frame, the running track.

import { missing, RequestError } from "./errors.js";
import { EncodedImage } from "./image.js";
import { ranges, timelineOf } from "./timeline.js";
import { shownOutcome, Tracker } from "./tracking.js";

const MOST_HOVERED = 3;  // encoded frames that are hovered over
const MOST_OBJECTS = 255;
const SMOOTHING = 0.1;   // of the rate, per frame
const FORMAT = "samgraph-web-session";

export class VideoSession {
  /** `publish(type, data)` sends an event. */
  constructor(model, frames, name, publish) {
    Object.assign(this, { model, frames, name, publish, objects: [], nextId: 1, masks: new Map(), hovered: new Map(), track: null, last: Promise.resolve() });
    this.tracker = new Tracker(model, frames);
  }

  /** Does something after what was asked for before it; a track asks for one frame at a time, so clicks come between. */
  exclusive(task) {
    const result = this.last.then(task);
    this.last = result.catch(() => {});
    return result;
  }

  about(id) {
    const { name, frames: { width, height, frames, fps }, track } = this;
    const tracking = track ? { frame: track.frame, done: track.done, total: track.total, fps: null, seconds_left: null } : null;
    return { id, name, width, height, frames, fps, duration: frames / fps, objects: this.objects.map((obj) => this.described(obj)), tracking, interrupted: [] };
  }

  described({ id, name, color }) {
    return { id, name, color, prompts: this.prompted(id) };
  }

  prompted(id) {
    return [...(this.tracker.objects.get(id)?.prompted ?? [])].sort((a, b) => a - b);
  }

  find(id) {
    const obj = this.objects.find((known) => known.id === id);
    if (!obj) throw missing(`there is no object ${id}`);
    return obj;
  }

  checked(frame) {
    if (!Number.isInteger(frame) || frame < 0 || frame >= this.frames.frames) throw missing(`there is no frame ${frame}`, `the last is ${this.frames.frames - 1}`);
    return frame;
  }

  addObject({ name = null, color = null, id = this.nextId } = {}) {
    if (this.objects.length >= MOST_OBJECTS) throw new RequestError(400, "there are too many objects", { hint: `At most ${MOST_OBJECTS}.` });
    const obj = { id, name, color, version: 0, prompts: {} };
    this.objects.push(obj);
    this.nextId = Math.max(this.nextId, id + 1);
    return obj;
  }

  /** Points at an object on a frame, in place of what it had there; what is known there. */
  prompt(body) {
    return this.exclusive(() => this.apply(body));
  }

  async apply({ frame, object: id, points, labels, box, mask }) {
    this.checked(frame);
    await this.model.prepareTracking();
    const body = { points, labels, box, mask };
    await this.tracker.prompt(id, frame, body);
    const obj = this.objects.find((known) => known.id === id) ?? this.addObject({ id });
    obj.version += 1;
    obj.prompts[frame] = body;
    this.write(frame, [{ id, outcome: this.tracker.objects.get(id).answers.get(frame), isPrompted: true }]);
    return this.frame(frame);
  }

  clear(id, frame) {
    return this.exclusive(() => this.takeBack(id, frame));
  }

  takeBack(id, frame) {
    const obj = this.find(id);
    if (!this.prompted(id).includes(frame)) throw missing(`object ${id} has no prompt on frame ${frame}`);
    this.tracker.clear(id, frame);
    obj.version += 1;
    delete obj.prompts[frame];
    if (this.prompted(id).length) this.masks.get(frame)?.delete(id);
    else this.forgetMasks(id);
  }

  remove(id) {
    this.objects.splice(this.objects.indexOf(this.find(id)), 1);
    this.tracker.objects.delete(id);
    this.forgetMasks(id);
  }

  forgetMasks(id) {
    for (const known of this.masks.values()) known.delete(id);
  }

  /** Keeps what was found on a frame. */
  write(frame, results) {
    const known = this.masks.get(frame) ?? new Map();
    this.masks.set(frame, known);
    for (const { id, outcome, isPrompted } of results) {
      const version = this.objects.find((obj) => obj.id === id)?.version ?? 0;
      known.set(id, { ...shownOutcome(outcome, this.model.maskSide, this.frames.size), prompted: isPrompted, version });
    }
  }

  /** The objects that are known on a frame. */
  frame(frame) {
    const objects = [...(this.masks.get(frame) ?? [])].map(([id, { version, ...mask }]) => ({ id, ...mask, stale: version !== this.objects.find((obj) => obj.id === id)?.version }));
    return { frame, objects: objects.sort((a, b) => a.id - b.id) };
  }

  framesBetween(from, to) {
    const found = [];
    for (let frame = from; frame <= Math.min(to, from + 63); frame += 1) if (this.masks.get(frame)?.size) found.push(this.frame(frame));
    return found;
  }

  timeline() {
    const laneOf = (id) => new Map([...this.masks].filter(([, known]) => known.has(id)).map(([frame, known]) => [frame, known.get(id)]));
    return timelineOf(this.frames.frames, this.objects.map(({ id, version }) => ({ id, version, prompts: this.prompted(id), lane: laneOf(id) })));
  }

  /** The masks of a prompt on a frame as on an image: nothing is kept. */
  async hover(frame, body) {
    this.checked(frame);
    let image = this.hovered.get(frame);
    this.hovered.delete(frame);
    image ??= new EncodedImage(this.model, await this.model.encode(await this.frames.imageTensor(frame)), this.frames.size);
    this.hovered.set(frame, image);
    for (const oldest of this.hovered.keys()) {
      if (this.hovered.size <= MOST_HOVERED) break;
      this.hovered.delete(oldest);
    }
    return image.predict(body);
  }

  /** Starts a track; frames are tracked between requests. */
  begin({ start, direction = "both", frames: many = null }) {
    if (this.track) throw new RequestError(409, "the video is being tracked", { hint: "cancel it first" });
    if (!this.tracker.objects.size) throw new RequestError(400, "there is nothing to track", { hint: "point at an object first" });
    const count = this.frames.frames, first = this.checked(start ?? Math.min(...[...this.tracker.objects.keys()].flatMap((id) => this.prompted(id))));
    const order = [];
    if (direction !== "backward") for (let frame = first; frame < Math.min(count, first + (many ?? count)); frame += 1) order.push([frame, false]);
    const back = direction === "backward" ? first : first - 1;
    if (direction !== "forward") for (let frame = back; frame >= Math.max(0, back + 1 - (many ?? count)); frame -= 1) order.push([frame, true]);
    if (!order.length) throw new RequestError(400, "there is no frame to track in this direction");
    this.track = { frame: first, done: 0, total: order.length, isCancelled: false, seconds: null };
    this.run(order);
    return { total: order.length };
  }

  async run(order) {
    const { track } = this;
    try {
      await this.model.prepareTracking();
      for (const [frame, isReverse] of order) {
        if (track.isCancelled || !this.tracker.objects.size) break;
        await this.exclusive(() => this.step(frame, isReverse));
        await new Promise((resolve) => { setTimeout(resolve); }); // requests that came meanwhile go first
      }
      this.end(track.isCancelled ? "cancelled" : "done", this.progress());
    } catch (error) {
      this.end("error", { message: error.message || "tracking failed", hint: error.hint ?? "" });
    }
  }

  end(type, data) {
    this.track = null;
    this.publish(type, data);
  }

  async step(frame, isReverse) {
    const { track } = this, began = performance.now();
    if (track.isCancelled || !this.tracker.objects.size) return;
    const results = await this.tracker.step(frame, isReverse);
    this.write(frame, results.filter(({ id }) => this.tracker.objects.has(id)));
    const seconds = (performance.now() - began) / 1000, before = track.seconds ?? seconds;
    Object.assign(track, { frame, done: track.done + 1, seconds: before + SMOOTHING * (seconds - before) });
    const objects = this.frame(frame).objects.map(({ id, score, present, area, box }) => ({ id, score, present, area, box }));
    this.publish("progress", { ...this.progress(), objects });
  }

  progress() {
    const { frame, done, total, seconds } = this.track;
    return { frame, done, total, fps: seconds ? Math.round(100 / seconds) / 100 : 0, seconds_left: seconds ? Math.round((total - done) * seconds * 10) / 10 : null };
  }

  /** What an export writes: the frames on which anything is known, in order. */
  exported() {
    const nameOf = (id) => this.objects.find((obj) => obj.id === id)?.name;
    const frames = [...this.masks.keys()].sort((a, b) => a - b).filter((frame) => this.masks.get(frame).size);
    return frames.map((frame) => ({ frame, objects: this.frame(frame).objects.map(({ id, rle, score, present }) => ({ id, name: nameOf(id), mask: rle, score, present })) }));
  }

  /** The session as a file: objects, their prompts and the masks. */
  saved() {
    const { name, frames: { width, height, frames } } = this;
    const masks = [...this.masks].map(([frame, known]) => [frame, [...known]]);
    return { format: FORMAT, version: 1, name, width, height, frames, tracked: ranges([...this.masks.keys()].sort((a, b) => a - b)), objects: this.objects, masks };
  }

  /** Goes on with a saved session: prompts are done again, masks are shown as they were. */
  async restore(saved) {
    const { width, height, frames } = this.frames;
    if (saved?.format !== FORMAT || !Array.isArray(saved.objects) || !Array.isArray(saved.masks)) throw new RequestError(400, "this is not a session file of the page without a server");
    if (saved.width !== width || saved.height !== height || saved.frames !== frames) throw new RequestError(400, `the session is that of another video, of ${saved.width} x ${saved.height} pixels and ${saved.frames} frames`);
    for (const { id, name, color, prompts } of saved.objects) {
      if (!Number.isInteger(id) || id < 1 || this.objects.some((obj) => obj.id === id)) throw new RequestError(400, "the session file is damaged");
      this.addObject({ id, name: name ?? null, color: color ?? null });
      for (const [frame, body] of Object.entries(prompts ?? {})) await this.prompt({ ...body, frame: Number(frame), object: id });
    }
    for (const [frame, known] of saved.masks) {
      if (Number.isInteger(frame) && frame >= 0 && frame < frames) this.masks.set(frame, new Map(known.map(([id, mask]) => [id, { ...mask, version: this.find(id).version }])));
    }
  }

  close() {
    if (this.track) this.track.isCancelled = true;
    this.frames.close();
  }
}
