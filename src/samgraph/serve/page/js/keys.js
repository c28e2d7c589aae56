// The keys of the page, in one table: what the help lists is what is done.

import { $ } from "./dom.js";
import { showExport } from "./export.js";
import { showHelp } from "./help.js";
import { redo, undo } from "./history.js";
import { announce } from "./notices.js";
import { chooseCandidate, newObject } from "./objects.js";
import { showOpen } from "./open_dialog.js";
import { goTo, step, togglePlay } from "./playback.js";
import { clearFrame, removeObject, selectObject } from "./prompts.js";
import { nextReview } from "./review.js";
import { active, set, setting, state } from "./state.js";
import { chooseTool } from "./tools.js";
import { promptedFrames, track } from "./tracking.js";
import { fit, zoom } from "./view.js";

const video = () => state.medium?.kind === "video";

export const KEYS = [
  { group: "Tools", key: "p", shows: "P", does: "Point", run: () => chooseTool("point") },
  { group: "Tools", key: "b", shows: "B", does: "Box", run: () => chooseTool("box") },
  { group: "Tools", key: "d", shows: "D", does: "Paint", run: () => chooseTool("brush") },
  { group: "Tools", key: "x", shows: "X", does: "Erase", run: () => chooseTool("erase") },
  { group: "Tools", key: "e", shows: "E", does: "Everything", run: () => chooseTool("everything") },
  { group: "Tools", key: "h", shows: "H", does: "Move the view", run: () => chooseTool("pan") },
  { group: "Tools", key: "+", also: "=", shows: "+", does: "Clicks include", run: () => set({ sign: 1 }) },
  { group: "Tools", key: "-", shows: "−", does: "Clicks exclude", run: () => set({ sign: 0 }) },
  { group: "Tools", key: "[", also: "]", shows: "[ ]", does: "Smaller or larger brush", run: (event) => set({ brush: Math.max(4, Math.min(160, Math.round(state.brush * (event.key === "]" ? 1.25 : 0.8)))) }) },
  { group: "Picture", shows: "← ↑ → ↓", does: "Move the cursor (Shift: by a pixel)" },
  { group: "Picture", shows: "Enter", does: "Click at the cursor (Shift: exclude)" },
  { group: "Picture", key: "z", shows: "Z", does: "Zoom in (Shift: out)", run: (event) => zoom(event.shiftKey ? 0.8 : 1.25) },
  { group: "Picture", key: "0", shows: "0", does: "Fit to the window", run: fit },
  { group: "Picture", shows: "Space", does: "Hold and drag: move (pictures)" },
  { group: "Picture", key: "v", shows: "V", does: "Preview on or off", run: () => { setting({ hover: !state.settings.hover }); announce(`Preview ${state.settings.hover ? "on" : "off"}`); } },
  { group: "Picture", key: "m", shows: "M", does: "Masks on or off", run: () => setting({ opacity: state.settings.opacity ? 0 : 0.5, outlines: !state.settings.opacity }) },
  { group: "Objects", key: "n", shows: "N", does: "New object", run: newObject },
  { group: "Objects", key: "1", also: "23", shows: "1 2 3", does: "Candidate masks", run: (event) => chooseCandidate(Number(event.key) - 1) },
  { group: "Objects", key: "j", also: "k", shows: "J K", does: "Next or previous object", run: (event) => selectNext(event.key === "j" ? 1 : -1) },
  { group: "Objects", key: "Delete", also: ["Backspace"], shows: "Del", does: "Remove the object", run: () => active() && removeObject(state.activeId) },
  { group: "Objects", key: "c", shows: "C", does: "Clear its prompts here", run: () => active() && clearFrame(state.activeId, state.frame) },
  { group: "Video", key: " ", shows: "Space", does: "Play or pause", when: video, run: togglePlay },
  { group: "Video", key: ",", also: ".", shows: ", .", does: "Previous or next frame", when: video, run: (event) => step(event.key === "." ? 1 : -1) },
  { group: "Video", key: "<", also: ">", shows: "Shift , .", does: "Previous or next prompt", when: video, run: (event) => nextPrompt(event.key === ">" ? 1 : -1) },
  { group: "Video", key: "r", shows: "R", does: "Next to review (Shift: before)", when: video, run: (event) => nextReview(event.shiftKey ? -1 : 1) },
  { group: "Video", key: "t", shows: "T", does: "Track", when: video, run: () => track($("direction").value) },
  { group: "Page", ctrl: true, key: "z", shows: "Ctrl Z", does: "Undo (Shift: redo)", run: (event) => (event.shiftKey ? redoSaid() : undoSaid()) },
  { group: "Page", ctrl: true, key: "y", shows: "Ctrl Y", does: "Redo", run: () => redoSaid() },
  { group: "Page", ctrl: true, key: "o", shows: "Ctrl O", does: "Open", run: showOpen },
  { group: "Page", ctrl: true, key: "s", shows: "Ctrl S", does: "Export", run: showExport },
  { group: "Page", key: "?", shows: "?", does: "This list", run: () => showHelp(KEYS) },
];

/** Undoes, and says what. */
export function undoSaid() {
  const label = undo();
  announce(label ? `Undone: ${label}` : "Nothing to undo");
}

/** Does again, and says what. */
export function redoSaid() {
  const label = redo();
  announce(label ? `Done again: ${label}` : "Nothing to redo");
}

function selectNext(by) {
  const { objects, activeId } = state;
  if (!objects.length) return;
  const at = objects.findIndex(({ id }) => id === activeId);
  const next = objects[(at + by + objects.length) % objects.length];
  selectObject(next.id);
  announce(next.name);
}

function nextPrompt(direction) {
  const frames = promptedFrames();
  const frame = direction > 0 ? frames.find((n) => n > state.frame) : frames.findLast((n) => n < state.frame);
  if (frame !== undefined) goTo(frame);
}

/** Listens to the keys of the page. */
export function startKeys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    const target = event.target;
    const typing = target.matches?.("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select");
    const ctrl = event.ctrlKey || event.metaKey;
    if (typing || (!ctrl && !state.settings.keys && event.key !== "?")) return;
    if (event.key === " " && target.matches?.("button, input, a")) return;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const entry = KEYS.find((known) => known.run && Boolean(known.ctrl) === ctrl && (known.key === name || known.also?.includes(name)) && (known.when?.() ?? true));
    if (!entry || !state.info) return;
    event.preventDefault();
    entry.run(event);
  });
}
