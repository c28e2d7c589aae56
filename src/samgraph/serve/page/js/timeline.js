// The timeline: transport, filmstrip, a lane per object with prompts, presence and low scores.

import { clock, duration, $, h, icon, iconButton, debounce } from "./dom.js";
import { frameImage } from "./frames.js";
import { goTo, step, togglePlay } from "./playback.js";
import { selectObject } from "./prompts.js";
import { frameCount, set, setting, state, watch } from "./state.js";
import { cancel, track } from "./tracking.js";

const LANE = 26;
const LEAST_FRAMES = 24; // shown at the closest zoom

/** The range of frames that the timeline shows. */
const range = { from: 0, to: 1 };
let parts = null;

/** Builds the timeline and keeps it in step. */
export function startTimeline() {
  build();
  watch(["medium"], () => {
    $("timeline").hidden = state.medium?.kind !== "video";
    if (!$("timeline").hidden && parts.shownFor !== `${state.medium.id}/${state.medium.frames}`) {
      parts.shownFor = `${state.medium.id}/${state.medium.frames}`;
      setRange(0, frameCount());
    }
  });
  watch(["frame", "playing", "medium"], drawPlayhead);
  watch(["objects", "activeId", "timeline", "medium", "stale"], drawLanes);
  watch(["tracking", "stale", "objects", "settings"], drawProgress);
  new ResizeObserver(() => { drawLanes(); drawStrip(); drawPlayhead(); }).observe($("timeline"));
  watch(["settings"], () => requestAnimationFrame(drawLanes));
}

function build() {
  const play = iconButton("play", "Play", togglePlay, { "data-key": "Space", id: "play" });
  const number = h("input", { type: "number", min: 0, value: 0, "aria-label": "Frame", onchange: (event) => goTo(Number(event.target.value)) });
  const time = h("span", { class: "num quiet" });
  const direction = h("select", { "aria-label": "What to track", id: "direction" },
    h("option", { value: "both" }, "Whole video"), h("option", { value: "forward" }, "Forward from here"), h("option", { value: "backward" }, "Backward from here"));
  const start = h("button", { type: "button", class: "button primary small", id: "track", "data-hint": "Follow the objects through the video", "data-key": "T", onclick: () => track(direction.value) }, icon("track"), h("span", {}, "Track"));
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Tracking" });
  const words = h("span", {});
  const follow = h("label", { class: "switch" }, h("input", { type: "checkbox", role: "switch", "aria-label": "Show the frame being tracked", "data-hint": "Show the frame being tracked", onchange: (event) => setting({ follow: event.target.checked }) }), "Follow");
  const progress = h("div", { class: "progress", hidden: true }, bar, words, follow,
    h("button", { type: "button", class: "button small", id: "cancel-track", onclick: cancel }, "Cancel"));
  const stale = h("span", { class: "stale", hidden: true });
  const strip = h("div", { class: "strip", id: "strip", role: "slider", tabindex: 0, "aria-label": "Frame of the video", "aria-valuemin": 0, onkeydown: stripKey });
  const head = h("div", { class: "playhead" });
  const canvas = h("canvas", { class: "lane-canvas", "aria-hidden": "true" });
  const names = h("div", { class: "lane-names", role: "group", "aria-label": "Objects on the timeline" });
  parts = { play, number, time, start, bar, words, progress, stale, strip, head, canvas, names, direction, follow: follow.firstChild };
  $("timeline").append(
    h("div", { class: "transport", role: "group", "aria-label": "Playback" },
      iconButton("back", "Previous frame", () => step(-1), { class: "frame-step", "data-key": "," }), play, iconButton("next", "Next frame", () => step(1), { class: "frame-step", "data-key": "." }),
      h("span", { class: "time" }, number, h("span", { class: "of" }, " "), time),
      h("span", { class: "space" }), legend(), stale, progress, direction, start),
    h("div", { id: "timeline-notice", class: "notice-host" }),
    h("div", { class: "strip-row" }, h("div", { class: "range" },
      iconButton("minus", "Show more of the video", () => zoomRange(2), { class: "small" }), iconButton("plus", "Show less of the video", () => zoomRange(0.5), { class: "small" }), h("span", { class: "num" })), strip),
    h("div", { class: "lanes" }, names, canvas));
  parts.rangeText = $("timeline").querySelector(".range span");
  scrub(strip);
  scrub(canvas);
}

function legend() {
  const item = (name, text) => h("span", {}, h("i", { class: name }), text);
  return h("div", { class: "legend", "aria-hidden": "true" }, item("l-prompt", "Prompt"), item("", "Present"), item("l-absent", "Absent"), item("l-low", "Low score"));
}

