// The position of the image on the screen: zoom and pan.

import { state } from "./state.js";

/** scale: pixels of the screen per pixel of the picture; x, y: its top left corner in the stage. */
export const view = { scale: 1, x: 0, y: 0, width: 1, height: 1, fitted: true, covered: 0 };

const listeners = [];
export const onView = (f) => listeners.push(f);
const tell = () => listeners.forEach((f) => f());

/** The space of the stage that other things cover: [top, right, bottom, left]; on a phone, also an open sheet. */
const margins = () => (view.width < 700 ? [10, 10, Math.max(70, view.covered + 10), 10] : [64, 20, 58, 20]);

function fitScale() {
  const [top, right, bottom, left] = margins();
  const { width, height } = state.medium;
  const space = [Math.max(40, view.width - left - right), Math.max(40, view.height - top - bottom)];
  return Math.min(space[0] / width, space[1] / height, 6);
}

/** Shows the whole picture. */
export function fit() {
  if (!state.medium) return;
  const [top, right, bottom, left] = margins();
  view.scale = fitScale();
  view.x = left + (view.width - left - right - state.medium.width * view.scale) / 2;
  view.y = top + (view.height - top - bottom - state.medium.height * view.scale) / 2;
  view.fitted = true;
  tell();
}

/** Zooms by a factor about a position of the stage; the middle if omitted. */
export function zoom(factor, x = view.width / 2, y = view.height / 2) {
  if (!state.medium) return;
  const scale = Math.min(40, Math.max(Math.min(fitScale(), 1) * 0.5, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  view.fitted = false;
  keepInSight();
  tell();
}

/** Moves the picture by pixels of the screen. */
export function pan(dx, dy) {
  view.x += dx;
  view.y += dy;
  view.fitted = false;
  keepInSight();
  tell();
}

function keepInSight() {
  if (!state.medium) return;
  const edge = 60;
  view.x = Math.min(view.width - edge, Math.max(edge - state.medium.width * view.scale, view.x));
  view.y = Math.min(view.height - edge, Math.max(edge - state.medium.height * view.scale, view.y));
}

/** A sheet covers this many pixels of the stage from below; an image shown whole moves up. */
export function cover(pixels) {
  view.covered = pixels;
  if (view.fitted) fit();
}

/** The stage has another size. */
export function resize(width, height) {
  const moved = [(width - view.width) / 2, (height - view.height) / 2];
  Object.assign(view, { width, height });
  if (view.fitted) fit();
  else { view.x += moved[0]; view.y += moved[1]; tell(); }
}

/** Pixels of the stage to pixels of the picture. */
export const toImage = (x, y) => [(x - view.x) / view.scale, (y - view.y) / view.scale];
/** Pixels of the picture to pixels of the stage. */
export const toStage = (x, y) => [x * view.scale + view.x, y * view.scale + view.y];

/** Moves the picture so that a position of it is well inside the stage. */
export function reveal(x, y) {
  const [sx, sy] = toStage(x, y), edge = 48;
  const dx = Math.max(0, edge - sx) + Math.min(0, view.width - edge - sx);
  const dy = Math.max(0, edge - sy) + Math.min(0, view.height - edge - sy);
  if (dx || dy) pan(dx, dy);
}
