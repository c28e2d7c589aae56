// What is remembered of one object, and what a frame reads of it: the memory policy of SAM 2.

/** Float32 values as bf16, rounded to nearest even: how mask memories are kept. */
export function toBf16(values) {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length), out = new Uint16Array(values.length);
  for (let i = 0; i < bits.length; i += 1) out[i] = (bits[i] + 0x7fff + ((bits[i] >>> 16) & 1)) >>> 16;
  return out;
}

/** Writes bf16 values into a Float32Array at a position. */
export function fromBf16(stored, into, at) {
  const bits = new Uint32Array(into.buffer, into.byteOffset, into.length);
  for (let i = 0; i < stored.length; i += 1) bits[at + i] = stored[i] << 16;
}

/**
 * The frames that a frame reads, in the order of attention: {masks: [{memory, slot}], pointers: [{memory, time}]}.
 * Every prompted frame, or for a model that `obeysClicks` the one where the track began, the others counting as tracked;
 * then tracked frames from the oldest to the newest. Pointers of the future are left out.
 */
export function recall(bank, { frame, isReverse, length }, { memoryFrames, maxPointers, obeysClicks = false }) {
  const { prompted, tracked } = obeysClicks ? withOnePrompted(bank, frame, isReverse ? -1 : 1) : bank;
  const back = isReverse ? -1 : 1, last = memoryFrames - 1, most = Math.min(length ?? maxPointers, maxPointers);
  const longest = Math.max(most - 1, 1), masks = [], pointers = [];
  for (const [index, memory] of prompted) {
    masks.push({ memory, slot: last });
    const distance = (frame - index) * back;
    if (distance >= 0) pointers.push({ memory, time: distance / longest });
  }
  for (let steps = last; steps >= 1; steps -= 1) {
    const index = frame - steps * back, memory = tracked.get(index);
    if (memory?.mask && !prompted.has(index)) masks.push({ memory, slot: steps - 1 });
  }
  for (let steps = 1; steps < most; steps += 1) {
    const index = frame - steps * back, memory = tracked.get(index);
    if (memory && !prompted.has(index)) pointers.push({ memory, time: steps / longest });
  }
  return { masks, pointers };
}

/** A bank of which only one frame counts as prompted: the first that was passed, or the nearest where none was. */
function withOnePrompted({ prompted, tracked }, frame, back) {
  const passed = [...prompted.keys()].filter((index) => (frame - index) * back >= 0);
  const far = (index) => Math.abs(frame - index);
  const [first] = passed.length ? passed.sort((a, b) => far(b) - far(a)) : [...prompted.keys()].sort((a, b) => far(a) - far(b));
  if (first === undefined) return { prompted, tracked };
  const others = [...prompted].filter(([index]) => index !== first);
  return { prompted: new Map([[first, prompted.get(first)]]), tracked: new Map([...tracked, ...others]) };
}

/** Drops the mask memories farthest from a frame until those of all objects fit `most` bytes; pointers go with them. */
export function forget(objects, frame, most) {
  let held = 0;
  const all = [];
  for (const { bank } of objects) {
    for (const [index, { mask }] of bank.tracked) {
      held += mask.byteLength;
      all.push({ bank, index, bytes: mask.byteLength });
    }
  }
  if (held <= most) return;
  all.sort((a, b) => Math.abs(b.index - frame) - Math.abs(a.index - frame));
  for (const { bank, index, bytes } of all) {
    if (held <= most) return;
    bank.tracked.delete(index);
    held -= bytes;
  }
}
