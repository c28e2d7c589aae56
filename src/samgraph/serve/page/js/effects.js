// Effects on what was selected, as they will be exported, drawn on a canvas at the size of the screen.

import { blank, layerOf, tinted } from "./layers.js";
import { state } from "./state.js";

const LIVE_PIXELS = 2_400_000;

const infoOf = (name) => state.info?.effects.find((known) => known.name === name);

/** A number of the effect, or the default that the server gives, or ours. */
function number(effect, fallback) {
  const param = infoOf(effect.name)?.params[0];
  return param ? effect[param.name] ?? param.default : fallback;
}

/** What an effect changes by default: `object` or `background`. */
export const defaultTarget = (name) => infoOf(name)?.target ?? "background";

function copy(canvas) {
  const made = blank(canvas.width, canvas.height);
  made.getContext("2d").drawImage(canvas, 0, 0);
  return made;
}

function shrinkAndGrow(canvas, size, smooth) {
  const small = blank(canvas.width / size, canvas.height / size);
  const down = small.getContext("2d");
  down.imageSmoothingQuality = "high";
  down.drawImage(canvas, 0, 0, small.width, small.height);
  const made = blank(canvas.width, canvas.height);
  const up = made.getContext("2d");
  up.imageSmoothingEnabled = smooth;
  up.imageSmoothingQuality = "high";
  up.drawImage(small, 0, 0, made.width, made.height);
  return made;
}

function blurred(canvas, radius) {
  const made = blank(canvas.width, canvas.height);
  const context = made.getContext("2d");
  if (context.filter === undefined) return shrinkAndGrow(canvas, Math.max(1, radius), true);
  context.filter = `blur(${radius}px)`;
  const edge = radius * 2; // drawn larger first, so that the edges do not fade to nothing
  context.drawImage(canvas, -edge, -edge, canvas.width + 2 * edge, canvas.height + 2 * edge);
  context.drawImage(canvas, 0, 0);
  return made;
}

function filled(canvas, operation, color, alpha = 1) {
  const made = copy(canvas);
  const context = made.getContext("2d");
  context.globalCompositeOperation = operation;
  context.globalAlpha = alpha;
  context.fillStyle = color;
  context.fillRect(0, 0, made.width, made.height);
  return made;
}

/** What each effect makes of the pixels it changes; `scale`: pixels of the canvas per pixel of the picture. */
const CHANGES = {
  blur: (base, effect, scale) => blurred(base, Math.max(0.5, number(effect, 8) * scale)),
  grey: (base, effect) => filled(base, "saturation", "#808080", number(effect, 1)),
  pixelate: (base, effect, scale) => shrinkAndGrow(base, Math.max(1, number(effect, 16) * scale), false),
  spotlight: (base, effect) => filled(base, "source-over", "#000000", number(effect, 0.7)),
};

/** The selection as a white canvas. */
function selection(masks, width, height, scale) {
  const canvas = blank(width, height);
  const context = canvas.getContext("2d");
  for (const { rle } of masks) {
    const layer = layerOf(rle);
    if (layer) context.drawImage(layer.canvas, layer.x * scale, layer.y * scale, layer.width * scale, layer.height * scale);
  }
  return canvas;
}

/**
 * The picture with an effect: a canvas of at most `most` pixels. `masks`: [{rle, color}] of the visible objects.
 * Without masks the picture stays as it is.
 */
export function compose(picture, masks, effect, most = LIVE_PIXELS) {
  const { width, height } = state.medium;
  const scale = Math.min(1, Math.sqrt(most / (width * height)));
  const base = blank(width * scale, height * scale);
  const context = base.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, base.width, base.height);
  if (!masks.length || !effect) return base;
  const chosen = selection(masks, base.width, base.height, scale);
  const onObject = (effect.target ?? defaultTarget(effect.name)) === "object";
  if (effect.name === "cutout") return masked(base, chosen, !onObject);
  if (effect.name === "outline") return outlined(base, masks, effect, scale);
  if (effect.name === "colour") return coloured(base, masks, chosen, effect, onObject, scale);
  const change = CHANGES[effect.name];
  if (change) context.drawImage(masked(change(base, effect, scale), chosen, onObject), 0, 0);
  return base;
}

function masked(canvas, chosen, inside) {
  const made = copy(canvas);
  const context = made.getContext("2d");
  context.globalCompositeOperation = inside ? "destination-in" : "destination-out";
  context.drawImage(chosen, 0, 0);
  return made;
}

/** Every object in its own colour, or the target in the effect's colour. */
function coloured(base, masks, chosen, effect, onObject, scale) {
  const context = base.getContext("2d");
  const alpha = number(effect, 0.5);
  if (effect.color || !onObject) {
    const plain = filled(base, "source-over", effect.color ?? masks[0].color, alpha);
    context.drawImage(masked(plain, chosen, onObject), 0, 0);
    return base;
  }
  context.globalAlpha = alpha;
  for (const { rle, color } of masks) {
    const layer = layerOf(rle);
    if (layer) context.drawImage(tinted(layer, color), layer.x * scale, layer.y * scale, layer.width * scale, layer.height * scale);
  }
  context.globalAlpha = 1;
  return base;
}

/** A line round each object, outside of it. */
function outlined(base, masks, effect, scale) {
  for (const { rle, color } of masks) {
    const layer = layerOf(rle);
    if (!layer) continue;
    const line = blank(base.width, base.height), context = line.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.lineJoin = "round";
    context.lineWidth = 2 * Math.max(1 / scale, number(effect, 4));
    context.strokeStyle = effect.color ?? color;
    context.stroke(layer.path);
    context.globalCompositeOperation = "destination-out";
    context.drawImage(layer.canvas, layer.x, layer.y, layer.width, layer.height);
    base.getContext("2d").drawImage(line, 0, 0);
  }
  return base;
}
