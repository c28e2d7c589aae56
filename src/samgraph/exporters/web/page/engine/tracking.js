// Objects and how they are tracked from frame to frame: as `predict/video/session.py` does, one object at a time.

import { bestAnswer } from "./corrections.js";
import { RequestError } from "./errors.js";
import { enlarge, toBytes } from "./masks.js";
import { forget, fromBf16, recall, toBf16 } from "./memory.js";
import { noPoint, pointTensors, readMask, readPoints } from "./prompts.js";
import { resizeMask } from "./resize.js";

const MOST_MEMORY = 48e6; // bytes of mask memories of tracked frames, in all: 366 of the built-in model
const MOST_ENCODED = 6;   // frames whose features are kept
const CLAMP = 32;         // of logits that are used as a mask prompt
const MASK_SCORE = 10;    // the object score of a mask that was given

/** The objects of a video and their memories. `source.frameTensor(n)` gives a frame as the model takes it. */
export class Tracker {
  constructor(model, source) {
    Object.assign(this, { model, source, objects: new Map(), encoded: new Map() });
  }

  /** The features of a frame; those of the last few are kept. */
  async features(frame) {
    let found = this.encoded.get(frame);
    this.encoded.delete(frame);
    found ??= await this.model.encode(await this.source.frameTensor(frame));
    this.encoded.set(frame, found);
    for (const oldest of this.encoded.keys()) {
      if (this.encoded.size <= MOST_ENCODED) break;
      this.encoded.delete(oldest);
    }
    return found;
  }

  /** Points at an object on a frame, in place of what it had there. */
  async prompt(id, frame, body) {
    const obj = this.objects.get(id) ?? { id, prompted: new Set(), answers: new Map(), waiting: new Set(), passed: new Map(), latest: null, bank: { prompted: new Map(), tracked: new Map() } };
    if (obj.prompted.has(frame)) {
      const passed = obj.passed.get(frame);
      takeBack(obj, frame);
      if (passed !== undefined && obj.prompted.size && this.model.obeysClicks) obj.passed.set(frame, passed); // the new clicks correct what other prompts gave
    }
    const answer = await this.answer(obj, frame, body);
    obj.prompted.add(frame);
    obj.answers.set(frame, answer);
    obj.waiting.add(frame);
    this.objects.set(id, obj);
  }

  /** Takes back what an object was told on a frame; an object without any prompt is forgotten. */
  clear(id, frame) {
    const obj = this.objects.get(id);
    if (!obj) return;
    takeBack(obj, frame);
    if (!obj.prompted.size && !obj.bank.prompted.size) this.objects.delete(id);
  }

  /** What a prompt finds: on a frame that was tracked, with the object's memory. */
  async answer(obj, frame, body) {
    const { model, source: { size } } = this, features = await this.features(frame);
    if (body.mask) return this.paint(features, readMask(body.mask, size), size);
    const prompt = readPoints(body, size);
    if (!prompt.xy.length) throw new RequestError(400, "a prompt needs points, a box or a mask");
    const points = pointTensors(prompt, size, model.size), multimask = points.count <= 1;
    if (!obj.passed.has(frame)) return outcome(await model.decode(features, points, { multimask }));
    const conditioned = await this.attend(obj, frame, obj.passed.get(frame), features);
    const latest = obj.latest?.frame === frame ? obj.latest.outcome : await this.look(conditioned);
    const mask = latest.logits.map((value) => Math.max(-CLAMP, Math.min(CLAMP, value)));
    if (model.obeysClicks) return this.correct(features, points, mask, latest.logits);
    return outcome(await model.decode(conditioned, points, { multimask, mask, isConditioned: true }));
  }

  /** An object from clicks on a frame that was tracked: memory only helps to choose. A box is answered as on a still image. */
  async correct(features, points, mask, remembered) {
    if (points.labels.some((label) => label >= 2n)) return outcome(await this.model.decode(features, points, { multimask: false }));
    const { model: { maskSide, size } } = this;
    const { logits, iou } = await bestAnswer(this.model, features, points, mask, remembered);
    const found = await this.paint(features, toBytes(enlarge(logits, maskSide, [size, size]).rle), [size, size]);
    return { ...found, logits, iou };
  }

