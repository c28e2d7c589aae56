// The graphs of the model in ONNX Runtime, called as `docs/onnx.md` says: WebGPU where there is one, else WebAssembly.

const MOST_THREADS = 8;
const WEIGHTS = "weights.bin"; // what the graphs call the file of weights
const AT_ONCE = ["image_encoder", "decode_points"]; // graphs that the first click needs

/** Half floats as floats: weights are stored in 16 bits and computed with in 32. */
export function halvesToFloats(halves) {
  const table = new Float32Array(1 << 16), bits = new Uint32Array(table.buffer), out = new Float32Array(halves.length);
  for (let half = 0; half < 1 << 16; half += 1) {
    const sign = half & 0x8000, exponent = (half >> 10) & 31, fraction = half & 0x3ff;
    if (exponent === 0) table[half] = (sign ? -1 : 1) * fraction * 2 ** -24;
    else bits[half] = ((sign << 16) | (exponent === 31 ? 0x7f800000 : (exponent + 112) << 23) | (fraction << 13)) >>> 0;
  }
  for (let i = 0; i < halves.length; i += 1) out[i] = table[halves[i]];
  return out;
}

/** The bytes of a file; says how much has come. */
async function loaded(url, onProgress) {
  const response = await fetched(url), total = Number(response.headers.get("Content-Length"));
  const parts = [];
  let length = 0;
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    onProgress(total ? `Loading the model, ${Math.min(100, Math.round((100 * length) / total))} %` : "Loading the model");
  }
  return new Blob(parts).arrayBuffer();
}

/** Whether there is a GPU; one that is emulated by the processor is slower than WebAssembly. */
async function hasGpu() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return Boolean(adapter) && !(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter);
}

