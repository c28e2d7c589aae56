// Automatic masks: every point of a grid is a prompt, the good masks are kept, duplicates suppressed.

import { encode } from "../static/js/rle.js";
import { RequestError } from "./errors.js";
import { chosen, shown } from "./image.js";
import { cleaned, enlarge, toBytes } from "./masks.js";

const BATCH = 4; // points per run of the decoder
const DEFAULTS = { points_per_side: 32, pred_iou_thresh: 0.8, stability_score_thresh: 0.95, stability_score_offset: 1, box_nms_thresh: 0.7, crop_nms_thresh: 0.7, min_mask_region_area: 0, multimask: true };

/** The options of a request, checked; `own` has the thresholds of the model. */
function read(body, own) {
  const options = { ...DEFAULTS, ...own };
  for (const [name, value] of Object.entries(body)) {
    if (value == null) continue;
    if (!(name in DEFAULTS)) throw new RequestError(400, `\`${name}\` is not an option of the page without a server`, { hint: Object.keys(DEFAULTS).join(", ") });
    if (typeof value !== typeof DEFAULTS[name] || Number.isNaN(value)) throw new RequestError(400, `\`${name}\` is a ${typeof DEFAULTS[name]}`);
    options[name] = value;
  }
  if (!(options.points_per_side >= 1 && options.points_per_side <= 128)) throw new RequestError(400, "`points_per_side` is from 1 to 128");
  return options;
}

/** The masks of everything in an image: [{rle, score, box, area}]. Clicks are answered between batches of points. */
export async function everything(image, body) {
  const options = read(body, image.model.everything), [height, width] = image.size, n = options.points_per_side;
  const points = Array.from({ length: n * n }, (_, i) => [Math.fround((((i % n) + 0.5) / n) * width), Math.fround(((Math.floor(i / n) + 0.5) / n) * height)]);
  let found = [];
  for (let start = 0; start < points.length; start += BATCH) {
    const prompts = points.slice(start, start + BATCH).map((point) => ({ xy: [point], labels: [1] }));
    const decoded = await image.decodePoints(prompts);
    for (const masks of decoded) found.push(...candidates(image, masks, options));
  }
  found = suppress(found, found.map(({ score }) => score), options.box_nms_thresh);
  if (options.min_mask_region_area > 0) found = clean(found, options);
  return found.map((mask) => ({ ...shown(mask), score: Math.round(mask.score * 1e4) / 1e4 }));
}

function candidates({ model, size }, decoded, options) {
  const least = Math.fround(options.pred_iou_thresh), offset = options.stability_score_offset;
  return chosen(decoded, options.multimask, model.maskSide)
    .filter(({ score }) => least <= 0 || score > least)
    .map(({ low, score }) => ({ ...enlarge(low, model.maskSide, size, { offset }), score }))
    .filter(({ stability }) => options.stability_score_thresh <= 0 || Math.fround(stability) >= Math.fround(options.stability_score_thresh));
}

/** Without holes and islands that are too small, then without new duplicates; masks that did not change come first. */
function clean(masks, options) {
  const scores = [];
  const made = masks.map((mask) => {
    const [height, width] = mask.rle.size;
    const data = cleaned(toBytes(mask.rle), height, width, options.min_mask_region_area);
    scores.push(data ? 0 : 1);
    return data ? { ...mask, ...measured(data, height, width) } : mask;
  });
  return suppress(made, scores, Math.max(options.box_nms_thresh, options.crop_nms_thresh));
}

function measured(data, height, width) {
  let area = 0, x0 = width, y0 = height, x1 = 0, y1 = 0;
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (!data[y * width + x]) continue;
      area += 1;
      x0 = Math.min(x0, x); x1 = Math.max(x1, x + 1);
      y0 = Math.min(y0, y); y1 = y + 1;
    }
  }
  return { rle: encode(data, width, height, 1, [height, width]), area, box: area ? [x0, y0, x1, y1] : [0, 0, 0, 0] };
}

/** Non-maximum suppression by boxes whose ends are the last pixels, best first; of equal masks without area, one. */
export function suppress(masks, scores, threshold) {
  const order = masks.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const ends = masks.map(({ box: [x0, y0, x1, y1] }) => [x0, y0, Math.max(x0, x1 - 1), Math.max(y0, y1 - 1)]);
  const kept = [], flat = new Set();
  for (const i of order) {
    if (kept.some((j) => overlap(ends[i], ends[j]) > threshold)) continue;
    kept.push(i);
  }
  return kept.map((i) => masks[i]).filter(({ rle, box: [x0, y0, x1, y1] }) => {
    if (x1 - x0 > 1 && y1 - y0 > 1) return true;
    const isNew = !flat.has(rle.counts);
    flat.add(rle.counts);
    return isNew;
  });
}

function overlap(a, b) {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]), height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  const common = Math.max(0, width) * Math.max(0, height);
  const area = ([x0, y0, x1, y1]) => (x1 - x0) * (y1 - y0);
  return common / (area(a) + area(b) - common); // NaN where neither has an area
}