  /** An object from a mask, which is the answer; only its pointer is computed. */
  async paint(features, mask, [height, width]) {
    const small = resizeMask(mask, height, width, this.model.size);
    const { logits, prompt } = await this.model.maskPrompt(small);
    const isThere = small.some(Boolean);
    const { pointer } = await this.model.decode(features, noPoint(), { multimask: false, mask: prompt, isConditioned: true });
    return { logits, score: isThere ? MASK_SCORE : -MASK_SCORE, iou: 1, pointer: isThere ? pointer : this.model.absentPointer };
  }

  /** Puts what was prompted into memory. */
  async settle() {
    for (const obj of this.objects.values()) {
      for (const frame of [...obj.waiting]) {
        const answer = obj.answers.get(frame);
        const mask = toBf16(await this.model.encodeMemory(await this.features(frame), answer.logits, answer.score, true));
        obj.bank.prompted.set(frame, { mask, pointer: answer.pointer });
        obj.bank.tracked.delete(frame);
        obj.waiting.delete(frame);
      }
    }
  }

  /** All objects on the next frame of a track: [{id, outcome, isPrompted}]. */
  async step(frame, isReverse) {
    await this.settle();
    const results = [];
    for (const obj of this.objects.values()) {
      obj.passed.set(frame, isReverse);
      const answer = obj.answers.get(frame);
      results.push({ id: obj.id, outcome: answer ?? await this.follow(obj, frame, isReverse), isPrompted: Boolean(answer) });
    }
    forget(this.objects.values(), frame, MOST_MEMORY);
    return results;
  }

  /** One object on a frame, which is remembered. */
  async follow(obj, frame, isReverse) {
    const features = await this.features(frame);
    const found = await this.look(await this.attend(obj, frame, isReverse, features));
    const mask = toBf16(await this.model.encodeMemory(features, found.logits, found.score, false));
    obj.bank.tracked.set(frame, { mask, pointer: found.pointer });
    obj.latest = { frame, outcome: found };
    return found;
  }

  /** The decoder without a prompt, on features that remember. */
  async look(conditioned) {
    return outcome(await this.model.decode(conditioned, noPoint(), { multimask: true, isConditioned: true }));
  }

  /** The features of a frame conditioned on what is remembered of an object. */
  async attend(obj, frame, isReverse, features) {
    const { model } = this, { masks, pointers } = recall(obj.bank, { frame, isReverse, length: this.source.frames }, model);
    const each = model.tokens * model.memoryChannels, memory = new Float32Array(masks.length * each);
    masks.forEach((read, i) => fromBf16(read.memory.mask, memory, i * each));
    const known = new Float32Array(pointers.length * model.channels);
    pointers.forEach((read, i) => known.set(read.memory.pointer, i * model.channels));
    const embedding = await model.attend(features.embedding, {
      memory, frames: masks.length, slots: masks.map(({ slot }) => slot), pointers: known, times: pointers.map(({ time }) => time),
    });
    return { ...features, embedding };
  }
}

function takeBack(obj, frame) {
  for (const store of [obj.prompted, obj.answers, obj.waiting, obj.bank.prompted, obj.passed]) store.delete(frame);
}

/** What was found of one object: logits [L, L], object score, predicted IoU, pointer [C]. */
const outcome = ({ bestMask, objectScore, bestIou, pointer }) => ({ logits: bestMask, score: objectScore, iou: bestIou, pointer });

/** An outcome as replies hold it; its mask is empty where the object is occluded or absent. */
export function shownOutcome({ logits, score, iou }, side, size) {
  const present = score > 0;
  const { rle, area, box } = enlarge(present ? logits : new Float32Array(side * side).fill(-1), side, size);
  return { rle, area, box, present, score: Math.round(iou * 1e4) / 1e4 };
}
