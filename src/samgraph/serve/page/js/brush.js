// Painting and erasing a mask by hand. What is painted is the mask; the model is asked only to refine it.

import { draft, repaint } from "./canvas.js";
import { blank, layerOf } from "./layers.js";
import { shown } from "./masks.js";
import { makeObject, setMask } from "./prompts.js";
import { encode, stepFor } from "./rle.js";
import { active, state } from "./state.js";
import { view } from "./view.js";

const MOST_SAMPLES = 3_000_000;
let last = null, step = 1, moved = false;

/** Begins a stroke at a position of the picture, on the mask that the active object has. */
export function beginStroke(x, y) {
  const { width, height } = state.medium;
  const object = active();
  step = stepFor(width, height, MOST_SAMPLES);
  const canvas = blank(Math.ceil(width / step), Math.ceil(height / step));
  const rle = object && shown(object)?.rle, layer = rle && layerOf(rle);
  if (layer) canvas.getContext("2d").drawImage(layer.canvas, layer.x / step, layer.y / step);
  draft.stroke = { canvas, id: object?.id ?? null, color: object?.color ?? makeObject().color };
  last = null;
  moved = false;
  continueStroke(x, y);
}

/** Continues the stroke to a position of the image. */
export function continueStroke(x, y) {
  if (!draft.stroke) return;
  const context = draft.stroke.canvas.getContext("2d");
  context.globalCompositeOperation = state.tool === "erase" ? "destination-out" : "source-over";
  context.lineCap = context.lineJoin = "round";
  context.strokeStyle = "#ffffff";
  context.lineWidth = Math.max(1, state.brush / view.scale / step);
  context.beginPath();
  const [fromX, fromY] = last ?? [x, y];
  context.moveTo(fromX / step, fromY / step);
  context.lineTo(x / step, y / step + (last ? 0 : 0.01));
  context.stroke();
  last = [x, y];
  moved = true;
  repaint();
}

/** Ends the stroke; what was painted becomes the object's mask. */
export function endStroke() {
  const stroke = draft.stroke;
  draft.stroke = null;
  repaint();
  if (!stroke || !moved || (stroke.id === null && state.tool === "erase")) return;
  const { canvas } = stroke;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const samples = new Uint8Array(canvas.width * canvas.height);
  for (let i = 0; i < samples.length; i += 1) samples[i] = data[4 * i + 3] > 127 ? 1 : 0;
  const { width, height } = state.medium;
  setMask(encode(samples, canvas.width, canvas.height, step, [height, width]), state.tool === "erase" ? "erase" : "paint");
}

/** Gives up a stroke: a second finger came down. */
export function cancelStroke() {
  draft.stroke = null;
  repaint();
}
