// Results as files: masks, cut-outs, overlays and effects as pictures, COCO, DAVIS, JSON lines.

import { compose } from "../static/js/effects.js";
import { drawMask } from "../static/js/layers.js";
import { measure } from "../static/js/rle.js";
import { state } from "../static/js/state.js";
import { RequestError } from "./errors.js";
import { png, zip } from "./files.js";
import { toBytes } from "./masks.js";
import { canvasOf } from "./pixels.js";

const DEFAULT_LABEL = "object";
const OVERLAY = { opacity: 0.45, outlines: true, line: 2 };

const json = (value) => new Blob([JSON.stringify(value)], { type: "application/json" });
const stemOf = (name) => name.replace(/\.[^.]*$/, "") || "image";

/** A COCO document of images {name, size, objects: [{id, name, mask, score}]}. */
export function coco(images) {
  const names = [...new Set(images.flatMap(({ objects }) => objects.map(({ name }) => name || DEFAULT_LABEL)))];
  const annotations = [];
  images.forEach(({ objects }, i) => objects.forEach((object) => {
    const { area, box } = measure(object.mask), [x0, y0, x1, y1] = box ?? [0, 0, 0, 0];
    annotations.push({
      id: annotations.length + 1, image_id: i + 1, category_id: 1 + names.indexOf(object.name || DEFAULT_LABEL), iscrowd: 0,
      segmentation: object.mask, area, bbox: [x0, y0, x1 - x0, y1 - y0], ...(object.score == null ? {} : { score: object.score }), track_id: object.id,
    });
  }));
  return {
    info: { description: "masks by samgraph" },
    images: images.map(({ name, size: [height, width] }, i) => ({ id: i + 1, file_name: name, height, width })),
    categories: names.map((name, i) => ({ id: i + 1, name })), annotations,
  };
}

/** Object ids per pixel; where masks overlap, the lowest id is on top, or with `ranked` the smallest mask. */
function labels(objects, [height, width], { ranked = false } = {}) {
  const out = new Uint8Array(height * width);
  const order = ranked ? [...objects].sort((a, b) => measure(b.mask).area - measure(a.mask).area) : [...objects].sort((a, b) => b.id - a.id);
  for (const { id, mask } of order) {
    if (id < 1 || id > 255) throw new RequestError(400, `object ${id} does not fit in a palette image`, { hint: "ids from 1 to 255" });
    const bits = toBytes(mask);
    for (let i = 0; i < out.length; i += 1) if (bits[i]) out[i] = id;
  }
  return out;
}

const davis = (objects, size) => png(labels(objects, size), size, { palette: true });

async function mask(objects, size) {
  if (objects.length > 1) return png(labels(objects, size, { ranked: true }), size, { palette: true });
  return png(objects.length ? toBytes(objects[0].mask).map((bit) => bit * 255) : new Uint8Array(size[0] * size[1]), size);
}

/** The picture with an effect, drawn by the page's own code at full size. */
function drawn(picture, objects, effect, info) {
  Object.assign(state, { info, medium: { width: picture.width, height: picture.height } });
  const masks = objects.map(({ mask: rle, color }) => ({ rle, color: color || "#2e90fa" }));
  return compose(picture, masks, effect, Infinity).convertToBlob({ type: "image/png" });
}

function overlay(picture, objects) {
  const canvas = canvasOf(picture.width, picture.height), context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  for (const object of objects) drawMask(context, object.mask, object.color || "#2e90fa", OVERLAY);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
}

/** The file of a picture's objects: {blob, name}. */
export async function exportImage({ name, size, picture, info }, { format, objects, effect }) {
  const stem = stemOf(name);
  if (format === "coco") return { blob: json(coco([{ name, size, objects }])), name: `${stem}.json` };
  if (format === "png") return { blob: await mask(objects, size), name: `${stem}_mask.png` };
  if (format === "davis") return { blob: await davis(objects, size), name: `${stem}_davis.png` };
  if (format === "overlay") return { blob: await overlay(picture, objects), name: `${stem}_overlay.jpg` };
  if (format === "cutout") return { blob: await drawn(picture, objects, { name: "cutout", target: "background" }, info), name: `${stem}_cutout.png` };
  if (format === "effect" && effect) return { blob: await drawn(picture, objects, effect, info), name: `${stem}_${effect.name}.png` };
  throw new RequestError(400, `there is no format \`${format}\``, { hint: info.formats.image.map((known) => known.name).join(", ") });
}

/** The file of a video's masks: {blob, name}. `frames`: [{frame, objects: [{id, name, mask, score, present}]}]. */
export async function exportVideo({ name, size, frames }, { format }, onFrame) {
  const stem = stemOf(name), number = (frame) => String(frame).padStart(5, "0");
  if (format === "coco") {
    const images = frames.map(({ frame, objects }) => ({ name: `${number(frame)}.png`, size, objects: objects.filter(({ present }) => present) }));
    return { blob: json(coco(images)), name: `${stem}_coco.json` };
  }
  if (format === "jsonl") {
    const lines = frames.map(({ frame, objects }) => `${JSON.stringify({ frame, objects })}\n`);
    return { blob: new Blob(lines, { type: "application/jsonl" }), name: `${stem}_jsonl.jsonl` };
  }
  if (format !== "davis") throw new RequestError(400, `there is no format \`${format}\``, { hint: "davis, coco, jsonl" });
  const files = [];
  for (const { frame, objects } of frames) {
    files.push({ name: `${number(frame)}.png`, blob: await davis(objects.filter(({ present }) => present), size) });
    onFrame();
  }
  return { blob: await zip(files), name: `${stem}_davis.zip` };
}
