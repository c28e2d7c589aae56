// What pointers and the canvas's own keys do, tool by tool.

import { beginStroke, cancelStroke, continueStroke, endStroke } from "./brush.js";
import { draft, repaint } from "./canvas.js";
import { $ } from "./dom.js";
import { pickAt } from "./everything.js";
import { hoverAt, leave } from "./hover.js";
import { announce } from "./notices.js";
import { addPoint, promptOf, removePoint, setBox } from "./prompts.js";
import { active, set, state } from "./state.js";
import { pan, reveal, toImage, toStage, view, zoom } from "./view.js";

const DRAG = 5;      // pixels of the screen from which on a press is a drag
const NEAR = 9;      // pixels of the screen within which a point is hit
const SMALLEST = 3;  // pixels of the picture that a box must have

const pointers = new Map();
let drag = null;     // {kind: "click" | "pan" | "box" | "stroke", start, last, button}
let spaceHeld = false; // a drag then moves the view, whatever the tool
let pressed = false; // the focus that comes now comes from a pointer
let corner = null;   // the first corner of a box set with the keyboard

const inside = ([x, y]) => x >= 0 && y >= 0 && x < state.medium.width && y < state.medium.height;
const clamp = ([x, y]) => [Math.min(state.medium.width, Math.max(0, x)), Math.min(state.medium.height, Math.max(0, y))];
const rounded = ([x, y]) => [Math.round(x * 10) / 10, Math.round(y * 10) / 10];

/** Listens to the canvas. */
export function startTools() {
  const canvas = $("view");
  canvas.addEventListener("pointerdown", () => { pressed = true; canvas.classList.remove("by-key"); setTimeout(() => { pressed = false; }); });
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { draft.ring = null; leave(); repaint(); });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("keydown", key);
  const space = (down) => (event) => {
    if (event.code !== "Space" || state.medium?.kind !== "image" || (down && event.target !== canvas && event.target !== document.body)) return;
    spaceHeld = down;
    canvas.style.cursor = down || state.tool === "pan" ? "grab" : state.tool === "brush" || state.tool === "erase" ? "none" : "crosshair";
    if (down) event.preventDefault();
  };
  addEventListener("keydown", space(true));
  addEventListener("keyup", space(false));
  canvas.addEventListener("focus", () => { canvas.classList.toggle("by-key", !pressed); repaint(); });
  canvas.addEventListener("blur", () => { corner = null; draft.box = null; repaint(); });
}

function where(event) {
  const box = $("view").getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function down(event) {
  if (!state.medium) return;
  const at = where(event);
  $("view").setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, at);
  draft.cursor = null;
  leave();
  if (pointers.size === 2) return startPinch();
  const kind = event.button === 1 || state.tool === "pan" || spaceHeld ? "pan"
    : state.tool === "brush" || state.tool === "erase" ? "stroke" : "click";
  drag = { kind, start: at, last: at, button: event.button, touch: event.pointerType === "touch", modifier: event.altKey || event.ctrlKey || event.metaKey };
  if (kind === "stroke") beginStroke(...toImage(...at));
  return undefined;
}

function startPinch() {
  if (drag?.kind === "stroke") cancelStroke();
  draft.box = null;
  drag = { kind: "pinch" };
  repaint();
}

