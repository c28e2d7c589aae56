// Pictures as pixels, and pixels as picture files.

import { RequestError } from "./errors.js";

const MOST_PIXELS = 100e6;

/** A canvas that is not on the page. */
export const canvasOf = (width, height) => new OffscreenCanvas(Math.max(1, Math.round(width)), Math.max(1, Math.round(height)));

/** A picture file as a bitmap, upright, its colours as they are in the file. */
export async function readBitmap(blob, name) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw new RequestError(415, `${name} is not a picture that this browser can read`, { hint: "Open a JPEG, PNG or WebP." });
  }
  if (bitmap.width * bitmap.height > MOST_PIXELS) {
    throw new RequestError(413, `${name} has ${bitmap.width} x ${bitmap.height} pixels`, { hint: `At most ${MOST_PIXELS / 1e6} megapixels.` });
  }
  return bitmap;
}

/** The pixels of something that can be drawn: {data: RGBA bytes, width, height}. */
export function pixelsOf(drawable, width = drawable.width, height = drawable.height) {
  const context = canvasOf(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(drawable, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}

/** A picture file of something that can be drawn, at a width. */
export async function pictureFile(drawable, width, { type = "image/jpeg", quality = 0.9 } = {}) {
  const canvas = canvasOf(width, (drawable.height * width) / drawable.width), context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(drawable, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type, quality });
}
