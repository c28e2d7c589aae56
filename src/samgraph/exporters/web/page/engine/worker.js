// The worker: requests come as messages and are answered as messages; see `transport.js` of the page.

import { RequestError } from "./errors.js";
import { Model } from "./model.js";
import { Server } from "./server.js";

const base = new URL("..", import.meta.url);
const wanted = new Map(); // number -> {resolve}: what the page's video element was asked for
const cancelled = new Set(); // numbers of requests
let count = 0;

function element(what, details) {
  return new Promise((resolve) => {
    count += 1;
    wanted.set(count, resolve);
    postMessage({ kind: "element", number: count, what, ...details });
  });
}

const device = new URLSearchParams(self.location.search).get("device");
const model = Model.load(base, { device, onProgress: (data) => postMessage({ kind: "progress", data }) });
model.catch(() => {});
const info = fetch(new URL("info.json", base)).then((response) => response.json());
const server = info.then((known) => new Server({
  base, info: known, model, element, publish: (id, type, data) => postMessage({ kind: "event", id, type, data }),
}));

function failed(error) {
  if (error instanceof RequestError) return { status: error.status, json: { error: { code: error.code, message: error.message, hint: error.hint } } };
  console.error(error);
  const hint = /memory|allocation/i.test(String(error)) ? "The browser has too little memory for this: close other pages." : "Reload the page.";
  return { status: 500, json: { error: { code: "failed", message: `The browser could not do this: ${error?.message ?? error}`, hint } } };
}

self.onmessage = async ({ data }) => {
  if (data.kind === "element") {
    wanted.get(data.number)?.(data.result);
    wanted.delete(data.number);
    return;
  }
  const { kind, number, ...request } = data;
  if (kind === "cancel") {
    cancelled.add(number);
    return;
  }
  await new Promise((resolve) => { setTimeout(resolve); }); // what was cancelled meanwhile is not begun
  if (cancelled.delete(number)) return;
  let reply;
  try {
    const found = await (await server).answer(request);
    reply = found && "status" in found ? found : { status: 200, json: found };
  } catch (error) {
    reply = failed(error);
  }
  if (!cancelled.delete(number)) postMessage({ kind: "reply", number, reply });
};