function move(event) {
  if (!state.medium) return;
  const at = where(event);
  const before = pointers.get(event.pointerId);
  if (before) pointers.set(event.pointerId, at);
  if (!drag) return hovered(at, event);
  if (drag.kind === "pinch") return pinch(event.pointerId, before, at);
  if (drag.kind === "click" && Math.hypot(at[0] - drag.start[0], at[1] - drag.start[1]) > DRAG) drag.kind = dragKind();
  if (drag.kind === "pan") pan(at[0] - drag.last[0], at[1] - drag.last[1]);
  if (drag.kind === "stroke") continueStroke(...toImage(...at));
  if (drag.kind === "box") {
    const [x0, y0] = clamp(toImage(...drag.start)), [x1, y1] = clamp(toImage(...at));
    draft.box = [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
    repaint();
  }
  drag.last = at;
  if (state.tool === "brush" || state.tool === "erase") draft.ring = at;
  return undefined;
}

/** What a drag does: a box, or with a finger on the point tool, moving the picture. */
function dragKind() {
  if (state.tool === "box") return "box";
  if (drag.touch || state.tool === "everything" || drag.button !== 0) return "pan";
  return "box";
}

function hovered(at, event) {
  if (state.tool === "brush" || state.tool === "erase") {
    draft.ring = at;
    repaint();
  }
  if (event.pointerType === "touch") return;
  const position = toImage(...at);
  if (inside(position)) hoverAt(...position);
  else leave();
}

function pinch(id, before, at) {
  const other = [...pointers].find(([key]) => key !== id)?.[1];
  if (!other || !before) return;
  const distance = (a) => Math.max(20, Math.hypot(a[0] - other[0], a[1] - other[1]));
  zoom(distance(at) / distance(before), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
  pan((at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
}

function up(event) {
  pointers.delete(event.pointerId);
  const ended = drag;
  if (!ended) return;
  if (ended.kind === "pinch") { if (!pointers.size) drag = null; return; }
  drag = null;
  if (event.type === "pointercancel") { cancelStroke(); draft.box = null; repaint(); return; }
  if (ended.kind === "stroke") endStroke();
  if (ended.kind === "box") endBox();
  if (ended.kind === "click") {
    const outside = ended.button === 2 || ended.modifier ? 1 : 0;
    click(toImage(...ended.start), outside ? 1 - state.sign : state.sign);
  }
}

function endBox() {
  const box = draft.box;
  draft.box = null;
  if (box && box[2] - box[0] >= SMALLEST && box[3] - box[1] >= SMALLEST) setBox(box.map((v) => Math.round(v * 10) / 10));
  repaint();
}

/** A click at a position of the picture. */
function click(position, label) {
  if (!inside(position)) return;
  if (state.tool === "everything") { pickAt(...position); return; }
  if (state.tool === "box") return;
  const hit = pointAt(position);
  if (hit >= 0) removePoint(hit);
  else addPoint(...rounded(position), label);
}

function pointAt(position) {
  const prompt = promptOf(active());
  const [x, y] = toStage(...position);
  if (!prompt || !state.settings.prompts) return -1;
  return prompt.points.findIndex((point) => { const [px, py] = toStage(...point); return Math.hypot(px - x, py - y) < NEAR; });
}

function wheel(event) {
  event.preventDefault();
  if (event.shiftKey) return pan(-event.deltaY || -event.deltaX, 0);
  const lines = event.deltaMode === 1 ? 16 : 1;
  const step = Math.max(-60, Math.min(60, event.deltaY * lines));
  return zoom(Math.exp(-step * (event.ctrlKey ? 0.012 : 0.004)), ...where(event));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The keys of the canvas: arrows move a cursor, Enter is a click, Shift Enter a click outside. */
function key(event) {
  if (!state.medium || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in ARROWS) moveCursor(ARROWS[event.key], event.shiftKey ? 1 : Math.max(1, 12 / view.scale));
  else if (event.key === "Enter") enter(event.shiftKey ? 1 - state.sign : state.sign);
  else if (event.key === "Escape" && (corner || draft.box)) { corner = null; draft.box = null; repaint(); }
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function moveCursor([dx, dy], step) {
  $("view").classList.add("by-key");
  const { width, height } = state.medium;
  const [x, y] = draft.cursor ?? [width / 2, height / 2];
  draft.cursor = draft.cursor ? [Math.min(width - 1, Math.max(0, x + dx * step)), Math.min(height - 1, Math.max(0, y + dy * step))] : [x, y];
  reveal(...draft.cursor);
  if (corner) {
    const [cx, cy] = corner, [px, py] = draft.cursor;
    draft.box = [Math.min(cx, px), Math.min(cy, py), Math.max(cx, px), Math.max(cy, py)];
  }
  hoverAt(...draft.cursor);
  announce(`${Math.round(draft.cursor[0])}, ${Math.round(draft.cursor[1])}`);
  repaint();
}

function enter(label) {
  if (!draft.cursor) return moveCursor([0, 0], 0);
  leave();
  if (state.tool === "brush" || state.tool === "erase") {
    beginStroke(...draft.cursor);
    return endStroke();
  }
  if (state.tool !== "box") return click(draft.cursor, label);
  if (corner) { corner = null; return endBox(); }
  corner = draft.cursor;
  return announce("First corner set. Move and press Enter for the other.");
}

/** Chooses a tool. */
export function chooseTool(tool) {
  corner = null;
  Object.assign(draft, { box: null, ring: null });
  leave();
  set({ tool });
  repaint();
}
