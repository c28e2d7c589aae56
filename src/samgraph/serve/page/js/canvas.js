// The picture and all that is drawn over it, painted when something changed.

import { $ } from "./dom.js";
import { compose } from "./effects.js";
import { frameNow } from "./frames.js";
import { blank, drawMask, layerOf, tinted } from "./layers.js";
import { shown } from "./masks.js";
import { COLORS, promptOf } from "./prompts.js";
import { active, state } from "./state.js";
import { toStage, view } from "./view.js";

/** What a tool draws while it is used: box [x0, y0, x1, y1], cursor [x, y], ring [x, y], stroke canvas. */
export const draft = { box: null, cursor: null, ring: null, stroke: null };

let still = null;   // the picture of an image
let lastFrame = null;
let effectKey = [], effectCanvas = null;
let foundOf = null, foundCanvas = null;
let asked = false;

/** Sets the picture of an image, an ImageBitmap; null for videos. */
export function setPicture(bitmap) {
  still?.close?.();
  still = bitmap;
  lastFrame = null;
  effectKey = [];
  repaint();
}

/** The picture that is shown: an image, or the frame; where a frame is on its way, the one before it. */
export function picture() {
  if (state.medium?.kind !== "video") return still;
  const frame = frameNow(state.frame);
  if (frame) lastFrame = frame;
  return frame ?? (lastFrame?.width ? lastFrame : null);
}

/** Asks for a painting before the next frame of the screen. */
export function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; paint(); });
}

/** The visible objects that have a mask: [{object, rle, color}]. */
export function visibleMasks() {
  if (!state.medium) return [];
  return state.objects.filter((object) => object.visible)
    .map((object) => ({ object, color: object.color, rle: shown(object)?.rle }))
    .filter(({ rle }) => rle);
}

function paint() {
  const canvas = $("view"), context = canvas.getContext("2d");
  const ratio = devicePixelRatio || 1;
  const size = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const shownPicture = picture();
  if (!state.medium || !shownPicture) return;
  context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  paintPicture(context, shownPicture);
  context.save();
  context.beginPath();
  context.rect(0, 0, state.medium.width, state.medium.height);
  context.clip();
  paintMasks(context);
  context.restore();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paintPrompts(context);
  paintDraft(context);
}

function paintPicture(context, shownPicture) {
  const { width, height } = state.medium;
  context.imageSmoothingEnabled = view.scale * (devicePixelRatio || 1) < 3;
  context.imageSmoothingQuality = "high";
  const masks = visibleMasks();
  if (!state.effect || !masks.length) {
    context.drawImage(shownPicture, 0, 0, width, height);
    return;
  }
  paintChecks(context);
  context.drawImage(withEffect(shownPicture, masks), 0, 0, width, height);
}

function withEffect(shownPicture, masks) {
  const key = [shownPicture, state.effect, ...masks.flatMap(({ rle, color }) => [rle, color])];
  if (key.length !== effectKey.length || key.some((part, i) => part !== effectKey[i])) {
    effectKey = key;
    effectCanvas = compose(shownPicture, masks, state.effect);
  }
  return effectCanvas;
}

let checks = null;
function paintChecks(context) {
  const { width, height } = state.medium;
  if (!checks) {
    checks = blank(16, 16);
    const small = checks.getContext("2d");
    small.fillStyle = "#8a8f9a40";
    small.fillRect(0, 0, 8, 8);
    small.fillRect(8, 8, 8, 8);
  }
  const pattern = context.createPattern(checks, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / view.scale));
  context.fillStyle = pattern;
  context.fillRect(0, 0, width, height);
}

function paintMasks(context) {
  const { opacity, outlines } = state.settings;
  const line = 1.6 / view.scale;
  if (state.found && state.tool === "everything") return paintFound(context, line);
  for (const { object, rle, color } of visibleMasks()) {
    if (draft.stroke?.id === object.id) continue;
    if (!state.effect) drawMask(context, rle, color, { opacity, outlines, line: object.id === state.activeId ? line * 1.5 : line });
  }
  if (draft.stroke) {
    context.globalAlpha = Math.max(0.3, opacity);
    context.drawImage(tintedStroke(), 0, 0, state.medium.width, state.medium.height);
    context.globalAlpha = 1;
  }
  if (state.hover) {
    const color = active()?.color ?? COLORS.find((c) => !state.objects.some((object) => object.color === c)) ?? COLORS[0];
    drawMask(context, state.hover.rle, color, { opacity: 0.3, outlines: true, line, dash: [5 / view.scale, 4 / view.scale] });
  }
  return undefined;
}

function tintedStroke() {
  const { canvas, color } = draft.stroke;
  const made = blank(canvas.width, canvas.height);
  const context = made.getContext("2d");
  context.drawImage(canvas, 0, 0);
  context.globalCompositeOperation = "source-in";
  context.fillStyle = color;
  context.fillRect(0, 0, made.width, made.height);
  return made;
}