/** Lets a pointer drag the playhead over an element. */
function scrub(element) {
  const at = (event) => {
    const box = element.getBoundingClientRect();
    goTo(Math.floor(range.from + ((event.clientX - box.left) / box.width) * (range.to - range.from)));
  };
  element.addEventListener("pointerdown", (event) => { element.setPointerCapture(event.pointerId); at(event); });
  element.addEventListener("pointermove", (event) => { if (element.hasPointerCapture(event.pointerId)) at(event); });
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.ctrlKey || Math.abs(event.deltaY) > Math.abs(event.deltaX)) zoomRange(event.deltaY > 0 ? 1.25 : 0.8);
    else moveRange((event.deltaX / element.clientWidth) * (range.to - range.from));
  }, { passive: false });
}

function stripKey(event) {
  const page = Math.max(10, Math.round(state.medium.fps || 10));
  const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page, Home: -Infinity, End: Infinity };
  if (!(event.key in moves)) return;
  const by = moves[event.key] * (event.shiftKey ? 10 : 1);
  goTo(Number.isFinite(by) ? state.frame + by : by < 0 ? 0 : frameCount() - 1);
  event.preventDefault();
  event.stopPropagation();
}

function setRange(from, to) {
  const total = frameCount();
  const length = Math.min(total, Math.max(Math.min(LEAST_FRAMES, total), to - from));
  range.from = Math.max(0, Math.min(total - length, from));
  range.to = range.from + length;
  drawLanes();
  drawStripSoon();
  drawPlayhead();
}

/** Shows more (factor over 1) or less of the video, about the frame shown. */
function zoomRange(factor) {
  const length = (range.to - range.from) * factor;
  const share = (state.frame - range.from) / (range.to - range.from);
  const middle = share >= 0 && share <= 1 ? share : 0.5;
  setRange(state.frame - middle * length, state.frame - middle * length + length);
}

const moveRange = (frames) => setRange(range.from + frames, range.to + frames);

function drawPlayhead() {
  if (state.medium?.kind !== "video" || !parts) return;
  const { frame, medium } = state, total = frameCount();
  if (frame < range.from || frame >= range.to) {
    const length = range.to - range.from;
    if (length < total) return setRange(frame - length * 0.1, frame + length * 0.9);
  }
  parts.head.style.left = `${(100 * (frame + 0.5 - range.from)) / (range.to - range.from)}%`;
  if (document.activeElement !== parts.number) parts.number.value = frame;
  parts.number.max = total - 1;
  parts.time.textContent = `of ${total - 1} · ${clock(frame / (medium.fps || 25))}`;
  parts.strip.setAttribute("aria-valuemax", total - 1);
  parts.strip.setAttribute("aria-valuenow", frame);
  parts.strip.setAttribute("aria-valuetext", `Frame ${frame} of ${total - 1}, ${clock(frame / (medium.fps || 25))}`);
  if (parts.play.dataset.shows !== String(state.playing)) {
    parts.play.dataset.shows = String(state.playing);
    parts.play.replaceChildren(icon(state.playing ? "pause" : "play"));
    parts.play.setAttribute("aria-label", state.playing ? "Pause" : "Play");
    parts.play.dataset.hint = state.playing ? "Pause" : "Play";
  }
  if (!state.playing) drawLanes();
  else drawHeadOnLanes();
  return undefined;
}

let stripKeyDrawn = "";

/** The filmstrip: as many pictures as fit, spread over the range. */
function drawStrip() {
  if (state.medium?.kind !== "video" || !parts) return;
  const width = parts.strip.clientWidth, height = parts.strip.clientHeight || 50;
  if (!width) return;
  const each = Math.max(40, (height * state.medium.width) / state.medium.height);
  const count = Math.max(1, Math.min(40, Math.round(width / each), Math.ceil(range.to - range.from)));
  const key = [state.medium.id, count, Math.round(range.from), Math.round(range.to)].join();
  if (key === stripKeyDrawn) return;
  stripKeyDrawn = key;
  const pictures = Array.from({ length: count }, (_, i) => {
    const frame = Math.min(frameCount() - 1, Math.floor(range.from + ((i + 0.5) / count) * (range.to - range.from)));
    return frameImage(frame, { draggable: "false", decoding: "async", fetchpriority: "low" });
  });
  parts.strip.replaceChildren(...pictures, parts.head);
  const seconds = (range.to - range.from) / (state.medium.fps || 25);
  parts.rangeText.textContent = duration(seconds);
}
const drawStripSoon = debounce(drawStrip, 120);

/** Scrolls a lane into sight, where there are more than fit. */
function showLane(index) {
  const box = parts.names.parentElement;
  if (index >= 0) box.scrollTop = Math.min(index * LANE, Math.max(box.scrollTop, (index + 1) * LANE - box.clientHeight));
}

