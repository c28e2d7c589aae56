// Where the frames of a video come from: an MP4 decoded here, the page's video element, an animated picture, a list of
// pictures, or the sample that is drawn. A source has `width`, `height`, `frames`, `fps` and `draw(n)`, which gives
// something that a canvas draws.

import { RequestError } from "./errors.js";
import { readTrack } from "./mp4.js";
import { canvasOf, pixelsOf, readBitmap } from "./pixels.js";
import { frameTensor, imageTensor } from "./resize.js";

const MOST_BITMAPS = 8;
const MICROSECONDS = 1e6;

/** Frames with a bounded store of bitmaps, one decoded at a time. */
export class Frames {
  constructor(source, preprocessing) {
    Object.assign(this, { source, preprocessing, bitmaps: new Map(), last: Promise.resolve() });
    const { width, height, frames, fps } = source;
    Object.assign(this, { width, height, frames, fps, size: [height, width] });
  }

  /** A frame as a bitmap; it is closed when others take its place. */
  bitmap(frame) {
    const result = this.last.then(async () => {
      let found = this.bitmaps.get(frame);
      this.bitmaps.delete(frame);
      found ??= await createImageBitmap(await this.source.draw(frame));
      this.bitmaps.set(frame, found);
      for (const [oldest, bitmap] of this.bitmaps) {
        if (this.bitmaps.size <= MOST_BITMAPS) break;
        this.bitmaps.delete(oldest);
        bitmap.close();
      }
      return found;
    });
    this.last = result.catch(() => {});
    return result;
  }

  /** A frame's pixels: RGBA bytes. */
  async pixels(frame) {
    return pixelsOf(await this.bitmap(frame), this.width, this.height);
  }

  /** A frame as the model takes it in a video. */
  async frameTensor(frame) {
    return frameTensor(await this.pixels(frame), this.preprocessing);
  }

  /** A frame as the model takes a still image. */
  async imageTensor(frame) {
    return imageTensor(await this.pixels(frame), this.preprocessing);
  }

  close() {
    for (const bitmap of this.bitmaps.values()) bitmap.close();
    this.bitmaps.clear();
    this.source.close?.();
  }
}

