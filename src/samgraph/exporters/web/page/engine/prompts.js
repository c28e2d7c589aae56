// Prompts of requests, checked and converted to the decoder's input; as `predict/prompts.py` does.

import { RequestError } from "./errors.js";
import { runs } from "../static/js/rle.js";
import { maskLogits } from "./resize.js";
import { toBytes } from "./masks.js";

const MOST_POINTS = 1000;
const ABSENT = -2;  // the label of padding
const NO_POINT = -1; // the label of no prompt at all
const BOX_LABELS = [2, 3];

const isNumbers = (list, length) => Array.isArray(list) && list.length === length && list.every(Number.isFinite);

/** The points of a request, a box as two of them in front: {xy: [[x, y]], labels}; [height, width] of the picture. */
export function readPoints({ points, labels, box }, [height, width]) {
  const xy = [], kinds = [];
  const inside = ([x, y], what) => {
    if (x < 0 || y < 0 || x > width || y > height) throw new RequestError(400, `the ${what} \`${x}, ${y}\` is outside the image`, { hint: `x from 0 to ${width}, y from 0 to ${height}` });
  };
  if (box != null) {
    if (!isNumbers(box, 4)) throw new RequestError(400, "a box is x0, y0, x1, y1");
    if (!(box[2] > box[0] && box[3] > box[1])) throw new RequestError(400, "the box has no area", { hint: "left, top, right, bottom" });
    xy.push([box[0], box[1]], [box[2], box[3]]);
    xy.forEach((corner) => inside(corner, "box corner"));
    kinds.push(...BOX_LABELS);
  }
  for (const [i, point] of (points ?? []).entries()) {
    const label = labels?.[i] ?? (labels ? null : 1);
    if (!isNumbers(point, 2)) throw new RequestError(400, "points are pairs of x and y");
    if (label !== 0 && label !== 1) throw new RequestError(400, "every point needs a label", { hint: "1 for inside, 0 for outside" });
    inside(point, "point");
    xy.push(point);
    kinds.push(label);
  }
  if (xy.length > MOST_POINTS) throw new RequestError(400, `a prompt has ${xy.length} points`, { hint: `at most ${MOST_POINTS}` });
  return { xy, labels: kinds };
}

/** Points in pixels of the picture as the decoder's inputs: points [1, P, 2] and labels [1, P]. */
export function pointTensors({ xy, labels }, [height, width], size) {
  const none = xy.length === 0;
  const points = Float32Array.from(none ? [0, 0] : xy.flatMap(([x, y]) => [Math.fround(Math.fround(x) / width) * size, Math.fround(Math.fround(y) / height) * size]));
  return { points, labels: BigInt64Array.from(none ? [BigInt(ABSENT)] : labels.map(BigInt)), count: Math.max(1, xy.length) };
}

/** The decoder's inputs for an object that is tracked: no prompt at all. */
export const noPoint = () => ({ points: new Float32Array(2), labels: BigInt64Array.of(BigInt(NO_POINT)), count: 1 });

/** A mask that a request holds, as bytes [H, W]. */
export function readMask(rle, [height, width]) {
  if (rle.size?.[0] !== height || rle.size?.[1] !== width) {
    throw new RequestError(400, "the mask has another size than the image", { hint: `${width} x ${height}` });
  }
  const total = runs(rle).reduce((sum, run) => (run >= 0 ? sum + run : NaN), 0);
  if (total !== height * width) throw new RequestError(400, "the mask is damaged");
  return toBytes(rle);
}

/** A mask that a request holds, as low-resolution logits [L, L]. */
export const readMaskLogits = (rle, size, side) => maskLogits(readMask(rle, size), ...size, side);