function drawLanes() {
  if (state.medium?.kind !== "video" || !parts) return;
  const { objects, timeline } = state;
  const key = JSON.stringify([objects.map(({ id, name, color }) => [id, name, color]), state.activeId, timeline?.objects]);
  if (parts.namesKey !== key) {
    parts.namesKey = key;
    parts.names.replaceChildren(...objects.map((object) => h("button", {
      type: "button", "aria-current": String(object.id === state.activeId), "aria-label": describe(object), onclick: () => selectObject(object.id),
    }, h("i", { style: { background: object.color } }), h("span", {}, object.name))));
    if (parts.activeLane !== state.activeId) showLane(objects.findIndex(({ id }) => id === state.activeId));
    parts.activeLane = state.activeId;
  }
  const canvas = parts.canvas, ratio = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth - parts.names.offsetWidth - 12, height = Math.max(1, objects.length) * LANE;
  if (width <= 0) return;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(document.documentElement);
  const colors = { soft: style.getPropertyValue("--soft"), warn: style.getPropertyValue("--warn"), text: style.getPropertyValue("--text"), accent: style.getPropertyValue("--accent") };
  objects.forEach((object, i) => drawLane(context, canvas.clientWidth, i * LANE, object, timeline?.objects.find(({ id }) => id === object.id), colors));
  drawHeadOnLanes(context, colors.accent, height);
}

function drawHeadOnLanes(context, color, height) {
  if (!context) { if (state.frame % 4 === 0) drawLanes(); return; }
  context.fillStyle = color;
  context.fillRect(xOf(state.frame + 0.5, parts.canvas.clientWidth) - 1, 0, 2, height);
}

const xOf = (frame, width) => ((frame - range.from) / (range.to - range.from)) * width;

/** One lane: what was tracked, dimmer where absent, marked where the score is low; prompts as diamonds. */
function drawLane(context, width, top, object, lane, colors) {
  const bar = (ranges, y, height, color, alpha) => {
    context.fillStyle = color;
    context.globalAlpha = alpha;
    for (const [from, to] of ranges ?? []) {
      if (to < range.from || from > range.to) continue;
      const x = Math.max(0, xOf(from, width));
      context.fillRect(x, y, Math.max(1.5, Math.min(width, xOf(to + 1, width)) - x), height);
    }
    context.globalAlpha = 1;
  };
  context.fillStyle = colors.soft;
  context.fillRect(0, top + 4, width, LANE - 8);
  bar(lane?.tracked, top + 4, LANE - 8, object.color, 0.22);
  bar(lane?.present, top + 8, LANE - 16, object.color, 0.9);
  if (state.stale !== null) bar(lane?.stale?.map(([from, to]) => [Math.max(from, state.stale), to]).filter(([from, to]) => from <= to), top + 8, LANE - 16, colors.soft, 0.65);
  bar(lane?.low, top + LANE - 7, 3, colors.warn, 1);
  for (const frame of new Set([...(lane?.prompts ?? []), ...Object.keys(object.prompts).map(Number)])) {
    if (frame < range.from || frame >= range.to) continue;
    diamond(context, xOf(frame + 0.5, width), top + LANE / 2, colors);
  }
}

function diamond(context, x, y, colors) {
  context.beginPath();
  context.moveTo(x, y - 6); context.lineTo(x + 6, y); context.lineTo(x, y + 6); context.lineTo(x - 6, y);
  context.closePath();
  context.fillStyle = colors.text;
  context.strokeStyle = colors.soft;
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
}

/** A lane in words, for screen readers. */
function describe(object) {
  const lane = state.timeline?.objects.find(({ id }) => id === object.id);
  if (!lane) return `${object.name}: not tracked yet`;
  const frames = (ranges) => ranges.reduce((sum, [from, to]) => sum + to - from + 1, 0);
  return `${object.name}: ${lane.prompts.length} prompted frames, ${frames(lane.tracked)} tracked, present on ${frames(lane.present)}, low score on ${frames(lane.low)}`;
}

function drawProgress() {
  if (!parts) return;
  const { tracking, stale } = state;
  parts.progress.hidden = !tracking;
  parts.start.hidden = parts.direction.hidden = Boolean(tracking);
  parts.start.disabled = !state.objects.some((object) => Object.keys(object.prompts).length) && !state.timeline?.objects.length;
  parts.follow.checked = state.settings.follow;
  parts.stale.hidden = stale === null || Boolean(tracking);
  parts.stale.textContent = `Frame ${stale} was corrected`;
  parts.start.lastChild.textContent = stale === null ? "Track" : "Track again";
  if (!tracking) return;
  const { done, total, fps, secondsLeft } = tracking;
  if (total) parts.bar.value = done / total;
  else parts.bar.removeAttribute("value");
  const left = duration(secondsLeft);
  parts.words.textContent = total ? `${done} of ${total}${fps ? ` · ${fps.toFixed(1)} frames/s` : ""}${left ? ` · ${left} left` : ""}` : "Starting";
}
