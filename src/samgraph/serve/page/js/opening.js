// Opening pictures, videos and sessions: files, samples, drops, the address of the page.

import { get, mayPass, post, upload, ApiError } from "./api.js";
import { setPicture } from "./canvas.js";
import { forgetFrames } from "./frames.js";
import { commit, replace } from "./history.js";
import { objectsFrom } from "./image.js";
import { announce, busy, busyText, clear, fail } from "./notices.js";
import { $, bytes } from "./dom.js";
import { COLORS } from "./prompts.js";
import { recallPrompts } from "./remember.js";
import { set, state } from "./state.js";
import { listen, offerToGoOn, stopListening } from "./tracking.js";
import { ask } from "./transport.js";
import { fit } from "./view.js";
import { refreshTimeline, startVideo } from "./video.js";

const VIDEO = /\.(mp4|m4v|mov|mkv|webm|avi|mpe?g|ts|gif|3gp|wmv|ogv)$/i;
const SESSION = /\.(safetensors|zip|samgraph)$/i;
const MOST_PICTURE = 24e6; // pixels of the bitmap kept for the screen

let opening = 0; // the newest attempt wins

/** Opens what was dropped or chosen: a picture, a video, a video with its session, or a document of a picture. */
export async function openFiles(files) {
  const list = [...files];
  const session = list.find(({ name }) => SESSION.test(name));
  const saved = list.find(({ name }) => /\.json$/i.test(name));
  const video = list.find(({ name, type }) => type.startsWith("video/") || VIDEO.test(name));
  const media = video ?? list.find((file) => file !== session && file !== saved);
  const clip = state.info?.picture_clips && !video ? list.filter(({ type }) => type.startsWith("image/")) : [];
  try {
    if (clip.length > 1) await openFile(clip[0], "video", session, clip);
    else if (session && !video) throw new ApiError("A session file alone has no video in it.", { hint: "Drop the video and its session file together." });
    else if (media) await openFile(media, video ? "video" : "image", session);
    if (saved) await openDocument(saved);
  } catch (error) {
    fail("stage-notice", error, mayPass(error) ? { retry: () => openFiles(list) } : { retry: () => $("files").click(), label: "Choose another file" });
  }
}

/** Opens a file; `pictures`, where the transport takes them, are the frames of a clip. */
async function openFile(file, kind, session = null, pictures = null) {
  const limit = state.info?.limits.max_upload_bytes;
  if (limit && file.size > limit) {
    throw new ApiError(`${file.name} has ${bytes(file.size)}; this server takes ${bytes(limit)}.`, { hint: "Start it with a larger limit: `samgraph serve --help`." });
  }
  if (!file.size) throw new ApiError(`${file.name} is empty.`);
  const turn = ++opening;
  const sent = upload(kind === "video" ? "videos" : "images", file, {
    session, pictures, onProgress: (share) => busyText(share < 1 ? `Sending ${file.name}, ${Math.round(share * 100)} %` : kind === "video" ? "Opening the video" : "Reading the picture"),
  });
  const reply = await busy(`Sending ${file.name}`, sent);
  if (turn === opening) await show(kind, reply, { file, session });
}

/** Opens a sample of the server. */
export async function openSample(sample) {
  const turn = ++opening;
  try {
    const path = sample.kind === "video" ? "videos" : "images";
    const reply = await busy(`Opening ${sample.title}`, post(`${path}?sample=${encodeURIComponent(sample.id)}`));
    if (turn === opening) await show(sample.kind, { ...reply, name: sample.title }, { sample });
  } catch (error) {
    fail("stage-notice", error, { retry: () => openSample(sample) });
  }
}

/** Opens what the server still has: after a reload, or from the list of sessions. */
export async function reopen(kind, id) {
  const turn = ++opening;
  const reply = await busy("Opening", get(`${kind}s/${id}`));
  if (turn === opening) await show(kind, reply, {});
}

