// Starts the page: every part watches the state; this file ties them together.

import { startHints, startRoving, startSheet, startTabs } from "./a11y.js";
import { get, onReturn } from "./api.js";
import { repaint } from "./canvas.js";
import { $, loadIcons } from "./dom.js";
import { showEffects, startEffects } from "./effects_panel.js";
import { startExport } from "./export.js";
import { showHelp } from "./help.js";
import { onDocument, redoLabel, undoLabel } from "./history.js";
import { sync as syncImage } from "./image.js";
import { KEYS, redoSaid, startKeys, undoSaid } from "./keys.js";
import { busy, clearAway, fail } from "./notices.js";
import { startObjects } from "./objects.js";
import { openFirst } from "./opening.js";
import { startOpening } from "./open_dialog.js";
import { startOptions } from "./options.js";
import { startPlayback } from "./playback.js";
import { startReview } from "./review.js";
import { set, setting, state, watch } from "./state.js";
import { startTimeline } from "./timeline.js";
import { startTools } from "./tools.js";
import { resume, sync as syncVideo } from "./video.js";
import { fit, onView, resize, view, zoom } from "./view.js";

function startHistory() {
  onDocument((before, after) => {
    if (state.medium?.kind === "video") return syncVideo(before, after);
    return syncImage();
  });
  const say = (id, label, word) => {
    $(id).disabled = label === null;
    $(id).dataset.hint = label === null ? word : `${word}: ${label}`;
  };
  watch(["history", "medium"], () => { say("undo", undoLabel(), "Undo"); say("redo", redoLabel(), "Redo"); });
  $("undo").addEventListener("click", undoSaid);
  $("redo").addEventListener("click", redoSaid);
}

function startView() {
  const percent = () => { $("zoom-fit").textContent = `${Math.round(view.scale * 100)} %`; };
  onView(() => { repaint(); percent(); });
  $("zoom-in").addEventListener("click", () => zoom(1.25));
  $("zoom-out").addEventListener("click", () => zoom(0.8));
  $("zoom-fit").addEventListener("click", fit);
  new ResizeObserver(([entry]) => { resize(entry.contentRect.width, entry.contentRect.height); repaint(); }).observe($("stage"));
  watch(["objects", "activeId", "results", "hover", "found", "effect", "settings", "frame", "tool", "playing", "sign", "brush"], repaint);
}

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => { document.documentElement.dataset.theme = state.settings.theme ?? (system.matches ? "dark" : "light"); repaint(); };
  watch(["settings"], show);
  system.addEventListener("change", show);
  for (const id of ["theme", "theme-phone"]) $(id).addEventListener("click", () => setting({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));
}

function startTitle() {
  watch(["medium"], () => {
    const { medium } = state;
    $("name").textContent = medium?.name ?? "samgraph";
    const frames = medium?.kind === "video" ? ` · ${medium.frames} frames${medium.fps ? ` · ${Math.round(medium.fps * 100) / 100} per second` : ""}` : "";
    $("facts").textContent = medium ? `${medium.width} × ${medium.height}${frames}` : "";
    $("view").setAttribute("aria-label", medium ? `${medium.kind === "video" ? "Video" : "Picture"} ${medium.name}` : "Picture");
  });
}

async function connect() {
  loadIcons();
  try {
    set({ info: await busy("Connecting", get("info")) });
    await openFirst();
  } catch (error) {
    fail("stage-notice", error, { retry: connect });
  }
}

/** The server is there again: what could not be sent is sent now. */
function goOn() {
  clearAway();
  if (state.medium?.kind === "video") resume();
  else if (state.medium) syncImage();
}

onReturn(goOn);
startTheme();
startView();
startHistory();
startTitle();
startTools();
startOptions();
startObjects();
startEffects();
startTimeline();
startPlayback();
startReview();
startExport();
startOpening();
startKeys();
startRoving();
startTabs((tab) => { if (tab === "tab-effects") showEffects(); });
startSheet();
startHints();
for (const id of ["help", "help-phone"]) $(id).addEventListener("click", () => showHelp(KEYS));
connect();
