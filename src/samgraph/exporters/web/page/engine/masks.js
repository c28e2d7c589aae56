// Low-resolution logits as masks of the picture's size: enlarged column by column, run-length encoded on the way.

import { eachRun, fromRuns } from "../static/js/rle.js";

/** The two neighbours of each output position and the share of the second: bilinear, corners not aligned. */
function stepsOf(length, size) {
  const scale = Math.fround(length / size);
  const below = new Int32Array(size), above = new Int32Array(size), share = new Float32Array(size);
  for (let i = 0; i < size; i += 1) {
    const position = Math.fround(Math.max(0, scale * (i + 0.5) - 0.5));
    below[i] = Math.min(Math.floor(position), length - 1);
    above[i] = Math.min(below[i] + 1, length - 1);
    share[i] = position - below[i];
  }
  return { below, above, share };
}

const known = new Map(); // "length:size" -> steps
function steps(length, size) {
  const key = `${length}:${size}`;
  if (!known.has(key)) {
    if (known.size > 16) known.clear();
    known.set(key, stepsOf(length, size));
  }
  return known.get(key);
}

/** Which rows and columns of logits [L, L] hold a value above a threshold: {top, bottom, left, right}, or null. */
function reach(low, side, threshold) {
  let top = side, bottom = -1, left = side, right = -1;
  for (let y = 0; y < side; y += 1) {
    for (let x = 0; x < side; x += 1) {
      if (low[y * side + x] > threshold) {
        if (y < top) top = y;
        bottom = y;
        if (x < left) left = x;
        if (x > right) right = x;
      }
    }
  }
  return bottom < 0 ? null : { top, bottom, left, right };
}

/**
 * The mask of logits [L, L] at the picture's size: {rle, area, box, stability}. `box` is [x0, y0, x1, y1], zeros where
 * the mask is empty; `stability` is the share that stays when the threshold moves by `offset` either way.
 */
export function enlarge(low, side, [height, width], { threshold = 0, offset = 0 } = {}) {
  const columns = steps(side, width), rows = steps(side, height), within = reach(low, side, threshold - offset);
  const counts = [];
  let run = 0, value = 0, area = 0, core = 0, wide = 0, x0 = width, x1 = 0, y0 = height, y1 = 0;
  const line = new Float32Array(side);
  for (let x = 0; x < width; x += 1) {
    const a = columns.below[x], b = columns.above[x], t = columns.share[x];
    if (!within || b < within.left || a > within.right) {
      if (value) { counts.push(run); run = 0; value = 0; }
      run += height;
      continue;
    }
    for (let y = within.top; y <= within.bottom; y += 1) line[y] = low[y * side + a] * (1 - t) + low[y * side + b] * t;
    if (within.top > 0) line[within.top - 1] = low[(within.top - 1) * side + a] * (1 - t) + low[(within.top - 1) * side + b] * t;
    if (within.bottom < side - 1) line[within.bottom + 1] = low[(within.bottom + 1) * side + a] * (1 - t) + low[(within.bottom + 1) * side + b] * t;
    for (let y = 0; y < height; y += 1) {
      let bit = 0;
      if (rows.above[y] >= within.top && rows.below[y] <= within.bottom) {
        const share = rows.share[y];
        const logit = Math.fround(line[rows.below[y]] * (1 - share) + line[rows.above[y]] * share);
        if (logit > threshold + offset) core += 1;
        if (logit > threshold - offset) wide += 1;
        if (logit > threshold) {
          bit = 1;
          area += 1;
          if (x < x0) x0 = x;
          x1 = x + 1;
          if (y < y0) y0 = y;
          if (y >= y1) y1 = y + 1;
        }
      }
      if (bit !== value) { counts.push(run); run = 0; value = bit; }
      run += 1;
    }
  }
  counts.push(run);
  return { rle: fromRuns(counts, [height, width]), area, box: area ? [x0, y0, x1, y1] : [0, 0, 0, 0], stability: core / Math.max(1, wide) };
}

/** A run-length encoded mask as bytes, 0 or 1, row by row: [H, W]. */
export function toBytes(rle) {
  const [height, width] = rle.size, data = new Uint8Array(height * width);
  eachRun(rle, (x, top, bottom) => { for (let y = top; y < bottom; y += 1) data[y * width + x] = 1; });
  return data;
}

/**
 * A mask without holes and islands of fewer than `least` pixels, the largest component kept: bytes [H, W], or null
 * where nothing changed. Neighbours include diagonals.
 */
export function cleaned(mask, height, width, least) {
  const filled = paint(mask, height, width, 0, (area) => area < least);
  const made = filled ?? mask;
  const dropped = paint(made, height, width, 1, (area, largest) => area < least && area !== largest);
  return dropped ?? filled;
}

/** The mask with components of a value flipped where `isSmall(area, largest area)`; null where none is. */
function paint(mask, height, width, value, isSmall) {
  const labels = new Int32Array(mask.length), areas = [0], stack = [];
  for (let start = 0; start < mask.length; start += 1) {
    if (mask[start] !== value || labels[start]) continue;
    const label = areas.length;
    let area = 0;
    labels[start] = label;
    stack.push(start);
    while (stack.length) {
      const at = stack.pop(), y = Math.floor(at / width), x = at - y * width;
      area += 1;
      for (let row = Math.max(0, y - 1); row <= Math.min(height - 1, y + 1); row += 1) {
        for (let column = Math.max(0, x - 1); column <= Math.min(width - 1, x + 1); column += 1) {
          const next = row * width + column;
          if (mask[next] === value && !labels[next]) { labels[next] = label; stack.push(next); }
        }
      }
    }
    areas.push(area);
  }
  const largest = areas.reduce((most, area) => Math.max(most, area), 0);
  const small = areas.map((area, label) => label > 0 && isSmall(area, largest));
  if (!small.some(Boolean)) return null;
  return mask.map((bit, at) => (small[labels[at]] ? 1 - bit : bit));
}