async function show(kind, reply, source) {
  stopListening();
  forgetFrames();
  clear("stage-notice");
  const bitmap = kind === "image" ? await busy("Showing the picture", loadPicture(reply)) : null;
  const medium = { ...reply, kind, source };
  if (kind === "video") {
    const counted = reply.frames ?? (reply.duration && reply.fps ? Math.max(1, Math.round(reply.duration * reply.fps)) : 1);
    const known = reply.objects ? reply : await get(`videos/${reply.id}`);
    medium.frames = counted;
    startVideo(known.objects ?? []);
    setDocument(medium, objectsOfVideo(known.objects ?? [], recallPrompts(reply.id)));
    if (known.tracking) { set({ tracking: { done: known.tracking.done, total: known.tracking.total } }); listen(); }
    else if (known.interrupted?.length) offerToGoOn();
    refreshTimeline();
  } else {
    setDocument(medium, objectsFrom(reply.document));
  }
  setPicture(bitmap);
  fit();
  history.replaceState(null, "", `#${kind}/${reply.id}`);
  document.title = `${reply.name} · samgraph`;
  announce(`${kind === "video" ? "Video" : "Picture"} ${reply.name} is open, ${reply.width} by ${reply.height} pixels.`);
}

function setDocument(medium, objects) {
  set({ medium, frame: 0, playing: false, hover: null, found: null, tracking: null, timeline: null, stale: null, results: state.results + 1 });
  if (state.tool === "everything") set({ tool: "point" });
  replace({ objects, activeId: objects.at(-1)?.id ?? null }, { forget: true });
}

function objectsOfVideo(objects, kept) {
  return objects.map(({ id, name, color, prompts: frames }) => {
    const prompts = Object.fromEntries(Object.entries(kept[id] ?? {}).filter(([frame]) => frames.includes(Number(frame))).map(([frame, prompt]) => [frame, Object.freeze(prompt)]));
    return { id, name: name || `Object ${id}`, color: color || COLORS[(id - 1) % COLORS.length], visible: true, prompts, choice: {} };
  });
}

async function loadPicture({ id, width, height }) {
  const response = await ask(`images/${id}/picture`);
  if (!response.ok) throw new ApiError("The picture could not be shown.", { hint: "Open it again." });
  const blob = await response.blob();
  const scale = Math.min(1, Math.sqrt(MOST_PICTURE / (width * height)));
  return createImageBitmap(blob, scale < 1 ? { resizeWidth: Math.round(width * scale), resizeHeight: Math.round(height * scale), resizeQuality: "high" } : {});
}

/** Puts the objects of a document (a session file of a picture) on the open picture. */
async function openDocument(file) {
  let saved;
  try { saved = JSON.parse(await file.text()); } catch { throw new ApiError(`${file.name} is not a session file.`, { hint: "Drop a file that Export → Session wrote." }); }
  const { medium } = state;
  if (!Array.isArray(saved?.objects) || !saved.width) throw new ApiError(`${file.name} is not a session file.`, { hint: "Drop a file that Export → Session wrote." });
  if (medium?.kind !== "image" || saved.width !== medium.width || saved.height !== medium.height) {
    throw new ApiError(`${file.name} belongs to a picture of ${saved.width} × ${saved.height} pixels.`, { hint: `Open ${saved.name ?? "that picture"} first, or drop both together.` });
  }
  const objects = objectsFrom(saved);
  commit("open session", { objects, activeId: objects.at(-1)?.id ?? null });
}

/** The first thing shown: what the address names, else the first sample. */
export async function openFirst() {
  const [kind, id] = location.hash.slice(1).split("/");
  if (["image", "video"].includes(kind) && /^[\w-]+$/.test(id ?? "")) {
    try { return await reopen(kind, id); } catch { /* the server no longer has it */ }
  }
  const sample = state.info.samples.find((known) => known.kind === "image") ?? state.info.samples[0];
  return sample ? openSample(sample) : undefined;
}

/** Opens the same file or sample again and puts the objects back: the server no longer had the session. */
async function openAgain() {
  const { objects, activeId, medium } = state;
  const { file, sample } = medium.source;
  if (file) await openFile(file, medium.kind);
  else await openSample(sample);
  if (state.medium !== medium) commit("open again", { objects, activeId });
}

/**
 * Says a failure over the picture. Where the server no longer has the session (it was idle for long), opening
 * it again is offered, else `retry`.
 */
export function failOnMedium(error, retry) {
  const gone = error.status === 404 || error.status === 410;
  const source = state.medium?.source;
  if (gone && (source?.file || source?.sample)) {
    const again = () => openAgain().catch((other) => fail("stage-notice", other));
    fail("stage-notice", { message: "The server no longer has this session.", hint: "Your objects are still here: open it again to go on." }, { retry: again, label: "Open again" });
  } else fail("stage-notice", error, { retry });
}
