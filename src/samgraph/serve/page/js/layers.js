// Masks as things to draw: a tinted bitmap and an outline, made once per mask and kept while the mask is.

import { outline } from "./contours.js";
import { bitmap, stepFor } from "./rle.js";

const MOST_SAMPLES = 3_000_000; // of a layer: bounds memory for pictures of any size
const layers = new WeakMap();

/** A canvas of some size, not on the page; in a worker, too. */
export function blank(width, height) {
  const size = { width: Math.max(1, Math.round(width)), height: Math.max(1, Math.round(height)) };
  if (typeof document === "undefined") return new OffscreenCanvas(size.width, size.height);
  return Object.assign(document.createElement("canvas"), size);
}

/** The layer of a mask: {canvas (white), x, y, width, height in pixels, path}; null where it is empty. */
export function layerOf(rle) {
  if (!layers.has(rle)) layers.set(rle, make(rle));
  return layers.get(rle);
}

function make(rle) {
  const [height, width] = rle.size;
  const bits = bitmap(rle, stepFor(width, height, MOST_SAMPLES));
  if (!bits) return null;
  const canvas = blank(bits.width, bits.height);
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(bits.width, bits.height);
  const words = new Uint32Array(pixels.data.buffer);
  for (let i = 0; i < words.length; i += 1) if (bits.data[i]) words[i] = 0xffffffff;
  context.putImageData(pixels, 0, 0);
  const { step } = bits;
  let path = null;
  return {
    canvas, x: bits.x * step, y: bits.y * step, width: bits.width * step, height: bits.height * step,
    get path() { return (path ??= outline(bits)); },
    tints: new Map(),
  };
}

/** The mask's canvas in a colour. */
export function tinted(layer, color) {
  let canvas = layer.tints.get(color);
  if (!canvas) {
    canvas = blank(layer.canvas.width, layer.canvas.height);
    const context = canvas.getContext("2d");
    context.drawImage(layer.canvas, 0, 0);
    context.globalCompositeOperation = "source-in";
    context.fillStyle = color;
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (layer.tints.size > 2) layer.tints.clear();
    layer.tints.set(color, canvas);
  }
  return canvas;
}

/** Draws a mask into a context whose unit is a pixel of the picture. */
export function drawMask(context, rle, color, { opacity, outlines, line = 1.5, dash = null }) {
  const layer = layerOf(rle);
  if (!layer) return;
  context.save();
  context.globalAlpha = opacity;
  context.drawImage(tinted(layer, color), layer.x, layer.y, layer.width, layer.height);
  if (outlines) {
    context.globalAlpha = 1;
    context.lineJoin = "round";
    context.lineWidth = line;
    context.strokeStyle = color;
    if (dash) context.setLineDash(dash);
    context.stroke(layer.path);
  }
  context.restore();
}
