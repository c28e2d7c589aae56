// The sample clip: a cup moves, tilts and grows before a blurred cat. It is drawn, so that it takes no bytes.

import { canvasOf } from "./pixels.js";

const FRAMES = 48, RATE = 12;
const BLUR = 4;
// The cup with its handle in the photograph, clockwise from the left of the rim, in pixels.
const CUP = [
  173, 107, 180, 78, 200, 50, 228, 30, 262, 19, 310, 20, 350, 33, 385, 58, 405, 92, 408, 126, 403, 158, 392, 190, 378, 217, 352, 242,
  330, 265, 304, 280, 274, 283, 252, 284, 232, 304, 206, 301, 196, 278, 206, 250, 217, 235, 197, 217, 181, 186, 175, 150,
];

export class SampleClip {
  constructor(ground, cup) {
    Object.assign(this, { ground, cup, width: ground.width, height: ground.height, frames: FRAMES, fps: RATE });
  }

  /** The clip of two photographs, as bitmaps. */
  static of(cat, coffee) {
    const ground = canvasOf(Math.floor(cat.width / 2) * 2, Math.floor(cat.height / 2) * 2), context = ground.getContext("2d");
    if (context.filter === undefined) { // shrunk and grown: nearly as blurred
      const small = canvasOf(cat.width / BLUR / 2, cat.height / BLUR / 2);
      small.getContext("2d").drawImage(cat, 0, 0, small.width, small.height);
      context.imageSmoothingQuality = "high";
      context.drawImage(small, 0, 0, cat.width, cat.height);
    } else {
      context.drawImage(cat, 0, 0);
      context.filter = `blur(${BLUR}px)`;
      context.drawImage(cat, 0, 0);
      context.filter = "none";
    }
    const xs = CUP.filter((_, i) => i % 2 === 0), ys = CUP.filter((_, i) => i % 2), left = Math.min(...xs), top = Math.min(...ys);
    const cup = canvasOf(Math.max(...xs) - left, Math.max(...ys) - top), cut = cup.getContext("2d");
    cut.beginPath();
    xs.forEach((x, i) => cut.lineTo(x - left, ys[i] - top));
    cut.clip();
    cut.drawImage(coffee, -left, -top);
    return new SampleClip(ground, cup);
  }

  draw(number) {
    const time = number / (FRAMES - 1), canvas = canvasOf(this.width, this.height), context = canvas.getContext("2d");
    const scale = 0.5 * (1 + 0.25 * Math.sin(Math.PI * time));
    context.imageSmoothingQuality = "high";
    context.drawImage(this.ground, 0, 0);
    context.translate(110 + 230 * time, 155 + 30 * Math.sin(2 * Math.PI * time));
    context.rotate((-14 * Math.sin(2 * Math.PI * time) * Math.PI) / 180);
    context.scale(scale, scale);
    context.drawImage(this.cup, -this.cup.width / 2, -this.cup.height / 2);
    return canvas;
  }
}
