// Moving through a video: steps, playing at its rate, frames fetched ahead.

import { repaint } from "./canvas.js";
import { hasFrame, onArrival, want as wantFrames } from "./frames.js";
import { fail } from "./notices.js";
import { frameCount, set, state, watch } from "./state.js";
import { onView } from "./view.js";
import { hasMasks, want as wantMasks } from "./video.js";

const AHEAD = 12;
let clock = 0;

/** Keeps frames and masks coming for what is looked at. */
export function startPlayback() {
  onArrival(arrived);
  watch(["frame", "medium", "playing"], fetchAround);
  watch(["playing"], () => { if (state.playing) { clock = performance.now(); requestAnimationFrame(tick); } });
  onView(() => state.medium?.kind === "video" && !state.playing && !hasFrame(state.frame) && fetchAround());
}

function fetchAround() {
  if (state.medium?.kind !== "video") return;
  const { frame } = state, last = frameCount() - 1;
  const ahead = Array.from({ length: state.playing ? AHEAD : 3 }, (_, i) => frame + i + 1);
  const wanted = [frame, ...ahead, ...(state.playing ? [] : [frame - 1])].filter((n) => n >= 0 && n <= last);
  wantFrames(wanted);
  wantMasks(frame);
  if (state.playing && hasMasks(frame)) {
    const gap = ahead.find((n) => n <= last && !hasMasks(n));
    if (gap !== undefined && state.objects.length) wantMasks(gap);
  }
}

function arrived(frame, error) {
  if (frame === state.frame) {
    if (error && error.status === 404 && frame > 0) set({ medium: { ...state.medium, frames: frame }, frame: frame - 1, playing: false });
    else if (error) fail("stage-notice", error, { retry: fetchAround });
    repaint();
  }
}

/** One step of playback: advances at the video's rate, waits for frames that are not loaded. */
function tick(now) {
  if (!state.playing || state.medium?.kind !== "video") return;
  const length = 1000 / (state.medium.fps || 25);
  let due = Math.floor((now - clock) / length);
  if (due > 0) {
    while (due > 1 && !hasFrame(state.frame + due)) due -= 1; // behind: the nearest frame that is there
    const next = state.frame + due;
    if (next >= frameCount()) return set({ playing: false, frame: frameCount() - 1 });
    if (hasFrame(next) && (hasMasks(next) || !state.objects.length)) {
      clock = Math.max(clock + due * length, now - length);
      set({ frame: next });
    } else {
      clock = now - length;
      fetchAround();
    }
  }
  requestAnimationFrame(tick);
  return undefined;
}

/** Plays or pauses; from the end, it starts over. */
export function togglePlay() {
  if (state.medium?.kind !== "video") return;
  if (!state.playing && state.frame >= frameCount() - 1) set({ frame: 0 });
  set({ playing: !state.playing });
}

/** Seeks to a frame. */
export function goTo(frame, { keepPlaying = false } = {}) {
  if (state.medium?.kind !== "video") return;
  const at = Math.max(0, Math.min(frameCount() - 1, Math.round(frame)));
  set({ frame: at, playing: keepPlaying ? state.playing : false });
}

/** Seeks by some frames. */
export const step = (count) => goTo(state.frame + count);