/** All masks of everything mode are one picture; the mask under the pointer is drawn above it. */
function paintFound(context, line) {
  const { masks, lit } = state.found;
  const { width, height } = state.medium;
  if (foundOf !== masks) {
    const scale = Math.min(1, Math.sqrt(3e6 / (width * height)));
    foundOf = masks;
    foundCanvas = blank(width * scale, height * scale);
    const small = foundCanvas.getContext("2d");
    small.scale(scale, scale);
    masks.forEach(({ rle }, i) => drawMask(small, rle, COLORS[i % COLORS.length], { opacity: 0.5, outlines: true, line: 1.2 / scale }));
  }
  context.globalAlpha = lit == null ? 0.85 : 0.45;
  context.drawImage(foundCanvas, 0, 0, width, height);
  context.globalAlpha = 1;
  if (lit != null) drawMask(context, masks[lit].rle, COLORS[lit % COLORS.length], { opacity: 0.65, outlines: true, line: line * 1.5 });
}

function paintPrompts(context) {
  const object = active(), prompt = promptOf(object);
  if (!prompt || !state.settings.prompts || state.playing || !object.visible || state.tool === "everything") return;
  if (prompt.box) {
    const [x0, y0] = toStage(prompt.box[0], prompt.box[1]), [x1, y1] = toStage(prompt.box[2], prompt.box[3]);
    strokeTwice(context, object.color, () => context.strokeRect(x0, y0, x1 - x0, y1 - y0));
  }
  prompt.points.forEach(([x, y], i) => paintPoint(context, ...toStage(x, y), prompt.labels[i] ? object.color : null));
}

function strokeTwice(context, color, stroke) {
  context.lineWidth = 3.5;
  context.strokeStyle = "rgb(255 255 255 / 85%)";
  stroke();
  context.lineWidth = 1.75;
  context.strokeStyle = color;
  stroke();
}

/** A point: a filled disc with a plus, or, outside, a white disc with a red minus. */
function paintPoint(context, x, y, color) {
  context.beginPath();
  context.arc(x, y, 8, 0, 2 * Math.PI);
  context.fillStyle = color ?? "#ffffff";
  context.fill();
  context.lineWidth = 2;
  context.strokeStyle = color ? "#ffffff" : "#d92d20";
  context.stroke();
  context.beginPath();
  context.moveTo(x - 4, y);
  context.lineTo(x + 4, y);
  if (color) { context.moveTo(x, y - 4); context.lineTo(x, y + 4); }
  context.strokeStyle = color ? "#ffffff" : "#d92d20";
  context.stroke();
}

function paintDraft(context) {
  const accent = active()?.color ?? "#4f46e5";
  if (draft.box) {
    const [x0, y0] = toStage(draft.box[0], draft.box[1]), [x1, y1] = toStage(draft.box[2], draft.box[3]);
    context.fillStyle = `${accent}22`;
    context.fillRect(x0, y0, x1 - x0, y1 - y0);
    strokeTwice(context, accent, () => context.strokeRect(x0, y0, x1 - x0, y1 - y0));
  }
  if (draft.ring) {
    const [x, y] = draft.ring;
    strokeTwice(context, state.tool === "erase" ? "#d92d20" : accent, () => { context.beginPath(); context.arc(x, y, state.brush / 2, 0, 2 * Math.PI); context.stroke(); });
  }
  if (draft.cursor && document.activeElement === $("view")) {
    const [x, y] = toStage(...draft.cursor);
    strokeTwice(context, state.sign ? accent : "#d92d20", () => {
      context.beginPath();
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) { context.moveTo(x + dx * 5, y + dy * 5); context.lineTo(x + dx * 15, y + dy * 15); }
      context.stroke();
    });
  }
}

/** A small picture of a mask on the medium, into a canvas of the page. */
export function paintThumbnail(canvas, rle, color) {
  const source = picture(), context = canvas.getContext("2d");
  const { width, height } = state.medium;
  const layer = layerOf(rle);
  const scale = Math.max(canvas.width / width, canvas.height / height);
  const middle = layer ? [layer.x + layer.width / 2, layer.y + layer.height / 2] : [width / 2, height / 2];
  const x = Math.min(0, Math.max(canvas.width - width * scale, canvas.width / 2 - middle[0] * scale));
  const y = Math.min(0, Math.max(canvas.height - height * scale, canvas.height / 2 - middle[1] * scale));
  context.setTransform(scale, 0, 0, scale, x, y);
  context.imageSmoothingQuality = "high";
  if (source) context.drawImage(source, 0, 0, width, height);
  context.fillStyle = "rgb(10 12 18 / 35%)";
  context.fillRect(0, 0, width, height);
  if (!layer) return;
  context.globalAlpha = 0.75;
  context.drawImage(tinted(layer, color), layer.x, layer.y, layer.width, layer.height);
  context.globalAlpha = 1;
}
