// One image: encoded once, prompted any number of times.

import { pointTensors, readMaskLogits, readPoints } from "./prompts.js";
import { RequestError } from "./errors.js";
import { enlarge } from "./masks.js";
import { imageTensor } from "./resize.js";

const STABLE = Math.fround(0.98); // a single mask is taken where so much of it stays when the threshold moves
const CLAMP = 32;                 // of logits that are used as a mask prompt
const MOST_REFINABLE = 32;
const rounded = (score) => Math.round(score * 1e4) / 1e4;

/** An encoded image; `predict` may be called any number of times. */
export class EncodedImage {
  constructor(model, features, size) {
    Object.assign(this, { model, features, size, refinable: new Map() });
  }

  /** Encodes RGBA pixels {data, width, height}. */
  static async of(model, pixels) {
    const features = await model.encode(imageTensor(pixels, model.preprocessing));
    return new EncodedImage(model, features, [pixels.height, pixels.width]);
  }

  /** The reply to a predict request: {masks: [{rle, score, box, area}], best, refine}. */
  async predict(body) {
    const side = this.model.maskSide;
    const logits = body.mask ? readMaskLogits(body.mask, this.size, side) : this.refined(body.refine);
    const prompt = readPoints(body, this.size);
    if (!prompt.xy.length && !logits) throw new RequestError(400, "there is no prompt", { hint: "points, a box or a mask" });
    const isAmbiguous = body.points?.length === 1 && !body.box && !logits;
    const found = await this.decode(prompt, { logits, multimask: body.multimask ?? isAmbiguous });
    const masks = found.map(({ low, score }) => ({ ...shown(enlarge(low, side, this.size)), score: rounded(score) }));
    const best = indexOfLargest(found.map(({ score }) => score));
    return { masks, best, refine: this.keep(found.map(({ low }) => low), best) };
  }

  /** The masks of a prompt, three of them or one: [{low: logits [L, L], score}]. */
  async decode(prompt, { logits = null, multimask }) {
    const [decoded] = logits ? [await this.model.decode(this.features, pointTensors(prompt, this.size, this.model.size), { mask: logits, multimask })]
      : await this.decodePoints([prompt]);
    return chosen(decoded, multimask, this.model.maskSide);
  }

  /** Prompts of equally many points, without masks: what the decoder gives for each. */
  decodePoints(prompts) {
    return this.model.decodePoints(this.features, prompts.map((prompt) => pointTensors(prompt, this.size, this.model.size)));
  }

  keep(logits, best) {
    const token = crypto.getRandomValues(new Uint32Array(2)).join("-");
    this.refinable.set(token, [logits[best], ...logits]);
    for (const oldest of this.refinable.keys()) {
      if (this.refinable.size <= MOST_REFINABLE) break;
      this.refinable.delete(oldest);
    }
    return token;
  }

  /** The logits that a token names, `.n` its n-th mask; null where they are forgotten. */
  refined(token) {
    const [name, number] = (token ?? "").split(".");
    const logits = this.refinable.get(name)?.[/^\d+$/.test(number ?? "") ? 1 + Number(number) : 0];
    return logits ? logits.map((value) => Math.max(-CLAMP, Math.min(CLAMP, value))) : null;
  }
}

/** Masks 1 to 3 with multimask output, else mask 0; an unstable mask 0 gives way to the best of the others. */
export function chosen({ masks, ious, stability }, multimask, side) {
  const each = side * side;
  const others = [1, 2, 3];
  const single = stability[0] >= STABLE ? 0 : 1 + indexOfLargest(others.map((i) => ious[i]));
  return (multimask ? others : [single]).map((i) => ({ low: masks.slice(i * each, (i + 1) * each), score: ious[i] }));
}

/** A mask as replies hold it. */
export const shown = ({ rle, box, area }) => ({ rle, box, area });

/** The index of the largest of some numbers, the first of equals. */
export const indexOfLargest = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
