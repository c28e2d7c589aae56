// Undo and redo. A document is {objects, activeId}; it is never changed, only replaced.

import { set, state } from "./state.js";

const MOST = 500;
const past = [];
const future = [];
let onChange = () => {};

/** Sets what is called with (before, after) whenever the document changed. */
export function onDocument(f) { onChange = f; }

const current = () => ({ objects: state.objects, activeId: state.activeId });

function show(document) {
  const before = current();
  set({ objects: document.objects, activeId: document.activeId, history: Symbol("history") });
  onChange(before, document);
}

/** Makes a change that can be undone; `label` says what it was, in a few words. */
export function commit(label, document) {
  past.push({ label, document: current() });
  if (past.length > MOST) past.shift();
  future.length = 0;
  show({ ...current(), ...document });
}

/** Replaces the document without a step of history: a new medium, a name while it is typed. */
export function replace(document, { forget = false } = {}) {
  if (forget) past.length = future.length = 0;
  set({ ...document, history: Symbol("history") });
}

function step(from, to) {
  const entry = from.pop();
  if (!entry) return null;
  to.push({ label: entry.label, document: current() });
  show(entry.document);
  return entry.label;
}

/** Undoes a change; returns its label, or null. */
export const undo = () => step(past, future);
/** Redoes a change; returns its label, or null. */
export const redo = () => step(future, past);
export const undoLabel = () => past.at(-1)?.label ?? null;
export const redoLabel = () => future.at(-1)?.label ?? null;
