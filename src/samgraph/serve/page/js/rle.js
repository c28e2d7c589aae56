// COCO's compressed run-length encoding: masks read column by column, runs alternate from background.

const counted = new WeakMap();

/** The run lengths of an encoding {size: [h, w], counts}. */
export function runs(rle) {
  let counts = counted.get(rle);
  if (!counts) counted.set(rle, (counts = typeof rle.counts === "string" ? parse(rle.counts) : rle.counts));
  return counts;
}

function parse(text) {
  const counts = [];
  for (let at = 0; at < text.length;) {
    let value = 0, shift = 0, group;
    do {
      group = text.charCodeAt(at++) - 48;
      value |= (group & 31) << shift;
      shift += 5;
    } while (group & 32 && at < text.length);
    if (group & 16 && shift < 32) value |= -1 << shift;
    if (counts.length > 2) value += counts[counts.length - 2];
    counts.push(value);
  }
  return counts;
}

function write(counts) {
  const codes = [];
  counts.forEach((count, i) => {
    let value = i > 2 ? count - counts[i - 2] : count, more = true;
    while (more) {
      let group = value & 31;
      value >>= 5;
      more = group & 16 ? value !== -1 : value !== 0;
      if (more) group |= 32;
      codes.push(group + 48);
    }
  });
  let text = "";
  for (let i = 0; i < codes.length; i += 8192) text += String.fromCharCode(...codes.slice(i, i + 8192));
  return text;
}

/** Calls f(x, y0, y1) for each vertical run of the mask, y1 not included. */
export function eachRun(rle, f) {
  const [height] = rle.size, counts = runs(rle);
  let at = 0;
  for (let i = 0; i < counts.length; i += 1) {
    if (i & 1) {
      let left = counts[i], x = Math.floor(at / height), y = at - x * height;
      while (left > 0) {
        const length = Math.min(left, height - y);
        f(x, y, y + length);
        left -= length; x += 1; y = 0;
      }
    }
    at += counts[i];
  }
}

/** Area in pixels and box [x0, y0, x1, y1] of a mask; box null where it is empty. */
export function measure(rle) {
  let area = 0, x0 = Infinity, y0 = Infinity, x1 = -1, y1 = -1;
  eachRun(rle, (x, top, bottom) => {
    area += bottom - top;
    x0 = Math.min(x0, x); x1 = Math.max(x1, x + 1);
    y0 = Math.min(y0, top); y1 = Math.max(y1, bottom);
  });
  return { area, box: area ? [x0, y0, x1, y1] : null };
}

/** Whether a mask contains a pixel. */
export function contains(rle, x, y) {
  const [height, width] = rle.size;
  if (x < 0 || y < 0 || x >= width || y >= height) return false;
  let left = Math.floor(x) * height + Math.floor(y), inside = false;
  for (const count of runs(rle)) {
    left -= count;
    if (left < 0) return inside;
    inside = !inside;
  }
  return false;
}

/** The least step so that a picture sampled every `step` pixels has at most `most` samples. */
export const stepFor = (width, height, most) => Math.max(1, Math.ceil(Math.sqrt((width * height) / most)));

/**
 * The mask as bytes (0 or 1), row by row, every `step`-th pixel, cropped to its box:
 * {data, x, y, width, height, step}; x and y in samples. Null where it is empty.
 */
export function bitmap(rle, step = 1) {
  const { box } = measure(rle);
  if (!box) return null;
  const x = Math.floor(box[0] / step), y = Math.floor(box[1] / step);
  const width = Math.ceil(box[2] / step) - x, height = Math.ceil(box[3] / step) - y;
  const data = new Uint8Array(width * height);
  eachRun(rle, (column, top, bottom) => {
    if (column % step) return;
    const left = column / step - x, end = Math.ceil(bottom / step) - y;
    for (let row = Math.ceil(top / step) - y; row < end; row += 1) data[row * width + left] = 1;
  });
  return { data, x, y, width, height, step };
}

/** The encoding, of size [h, w], of samples (0 or not) of every `step`-th pixel, row by row. */
export function encode(data, sampleWidth, sampleHeight, step, [height, width]) {
  const counts = [];
  let run = 0, value = 0;
  for (let x = 0; x < width; x += 1) {
    const column = Math.min(sampleWidth - 1, Math.floor(x / step));
    for (let y = 0; y < height; y += step) {
      const row = Math.min(sampleHeight - 1, y / step), length = Math.min(step, height - y);
      const bit = data[row * sampleWidth + column] ? 1 : 0;
      if (bit !== value) { counts.push(run); run = 0; value = bit; }
      run += length;
    }
  }
  counts.push(run);
  return fromRuns(counts, [height, width]);
}

/** The encoding, of size [h, w], of run lengths. */
export const fromRuns = (counts, size) => ({ size, counts: write(counts) });
