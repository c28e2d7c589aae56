// How requests travel on the page without a server: to a worker, which answers as `samgraph serve` would.

import { busyText } from "./notices.js";
import { answerElement } from "./video_element.js";

const base = new URL("../..", import.meta.url);
const asked = new Map(); // number -> {resolve, reject}
const listeners = new Map(); // id of a video -> EventTargets
const TRIED = "samgraph.isolated"; // the page was loaded once more, whether that helped or not
const LONGEST = 4000; // milliseconds to wait for the service worker
let count = 0;

const worker = (async () => {
  await isolated();
  const device = new URLSearchParams(location.search).get("device");
  const made = new Worker(new URL(`engine/worker.js${device ? `?device=${encodeURIComponent(device)}` : ""}`, base), { type: "module" });
  made.onmessage = ({ data }) => receive(made, data);
  made.onerror = (event) => {
    for (const { reject } of asked.values()) reject(new Error(event.message ?? "the worker failed"));
    asked.clear();
  };
  return made;
})();

/**
 * Lets the service worker take over: it keeps every file for use without a network, and adds the headers that threads
 * need, for which the page is loaded once more.
 */
async function isolated() {
  if (!("serviceWorker" in navigator)) return;
  try {
    await navigator.serviceWorker.register(new URL("sw.js", base));
    await navigator.serviceWorker.ready;
    if (!navigator.serviceWorker.controller) {
      await new Promise((resolve) => {
        navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true });
        setTimeout(resolve, LONGEST);
      });
    }
    const isFirst = !sessionStorage.getItem(TRIED);
    sessionStorage.setItem(TRIED, "yes");
    if (self.crossOriginIsolated || !navigator.serviceWorker.controller || !isFirst) return;
  } catch { return; } // a browser that forbids it: everything works with one thread, while there is a network
  location.reload();
  await new Promise(() => {}); // nothing more on this page
}

async function receive(from, { kind, number, reply, id, type, data, ...rest }) {
  if (kind === "reply") {
    asked.get(number)?.resolve(reply);
    asked.delete(number);
  } else if (kind === "event") {
    for (const target of listeners.get(id) ?? []) target.dispatchEvent(Object.assign(new Event(type), { data: JSON.stringify(data) }));
  } else if (kind === "progress") {
    busyText(data);
  } else if (kind === "element") {
    const result = await answerElement(rest);
    from.postMessage({ kind: "element", number, result }, result instanceof ImageBitmap ? [result] : []);
  }
}

async function send(request, signal) {
  const to = await worker;
  signal?.throwIfAborted();
  count += 1;
  const number = count;
  const { status, json, blob, name } = await new Promise((resolve, reject) => {
    asked.set(number, { resolve, reject });
    signal?.addEventListener("abort", () => { if (asked.delete(number)) to.postMessage({ kind: "cancel", number }); reject(signal.reason); }, { once: true });
    to.postMessage({ kind: "ask", number, ...request });
  });
  if (number === 1) navigator.serviceWorker?.controller?.postMessage("fill"); // the engine is up: keep the rest of the files
  const headers = name ? { "Content-Disposition": `attachment; filename*=UTF-8''${encodeURIComponent(name)}` } : {};
  if (blob) return new Response(blob, { status, headers });
  return status === 204 ? new Response(null, { status }) : new Response(JSON.stringify(json), { status, headers: { "Content-Type": "application/json" } });
}

/** Sends a request; gives a Response whatever its status. Throws where nothing answers. */
export const ask = (path, { method = "GET", body, signal } = {}) => send({ method, path, body: body === undefined ? {} : JSON.parse(body) }, signal);

/** The events of a path, as an EventSource. */
export function openEvents(path) {
  const id = path.split("/")[1], target = new EventTarget();
  const known = listeners.get(id) ?? new Set();
  listeners.set(id, known.add(target));
  return Object.assign(target, { close: () => known.delete(target) });
}

/** An image element's picture becomes that of a path. */
export async function showPicture(image, path) {
  const response = await ask(path).catch(() => null);
  if (!response?.ok) return;
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  image.src = URL.createObjectURL(await response.blob());
}

/** Saves what a path gives. */
export async function download(path) {
  const { saveResponse } = await import("./api.js");
  await saveResponse(await ask(path), "samgraph");
}

/** Hands a file to the engine; `session`: what a video goes on with; `pictures`: the frames of a clip. */
export function sendFile(path, file, { session = null, pictures = null, onProgress }) {
  onProgress(1);
  return send({ method: "POST", path, file, session, pictures });
}
