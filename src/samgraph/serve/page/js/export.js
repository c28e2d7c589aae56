// The export dialog: every format of the server, effects, session files.

import { get, post, remove, request, saveBlob, saveResponse, sentence } from "./api.js";
import { openDialog } from "./dialog.js";
import { $, h } from "./dom.js";
import { documentJson } from "./image.js";
import { address, shown } from "./masks.js";
import { fail, tell } from "./notices.js";
import { setting, state, watch } from "./state.js";
import { download } from "./transport.js";
import { settled } from "./video.js";

const SESSION = "session";
const TITLES = { // what people call the formats, and what is in them; others are shown as the server names them
  effect: ["Effect"], png: ["Mask", "White on black; several objects as a label map"], cutout: ["Cut-out", "The objects alone, on transparent ground"],
  overlay: ["Overlay", "As shown: the objects tinted"], davis: ["DAVIS", "Palette PNG whose pixel values are object ids"], coco: ["COCO", "Instance annotations with masks"],
  "coco-vid": ["COCO for videos", "CocoVID: instances over frames"], sav: ["SA-V", "A folder per object, a palette PNG per frame"],
  mot: ["MOT Challenge", "A line of text per box"], mots: ["MOTS", "A line of text per mask"], jsonl: ["JSON lines", "A line per frame, masks as RLE"],
  cvat: ["CVAT", "XML 1.1, to import into a task"], "label-studio": ["Label Studio", "Tasks with predictions"], labelme: ["labelme", "Polygons, one file per picture"],
  polygons: ["Polygons", "Outlines with holes, plain JSON"], sam: ["SAM", "The dicts of the automatic mask generator"], yolo: ["YOLO", "Segmentation labels"], session: ["Session"],
};
const PICTURES = ["effect", "png", "cutout", "overlay", "davis"];

/** Keeps the button in step. */
export function startExport() {
  $("export").addEventListener("click", showExport);
  watch(["objects", "results", "medium"], () => { $("export").disabled = !ready(); });
}

const ready = () => Boolean(state.medium) && state.objects.length > 0;

/** The formats that make sense now: with an effect chosen, that comes first. */
function formats() {
  const all = state.info.formats[state.medium.kind].filter(({ name }) => name !== "effect" || state.effect);
  const effect = all.filter(({ name }) => name === "effect").map((format) => ({ ...format, title: `${effectTitle()}, as shown` }));
  const session = { name: SESSION, extension: state.medium.kind === "video" ? "" : ".json", title: "to go on later, here or on another machine" };
  return [...effect, ...all.filter(({ name }) => name !== "effect"), session];
}

const effectTitle = () => state.info.effects.find(({ name }) => name === state.effect?.name)?.title ?? "";
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Shows the dialog. */
export function showExport() {
  if (!ready() || !state.info) return;
  const known = formats();
  const last = state.effect ? "effect" : state.settings.format;
  const chosen = known.find(({ name }) => name === last) ?? known[0];
  const card = (format) => h("label", { class: "format" },
    h("input", { type: "radio", name: "format", value: format.name, checked: format === chosen }),
    h("span", {}, h("strong", {}, TITLES[format.name]?.[0] ?? format.name), h("small", {}, TITLES[format.name]?.[1] ?? capital(format.title))), h("code", {}, format.extension));
  const group = (title, some) => (some.length ? [h("h3", {}, title), h("div", { class: "formats", role: "group", "aria-label": title }, some.map(card))] : []);
  const cards = [
    ...group(state.medium.kind === "video" ? "Pictures and videos" : "Pictures", known.filter(({ name }) => PICTURES.includes(name))),
    ...group("Annotations", known.filter(({ name }) => !PICTURES.includes(name) && name !== SESSION)),
    ...group("Session", known.filter(({ name }) => name === SESSION)),
  ];
  const left = state.objects.filter((object) => !object.visible).length;
  const count = state.objects.length - (state.medium.kind === "image" ? left : 0);
  const words = h("span", { class: "grow", role: "status" }, `${count} object${count === 1 ? "" : "s"}${left && state.medium.kind === "image" ? `, ${left} hidden left out` : ""}`);
  const notice = h("div", { class: "notice-host" });
  const button = h("button", { type: "button", class: "button primary", id: "do-export", onclick: () => run() }, "Export");
  const dialog = openDialog("Export", [...cards, notice], [words, button]);
  dialog.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("input")) run(); });
  const gone = new AbortController();
  dialog.addEventListener("close", () => gone.abort());
  async function run() {
    const format = dialog.querySelector("input:checked").value;
    if (format !== "effect") setting({ format });
    button.disabled = true;
    notice.replaceChildren();
    try {
      await write(format, words, gone.signal);
      dialog.close();
      tell("stage-notice", "Exported: your browser has saved the file.");
    } catch (error) {
      fail(notice, error);
      button.disabled = false;
    }
  }
  dialog.querySelector("input:checked")?.focus();
}

async function write(format, words, signal) {
  const { medium } = state;
  const stem = medium.name.replace(/\.[^.]*$/, "") || "samgraph";
  if (medium.kind === "image") return format === SESSION ? saveDocument(stem) : writeImage(format, stem);
  await settled();
  if (format === SESSION) return saveResponse(await request("GET", `${address()}/session`), `${stem}.session`);
  return writeVideo(format, words, signal);
}

function saveDocument(stem) {
  const { name, width, height } = state.medium;
  saveBlob(new Blob([JSON.stringify({ name, width, height, ...documentJson() })], { type: "application/json" }), `${stem}.session.json`);
}

async function writeImage(format, stem) {
  const objects = state.objects.filter((object) => object.visible && shown(object))
    .map((object) => ({ id: object.id, name: object.name, color: object.color, mask: shown(object).rle, score: shown(object).score }));
  const body = JSON.stringify({ format, objects, effect: format === "effect" ? state.effect : null });
  const response = await request("POST", `${address()}/export`, { body, headers: { "Content-Type": "application/json" } });
  await saveResponse(response, `${stem}-${format}`);
}

/** Writes a video's file as a job of the server; closing the dialog cancels it. */
async function writeVideo(format, words, signal) {
  const { job } = await post(`${address()}/export`, { format, effect: format === "effect" ? state.effect : null });
  for (;;) {
    const { state: now, done, total, message, hint } = await get(`jobs/${job}`);
    if (now === "done") break;
    if (signal.aborted) { await remove(`jobs/${job}`); signal.throwIfAborted(); }
    if (["failed", "cancelled"].includes(now)) throw Object.assign(new Error(sentence(message ?? "the export failed")), { hint: sentence(hint ?? "") });
    words.textContent = total ? `Writing, ${done} of ${total}` : "Writing";
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  await download(`jobs/${job}/file`);
}