/** Opens a file as a source of frames; `element` asks the page's video element. */
export async function openSource(blob, name, element) {
  if (/^image\//.test(blob.type) || /\.(gif|webp|apng|png)$/i.test(name)) return AnimatedSource.open(blob, name);
  const decoded = await DecodedSource.open(blob).catch(() => null);
  return decoded ?? ElementSource.open(blob, name, element);
}

/** An MP4 whose frames are decoded by the browser's VideoDecoder: every frame by its number. */
class DecodedSource {
  static async open(blob) {
    const track = typeof VideoDecoder === "undefined" ? null : await readTrack(blob);
    if (!track || !(await VideoDecoder.isConfigSupported(track.config)).supported) return null;
    const source = new DecodedSource(blob, track);
    const first = await source.draw(0);
    Object.assign(source, { width: first.width, height: first.height });
    return source;
  }

  constructor(blob, { config, samples, scale }) {
    const shown = samples.map(({ time }, i) => ({ time, sample: i })).sort((a, b) => a.time - b.time);
    const seconds = (shown.at(-1).time - shown[0].time) / scale;
    Object.assign(this, { blob, config, samples, shown, frames: shown.length, fps: seconds ? Math.round(((shown.length - 1) / seconds) * 1000) / 1000 : 25 });
    Object.assign(this, { decoder: null, next: 0, ready: new Map(), failure: null, wake: () => {} });
    this.numbers = new Map(shown.map(({ sample }, number) => [sample, number]));
  }

  /** Begins to decode at the key frame that a frame needs. */
  restart(sample) {
    this.close();
    this.failure = null;
    this.decoder = new VideoDecoder({ output: (frame) => this.take(frame), error: (error) => { this.failure = error; this.wake(); } });
    this.decoder.configure(this.config);
    this.next = sample;
    while (this.next > 0 && !this.samples[this.next].isKey) this.next -= 1;
  }

  /** Frames are stamped with the number of their sample. */
  take(frame) {
    const number = this.numbers.get(frame.timestamp);
    this.ready.get(number)?.close();
    this.ready.set(number, frame);
    this.wake();
  }

  async draw(number) {
    const { sample } = this.shown[number];
    const isAhead = this.decoder?.state === "configured" && (this.ready.has(number) || (sample >= this.next && !this.keyBetween(sample)));
    if (!isAhead) this.restart(sample);
    while (!this.ready.has(number)) {
      if (this.failure) throw new RequestError(415, `frame ${number} could not be decoded`, { hint: String(this.failure.message ?? "") });
      if (this.next >= this.samples.length) {
        await this.decoder.flush();
        if (!this.ready.has(number)) throw new RequestError(415, `frame ${number} could not be decoded`);
      } else if (this.decoder.decodeQueueSize < 8) await this.feed();
      else await new Promise((resolve) => { this.wake = resolve; });
    }
    for (const [other, frame] of this.ready) if (other < number) { frame.close(); this.ready.delete(other); }
    const frame = this.ready.get(number), canvas = canvasOf(frame.displayWidth, frame.displayHeight);
    canvas.getContext("2d").drawImage(frame, 0, 0, canvas.width, canvas.height);
    if (this.next >= this.samples.length && this.ready.size === 1) this.close();
    return canvas;
  }

  /** Whether a key frame lies between here and a sample: then it is quicker to begin there. */
  keyBetween(sample) {
    for (let i = this.next + 1; i <= sample; i += 1) if (this.samples[i].isKey) return i > this.next + 60;
    return false;
  }

  async feed() {
    const number = this.next, { offset, size, isKey } = this.samples[number];
    const data = await this.blob.slice(offset, offset + size).arrayBuffer();
    this.next += 1;
    this.decoder.decode(new EncodedVideoChunk({ type: isKey ? "key" : "delta", timestamp: number, data }));
    await new Promise((resolve) => { setTimeout(resolve); });
  }

  close() {
    for (const frame of this.ready.values()) frame.close();
    this.ready.clear();
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = null;
  }
}

/** Any video that the browser plays, by seeking its video element to the middle of each frame. */
class ElementSource {
  static async open(blob, name, element) {
    const about = await element("open", { blob });
    if (about.error) throw new RequestError(415, `${name} is not a video that this browser can play`, { hint: "Open an MP4 (H.264) or a WebM." });
    return Object.assign(new ElementSource(), about, { element });
  }

  draw(number) {
    return this.element("frame", { key: this.key, time: (number + 0.5) / this.fps });
  }

  close() {
    this.element("close", { key: this.key });
  }
}

/** An animated GIF, WebP or PNG. */
class AnimatedSource {
  static async open(blob, name) {
    if (typeof ImageDecoder === "undefined") throw new RequestError(415, "this browser cannot read animated pictures frame by frame", { hint: "Open an MP4 instead." });
    const types = { gif: "image/gif", webp: "image/webp", png: "image/png", apng: "image/png" };
    const decoder = new ImageDecoder({ data: await blob.arrayBuffer(), type: blob.type || types[name.split(".").at(-1).toLowerCase()] });
    try {
      await decoder.completed;
      const { image } = await decoder.decode({ frameIndex: 0 });
      const about = { width: image.displayWidth, height: image.displayHeight, frames: decoder.tracks.selectedTrack.frameCount, fps: image.duration ? MICROSECONDS / image.duration : 10 };
      image.close();
      return Object.assign(new AnimatedSource(), about, { decoder });
    } catch {
      throw new RequestError(415, `${name} is not a picture that this browser can read`);
    }
  }

  async draw(number) {
    const { image } = await this.decoder.decode({ frameIndex: number });
    const canvas = canvasOf(this.width, this.height);
    canvas.getContext("2d").drawImage(image, 0, 0, this.width, this.height);
    image.close();
    return canvas;
  }

  close() { this.decoder.close(); }
}

/** Pictures, one per frame, in the order of their names; all have the size of the first. */
export class PictureSource {
  static async open(files, fps = 12) {
    const inOrder = [...files].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    const first = await readBitmap(inOrder[0], inOrder[0].name);
    return Object.assign(new PictureSource(), { files: inOrder, width: first.width, height: first.height, frames: inOrder.length, fps });
  }

  draw(number) { return readBitmap(this.files[number], this.files[number].name); }
}
