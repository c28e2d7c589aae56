// Pixels resized for the model, as the Python package does: still images by an antialiased bilinear filter in floats,
// frames of a video by Pillow's bicubic filter in bytes. Both are stretched to a square of S x S.

const BITS = 22; // of Pillow's fixed-point weights

/** The taps of each output position along an axis: {first, count, weights} with `most` weights each. */
function tapsOf(length, size, support, filter) {
  const scale = length / size, wide = Math.max(scale, 1), reach = support * wide;
  const most = Math.ceil(reach) * 2 + 1;
  const first = new Int32Array(size), count = new Int32Array(size), weights = new Float64Array(size * most);
  for (let i = 0; i < size; i += 1) {
    const centre = (i + 0.5) * scale;
    const from = Math.max(0, Math.trunc(centre - reach + 0.5)), to = Math.min(length, Math.trunc(centre + reach + 0.5));
    let sum = 0;
    for (let j = from; j < to; j += 1) sum += weights[i * most + j - from] = filter((j - centre + 0.5) / wide);
    for (let j = 0; j < to - from; j += 1) weights[i * most + j] /= sum;
    first[i] = from;
    count[i] = to - from;
  }
  return { first, count, weights, most };
}

const triangle = (x) => Math.max(0, 1 - Math.abs(x));

function cubic(x) {
  const a = -0.5, t = Math.abs(x);
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

/** A still image, RGBA bytes, resized and normalised: float32 [3, S, S]. */
export function imageTensor({ data, width, height }, { size, mean, std }) {
  const rows = tapsOf(height, size, 1, triangle), columns = tapsOf(width, size, 1, triangle);
  const out = new Float32Array(3 * size * size), line = new Float32Array(width * 3);
  for (let y = 0; y < size; y += 1) {
    line.fill(0);
    for (let k = 0; k < rows.count[y]; k += 1) {
      const weight = rows.weights[y * rows.most + k];
      let at = (rows.first[y] + k) * width * 4;
      for (let x = 0; x < line.length; x += 3, at += 4) {
        line[x] += weight * data[at];
        line[x + 1] += weight * data[at + 1];
        line[x + 2] += weight * data[at + 2];
      }
    }
    for (let x = 0; x < size; x += 1) {
      for (let c = 0; c < 3; c += 1) {
        let sum = 0;
        for (let k = 0; k < columns.count[x]; k += 1) sum += columns.weights[x * columns.most + k] * line[(columns.first[x] + k) * 3 + c];
        out[(c * size + y) * size + x] = (sum / 255 - mean[c]) / std[c];
      }
    }
  }
  return out;
}

const fixed = ({ weights }) => Int32Array.from(weights, (w) => Math.trunc(w * 2 ** BITS + (w < 0 ? -0.5 : 0.5)));
const byte = (sum) => { const value = sum >> BITS; return value < 0 ? 0 : value > 255 ? 255 : value; };

/** Bytes of three channels resized along their columns: [H, W, 3] -> [H, S, 3]; `step` bytes lie between pixels. */
function narrowed(data, step, width, height, size) {
  const taps = tapsOf(width, size, 2, cubic), weights = fixed(taps), half = 1 << (BITS - 1);
  const out = new Uint8Array(height * size * 3);
  for (let y = 0, to = 0; y < height; y += 1) {
    for (let x = 0; x < size; x += 1, to += 3) {
      let r = half, g = half, b = half;
      for (let k = 0, at = (y * width + taps.first[x]) * step; k < taps.count[x]; k += 1, at += step) {
        const weight = weights[x * taps.most + k];
        r += data[at] * weight; g += data[at + 1] * weight; b += data[at + 2] * weight;
      }
      out[to] = byte(r); out[to + 1] = byte(g); out[to + 2] = byte(b);
    }
  }
  return out;
}

/** Bytes of three channels resized along their rows: [H, W, 3] -> [S, W, 3]. */
function flattened(data, step, width, height, size) {
  const taps = tapsOf(height, size, 2, cubic), weights = fixed(taps), half = 1 << (BITS - 1);
  const out = new Uint8Array(size * width * 3);
  for (let y = 0, to = 0; y < size; y += 1) {
    for (let x = 0; x < width; x += 1, to += 3) {
      let r = half, g = half, b = half;
      for (let k = 0, at = (taps.first[y] * width + x) * step; k < taps.count[y]; k += 1, at += width * step) {
        const weight = weights[y * taps.most + k];
        r += data[at] * weight; g += data[at + 1] * weight; b += data[at + 2] * weight;
      }
      out[to] = byte(r); out[to + 1] = byte(g); out[to + 2] = byte(b);
    }
  }
  return out;
}

/**
 * A frame of a video, RGBA bytes, resized to the bit as Pillow does and normalised: float32 [3, S, S]. Along columns
 * first, but for frames that are much higher than wide: so does Pillow 13.
 */
export function frameTensor({ data, width, height }, { size, mean, std }) {
  const small = height > Math.max(size, 2 * width - size)
    ? narrowed(flattened(data, 4, width, height, size), 3, width, size, size)
    : flattened(narrowed(data, 4, width, height, size), 3, size, height, size);
  const out = new Float32Array(3 * size * size), each = size * size;
  for (let c = 0; c < 3; c += 1) {
    const table = Float32Array.from({ length: 256 }, (_, value) => (Math.fround(value / 255) - Math.fround(mean[c])) / Math.fround(std[c]));
    for (let i = 0; i < each; i += 1) out[c * each + i] = table[small[i * 3 + c]];
  }
  return out;
}

/** A mask, bytes 0 or 1 [H, W], on the model's input: float32 0 or 1 [S, S]; antialiased, then cut at one half. */
export function resizeMask(mask, height, width, size) {
  const shares = shrink(mask, height, width, size);
  for (let i = 0; i < shares.length; i += 1) shares[i] = Math.fround(shares[i]) >= 0.5 ? 1 : 0;
  return shares;
}

/** A mask, bytes 0 or 1 [H, W], as low-resolution logits [L, L]: plus or minus ten by the share of each cell. */
export function maskLogits(mask, height, width, side) {
  const shares = shrink(mask, height, width, side);
  for (let i = 0; i < shares.length; i += 1) shares[i] = (Math.round(shares[i] * 255) / 255) * 20 - 10;
  return shares;
}

function shrink(mask, height, width, size) {
  const rows = tapsOf(height, size, 1, triangle), columns = tapsOf(width, size, 1, triangle);
  const half = new Float32Array(height * size), out = new Float32Array(size * size);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < size; x += 1) {
      let sum = 0;
      for (let k = 0; k < columns.count[x]; k += 1) sum += columns.weights[x * columns.most + k] * mask[y * width + columns.first[x] + k];
      half[y * size + x] = sum;
    }
  }
  for (let y = 0; y < size; y += 1) {
    for (let k = 0; k < rows.count[y]; k += 1) {
      const weight = rows.weights[y * rows.most + k], from = (rows.first[y] + k) * size;
      for (let x = 0; x < size; x += 1) out[y * size + x] += weight * half[from + x];
    }
  }
  return out;
}
