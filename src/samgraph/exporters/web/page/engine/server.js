// The requests of the HTTP API, answered here: the page asks the same things of `samgraph serve`.

import { missing, RequestError } from "./errors.js";
import { everything } from "./everything.js";
import { exportImage, exportVideo } from "./exports.js";
import { EncodedImage } from "./image.js";
import { pictureFile, pixelsOf, readBitmap } from "./pixels.js";
import { SampleClip } from "./sample_clip.js";
import { Frames, openSource, PictureSource } from "./sources.js";
import { VideoSession } from "./video.js";

const MOST_IMAGES = 4, MOST_VIDEOS = 2, MOST_JOBS = 4;

/** Keeps the newest entries of a map, `most` of them; the others are closed. */
function bound(map, most) {
  for (const [key, value] of map) {
    if (map.size <= most) break;
    map.delete(key);
    value.close?.();
  }
}

const newId = () => crypto.getRandomValues(new Uint32Array(2)).join("-");

export class Server {
  /** `model`: a promise of the model; `element`: the page's video element; `publish(id, type, data)`: events. */
  constructor({ base, info, model, element, publish }) {
    Object.assign(this, { base, info, model, element, publish, images: new Map(), videos: new Map(), jobs: new Map() });
  }

  /** Answers a request {method, path, body, file, session, pictures}: {status, json} or {status, blob, name}. */
  async answer({ method, path, ...request }) {
    const [route, query] = path.split("?"), parameters = new URLSearchParams(query ?? "");
    for (const [verb, pattern, handler] of ROUTES) {
      const found = verb === method && pattern.exec(route);
      if (found) return handler.call(this, { ...request, parameters }, ...found.slice(1));
    }
    throw missing(`there is no ${method} ${route}`);
  }

  session(map, id, what) {
    const found = map.get(id);
    if (!found) throw missing(`this ${what} is no longer open`, "Open it again.");
    map.delete(id);
    map.set(id, found); // the one used last is kept longest
    return found;
  }

  image(id) { return this.session(this.images, id, "picture"); }
  video(id) { return this.session(this.videos, id, "video"); }

  async sampleBlob(file) {
    const response = await fetch(new URL(`samples/${file}`, this.base));
    if (!response.ok) throw missing("the sample could not be loaded");
    return response.blob();
  }

  sample(id, kind) {
    const found = this.info.samples.find((known) => known.id === id && known.kind === kind);
    if (!found) throw missing("there is no such sample");
    return found;
  }

  async getInfo() {
    const { device, threads, manifest, size } = await this.model;
    return { ...this.info, device, threads, model: { name: manifest.model, image_size: size } };
  }

  async openImage({ file, parameters }) {
    const began = performance.now(), wanted = parameters.get("sample");
    const blob = wanted ? await this.sampleBlob(this.sample(wanted, "image").file) : file;
    const name = wanted ? this.sample(wanted, "image").title : file.name, id = newId();
    const bitmap = await readBitmap(blob, name), { width, height } = bitmap;
    const encoded = await EncodedImage.of(await this.model, pixelsOf(bitmap));
    bitmap.close();
    this.images.set(id, { id, name, width, height, blob, encoded, document: null });
    bound(this.images, MOST_IMAGES);
    return { status: 201, json: { id, name, width, height, seconds: (performance.now() - began) / 1000 } };
  }

  getImage(_, id) {
    const { name, width, height, document } = this.image(id);
    return { id, name, width, height, document };
  }

  getPicture(_, id) { return { status: 200, blob: this.image(id).blob }; }

  async predict({ body }, id) { return this.image(id).encoded.predict(body); }

  async everything({ body }, id) {
    return { masks: await everything(this.image(id).encoded, body) };
  }

  putDocument({ body }, id) {
    this.image(id).document = body;
    return { status: 204 };
  }

  async exportImage({ body }, id) {
    const { name, width, height, blob } = this.image(id), picture = await readBitmap(blob, name);
    try {
      return { status: 200, ...await exportImage({ name, size: [height, width], picture, info: this.info }, body) };
    } finally {
      picture.close();
    }
  }

  async openVideo({ file, session, pictures, parameters }) {
    const model = await this.model, wanted = parameters.get("sample"), id = newId();
    const name = wanted ? this.sample(wanted, "video").title : file.name;
    const source = wanted ? await this.sampleClip() : pictures ? await PictureSource.open(pictures) : await openSource(file, name, this.element);
    const video = new VideoSession(model, new Frames(source, model.preprocessing), name, (type, data) => this.publish(id, type, data));
    if (session) await video.restore(await readSession(session));
    this.videos.set(id, video);
    bound(this.videos, MOST_VIDEOS);
    return { status: 201, json: video.about(id) };
  }

  async sampleClip() {
    const files = this.info.samples.filter(({ kind }) => kind === "image").map(({ file }) => file);
    const [cat, coffee] = await Promise.all(files.map(async (file) => readBitmap(await this.sampleBlob(file), file)));
    return SampleClip.of(cat, coffee);
  }

  getVideo(_, id) { return this.video(id).about(id); }