/** The runtime for this browser: {ort, device, threads}; `wanted` may be "wasm" or "webgpu". */
async function loadRuntime(base, wanted) {
  const device = ["wasm", "webgpu"].includes(wanted) ? wanted : await hasGpu() ? "webgpu" : "wasm";
  const ort = await import(new URL(`runtime/ort.${device}.min.mjs`, base));
  const threads = self.crossOriginIsolated ? Math.max(1, Math.min(MOST_THREADS, navigator.hardwareConcurrency || 1)) : 1;
  ort.env.wasm.wasmPaths = new URL("runtime/", base).href;
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  return { ort, device, threads };
}

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} could not be loaded (${response.status}).`);
  return response;
}

/** SAM 2: encode, decode, mask prompts, memories. One run at a time, in the order they were asked for. */
export class Model {
  constructor({ ort, device, threads }, manifest, halves, base) {
    const { constants: known, preprocessing, graphs } = manifest;
    Object.assign(this, { ort, device, threads, manifest, halves, base, sessions: new Map(), last: Promise.resolve() });
    Object.assign(this, {
      size: known.image_size, maskSide: known.mask_size, channels: known.channels, tokens: known.memory_tokens,
      memoryChannels: known.memory_channels, memoryFrames: known.memory_frames, maxPointers: known.max_pointers,
      maps: Object.fromEntries(graphs.image_encoder.outputs.map(({ name, shape }) => [name, [1, ...shape.slice(1)]])),
      everything: known.everything, obeysClicks: Boolean(known.obeys_clicks),
      absentPointer: Float32Array.from(known.absent_pointer),
      preprocessing: { size: known.image_size, mean: preprocessing.mean, std: preprocessing.std },
    });
  }

  /** Loads the model of a folder of `samgraph export --to web`; `device` may be "wasm" or "webgpu". */
  static async load(base, { device = null, onProgress = () => {} } = {}) {
    const manifest = await (await fetched(new URL("manifest.json", base))).json();
    const halves = new Uint16Array(await loaded(new URL("model/weights.f16", base), onProgress));
    onProgress("Preparing the model");
    const model = new Model(await loadRuntime(base, device), manifest, halves, base);
    try {
      await model.prepareSessions(AT_ONCE);
      return model;
    } catch (error) {
      if (model.device === "wasm") throw error;
    }
    const other = new Model(await loadRuntime(base, "wasm"), manifest, halves, base); // a GPU that cannot
    await other.prepareSessions(AT_ONCE);
    return other;
  }

  /** Makes the sessions of some graphs; a session takes its weights from the file they share. */
  async prepareSessions(names) {
    const wanted = names.filter((name) => !this.sessions.has(name));
    if (!wanted.length) return;
    const floats = new Uint8Array(halvesToFloats(this.halves).buffer);
    for (const name of wanted) {
      const file = new URL(this.manifest.graphs[name].file, this.base);
      const graph = new Uint8Array(await (await fetched(file)).arrayBuffer());
      this.sessions.set(name, await this.ort.InferenceSession.create(graph, {
        executionProviders: [this.device], graphOptimizationLevel: "all", logSeverityLevel: 3, externalData: [{ path: WEIGHTS, data: floats }],
      }));
    }
    if (this.sessions.size === Object.keys(this.manifest.graphs).length) this.halves = null;
  }

  /** Makes the sessions that tracking needs. */
  prepareTracking() {
    return this.exclusive(() => this.prepareSessions(Object.keys(this.manifest.graphs)));
  }

  /** Runs something after what was asked for before it: a session is not called while another runs. */
  exclusive(task) {
    const result = this.last.then(task);
    this.last = result.catch(() => {});
    return result;
  }

  /** Runs a graph: {input: [array, shape]} -> {output: array}. */
  run(name, inputs) {
    return this.exclusive(async () => {
      await this.prepareSessions([name]);
      const feeds = {};
      for (const [key, [data, shape]] of Object.entries(inputs)) {
        const type = data instanceof BigInt64Array ? "int64" : data instanceof Uint8Array ? "bool" : "float32";
        feeds[key] = new this.ort.Tensor(type, data, shape);
      }
      const found = await this.sessions.get(name).run(feeds), outputs = {};
      for (const [key, value] of Object.entries(found)) {
        outputs[key] = value.data;
        value.dispose();
      }
      return outputs;
    });
  }

  /** Feature maps of one image, as inputs; which there are depends on the model. */
  features(found) {
    return Object.fromEntries(Object.entries(this.maps).map(([name, shape]) => [name, [found[name], shape]]));
  }

  /** Pixels [3, S, S], normalised -> {embedding, ...}. */
  encode(pixels) {
    return this.run("image_encoder", { image: [pixels, [1, 3, this.size, this.size]] });
  }

  /** Prompts of P points each on a still image -> [{masks [4, L, L], ious [4], stability [4]}]. */
  async decodePoints(features, prompts) {
    const N = prompts.length, P = prompts[0].count, points = new Float32Array(N * P * 2), labels = new BigInt64Array(N * P);
    prompts.forEach((prompt, i) => { points.set(prompt.points, i * P * 2); labels.set(prompt.labels, i * P); });
    const { masks, ious, stability } = await this.run("decode_points", { ...this.features(features), points: [points, [N, P, 2]], labels: [labels, [N, P]] });
    const each = masks.length / N;
    return prompts.map((_, i) => ({ masks: masks.subarray(i * each, (i + 1) * each), ious: ious.subarray(i * 4, i * 4 + 4), stability: stability.subarray(i * 4, i * 4 + 4) }));
  }

  /** Any prompt on features, which may remember: the four masks, and the selected one with its pointer. */
  async decode(features, { points, labels, count }, { multimask, mask = null, isConditioned = false }) {
    const side = this.maskSide, flag = (value) => [Uint8Array.of(value ? 1 : 0), [1]];
    const found = await this.run("decode", {
      ...this.features(features), points: [points, [1, count, 2]], labels: [labels, [1, count]],
      mask: [mask ?? new Float32Array(side * side), [1, 1, side, side]],
      has_mask: flag(mask), no_memory: flag(!isConditioned), multimask: flag(multimask),
    });
    const { masks, ious, stability, best_mask: bestMask, pointer } = found;
    return { masks, ious, stability, bestMask, pointer, bestIou: found.best_iou[0], objectScore: found.object_score[0] };
  }

  /** A mask of 0 and 1 [S, S] that a user gave -> {logits, prompt} [L, L]. */
  maskPrompt(mask) {
    return this.run("mask_prompt", { mask: [mask, [1, 1, this.size, this.size]] });
  }

  /** The memory [T, channels] of a mask's logits [L, L] on a frame; those of prompted frames are hardened first. */
  async encodeMemory({ embedding }, logits, score, isPrompted) {
    const side = this.maskSide;
    const { memory } = await this.run("memory_encoder", {
      embedding: [embedding, this.maps.embedding], mask: [logits, [1, 1, side, side]],
      object_score: [Float32Array.of(score), [1, 1]], binary: [Uint8Array.of(isPrompted ? 1 : 0), [1]],
    });
    return memory;
  }

  /** A frame's embedding conditioned on memories [F, T, channels] and pointers [Q, C]. */
  async attend(embedding, { memory, frames, slots, pointers, times }) {
    const one = "memory_attention_one"; // some models attend otherwise to a single frame
    const found = await this.run(frames === 1 && this.manifest.graphs[one] ? one : "memory_attention", {
      embedding: [embedding, this.maps.embedding], memory: [memory, [1, frames, this.tokens, this.memoryChannels]],
      slots: [BigInt64Array.from(slots, BigInt), [1, frames]], pointers: [pointers, [1, times.length, this.channels]],
      pointer_times: [Float32Array.from(times), [1, times.length]],
    });
    return found.conditioned;
  }
}
