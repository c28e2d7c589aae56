// Clicks on a frame that was tracked, for models that do not weigh them against their memory: as `predict/video/corrections.py`.

const MEMORY_WEIGHT = 2; // how much the IoU with the mask of memory counts beside the predicted IoU, at the first click

/** The mask to take for clicks on an unconditioned frame: {logits, iou}; `previous` is clipped, `remembered` what memory gave. */
export async function bestAnswer(model, features, points, previous, remembered) {
  const pixels = model.maskSide ** 2, answers = [];
  for (const mask of [previous, null]) {
    const { masks, ious } = await model.decode(features, points, { multimask: false, mask });
    for (let i = 0; i < ious.length; i += 1) answers.push({ logits: masks.slice(i * pixels, (i + 1) * pixels), iou: ious[i] });
  }
  const ranked = answers.map((answer) => ({
    answer, obeyed: obeyed(answer.logits, model, points),
    worth: answer.iou + MEMORY_WEIGHT * shared(answer.logits, remembered) / points.count,
  }));
  return ranked.reduce((best, one) => (one.obeyed > best.obeyed || (one.obeyed === best.obeyed && one.worth >= best.worth) ? one : best)).answer;
}

/** How many clicks the mask agrees with. */
function obeyed(logits, { maskSide: side, size }, { points, labels, count }) {
  let agreed = 0;
  for (let i = 0; i < count; i += 1) {
    const x = place(points[2 * i] / size, side), y = place(points[2 * i + 1] / size, side);
    const left = Math.min(Math.floor(x), side - 2), top = Math.min(Math.floor(y), side - 2), at = top * side + left;
    const upper = logits[at] * (1 - (x - left)) + logits[at + 1] * (x - left);
    const lower = logits[at + side] * (1 - (x - left)) + logits[at + side + 1] * (x - left);
    if ((upper * (1 - (y - top)) + lower * (y - top) > 0) === (labels[i] === 1n)) agreed += 1;
  }
  return agreed;
}

const place = (share, side) => Math.max(0, Math.min(side - 1, share * side - 0.5));

/** The IoU of two masks given as logits; 0 for two empty ones. */
function shared(one, other) {
  let both = 0, either = 0;
  for (let i = 0; i < one.length; i += 1) {
    if (one[i] > 0 && other[i] > 0) both += 1;
    if (one[i] > 0 || other[i] > 0) either += 1;
  }
  return both / Math.max(either, 1);
}