  async getFrame({ parameters }, id, number) {
    const video = this.video(id), bitmap = await video.frames.bitmap(video.checked(Number(number)));
    const width = Math.max(1, Math.min(bitmap.width, Number(parameters.get("width")) || bitmap.width));
    return { status: 200, blob: await pictureFile(bitmap, width) };
  }

  hover({ body }, id, frame) { return this.video(id).hover(Number(frame), body); }
  prompt({ body }, id) { return this.video(id).prompt(body); }

  addObject({ body }, id) {
    const video = this.video(id);
    return { status: 201, json: video.described(video.addObject(body)) };
  }

  describe({ body: { name, color } }, id, number) {
    const video = this.video(id), obj = video.find(Number(number));
    Object.assign(obj, { name: name ?? obj.name, color: color ?? obj.color });
    return video.described(obj);
  }

  removeObject(_, id, number) {
    const video = this.video(id);
    return video.exclusive(() => { video.remove(Number(number)); return { status: 204 }; });
  }

  async removePrompt(_, id, number, frame) {
    await this.video(id).clear(Number(number), Number(frame));
    return { status: 204 };
  }

  beginTrack({ body }, id) { return { status: 202, json: this.video(id).begin(body) }; }

  cancelTrack(_, id) {
    const { track } = this.video(id);
    if (track) track.isCancelled = true;
    return { status: 204 };
  }

  getMasks({ parameters }, id) {
    return { frames: this.video(id).framesBetween(Number(parameters.get("from")), Number(parameters.get("to"))) };
  }

  getTimeline(_, id) { return this.video(id).timeline(); }

  getSession(_, id) {
    const video = this.video(id), blob = new Blob([JSON.stringify(video.saved())], { type: "application/json" });
    return { status: 200, blob, name: `${video.name.replace(/\.[^.]*$/, "")}.samgraph` };
  }

  exportVideo({ body }, id) {
    const video = this.video(id), frames = video.exported(), job = newId();
    if (!frames.length) throw new RequestError(400, "there is nothing to export", { hint: "track the video first" });
    const entry = { state: "running", done: 0, total: frames.length };
    this.jobs.set(job, entry);
    bound(this.jobs, MOST_JOBS);
    exportVideo({ name: video.name, size: video.frames.size, frames }, body, () => { entry.done += 1; })
      .then((file) => Object.assign(entry, { state: "done", file }))
      .catch(({ message, hint }) => Object.assign(entry, { state: "failed", message, hint }));
    return { status: 202, json: { job } };
  }

  job(id) {
    const found = this.jobs.get(id);
    if (!found) throw missing("there is no such export");
    return found;
  }

  getJob(_, id) {
    const { file, ...job } = this.job(id);
    return { ...job, name: file?.name ?? null };
  }

  getJobFile(_, id) {
    const { file } = this.job(id);
    if (!file) throw new RequestError(409, "the export is not done yet");
    return { status: 200, ...file };
  }

  close(map, id) {
    map.get(id)?.close?.();
    map.delete(id);
    return { status: 204 };
  }
}

async function readSession(blob) {
  try { return JSON.parse(await blob.text()); } catch { throw new RequestError(400, "this is not a session file of the page without a server"); }
}

const at = (text) => new RegExp(`^${text.replaceAll(":id", "([\\w-]+)").replaceAll(":n", "(\\d+)")}$`);
const { prototype: does } = Server;
const ROUTES = [
  ["GET", at("info"), does.getInfo], ["GET", at("sessions"), () => []],
  ["POST", at("images"), does.openImage], ["GET", at("images/:id"), does.getImage], ["GET", at("images/:id/picture"), does.getPicture],
  ["DELETE", at("images/:id"), function remove(_, id) { return this.close(this.images, id); }],
  ["POST", at("images/:id/predict"), does.predict], ["POST", at("images/:id/everything"), does.everything],
  ["PUT", at("images/:id/document"), does.putDocument], ["POST", at("images/:id/export"), does.exportImage],
  ["POST", at("videos"), does.openVideo], ["GET", at("videos/:id"), does.getVideo],
  ["DELETE", at("videos/:id"), function remove(_, id) { return this.close(this.videos, id); }],
  ["GET", at("videos/:id/frames/:n"), does.getFrame], ["POST", at("videos/:id/frames/:n/predict"), does.hover],
  ["POST", at("videos/:id/prompts"), does.prompt], ["POST", at("videos/:id/objects"), does.addObject],
  ["PATCH", at("videos/:id/objects/:n"), does.describe], ["DELETE", at("videos/:id/objects/:n"), does.removeObject],
  ["DELETE", at("videos/:id/objects/:n/prompts/:n"), does.removePrompt],
  ["POST", at("videos/:id/track"), does.beginTrack], ["DELETE", at("videos/:id/track"), does.cancelTrack],
  ["GET", at("videos/:id/masks"), does.getMasks], ["GET", at("videos/:id/timeline"), does.getTimeline],
  ["GET", at("videos/:id/session"), does.getSession], ["POST", at("videos/:id/export"), does.exportVideo],
  ["GET", at("jobs/:id"), does.getJob], ["GET", at("jobs/:id/file"), does.getJobFile],
  ["DELETE", at("jobs/:id"), function remove(_, id) { return this.close(this.jobs, id); }],
];
