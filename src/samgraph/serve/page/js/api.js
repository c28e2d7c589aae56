// The HTTP API. Every failure is an ApiError with a sentence and, where there is one, what to do.

import { ask, sendFile } from "./transport.js";

export class ApiError extends Error {
  constructor(message, { hint = "", status = 0, code = "" } = {}) {
    super(message);
    Object.assign(this, { hint, status, code });
  }
}

const BUSY_TRIES = 4;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function failure(response) {
  let error = {};
  try { error = (await response.json()).error ?? {}; } catch { /* not ours: a proxy's page */ }
  const hint = error.hint ?? (response.status === 503 ? "The server is busy. Try again in a moment." : "");
  return new ApiError(sentence(error.message ?? `The server answered ${response.status}`), { hint: sentence(hint), status: response.status, code: error.code });
}

/** What the server says, as a sentence; names and quoted values stay as they are. */
export const sentence = (text) => text.replace(/^[a-z]+(?=[ ,])/, (word) => word[0].toUpperCase() + word.slice(1)).replace(/[^.?!…`]$/, "$&.");

/** Whether the same request may do better later. */
export const mayPass = (error) => ["offline", "upload"].includes(error.code) || error.status >= 500;

/** Sends a request; waits and tries again where the server is busy, unless `patient` is false. */
export async function request(method, path, { body, headers, signal, patient = true } = {}) {
  for (let tries = 1; ; tries += 1) {
    let response;
    try {
      response = await ask(path, { method, body, headers, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      isAway = true;
      throw new ApiError("The server cannot be reached.", { hint: "Is `samgraph serve` still running? Then try again.", code: "offline" });
    }
    if (response.ok) {
      if (isAway) back();
      return response;
    }
    if (response.status === 503 && patient && tries < BUSY_TRIES) {
      await pause(1000 * Math.min(5, Number(response.headers.get("Retry-After")) || 1));
      continue;
    }
    throw await failure(response);
  }
}

let isAway = false; // the last request found no server
const returned = [];

/** Calls `f` when the server answers again. */
export const onReturn = (f) => returned.push(f);

function back() {
  isAway = false;
  returned.forEach((f) => f());
}

const asJson = async (promise) => {
  const response = await promise;
  return response.status === 204 ? null : response.json();
};

export const get = (path, options) => asJson(request("GET", path, options));
export const remove = (path, options) => asJson(request("DELETE", path, options));
export const send = (method, path, value, options) =>
  asJson(request(method, path, { body: JSON.stringify(value), headers: { "Content-Type": "application/json" }, ...options }));
export const post = (path, value, options) => send("POST", path, value, options);

/**
 * Uploads a file to `images` or `videos`, with its progress (0 to 1). `session`: what a video goes on with; `pictures`:
 * the frames of a clip.
 */
export async function upload(path, file, { session, pictures, onProgress = () => {} } = {}) {
  let response;
  try {
    response = await sendFile(path, file, { session, pictures, onProgress });
  } catch {
    throw new ApiError("The upload did not arrive.", { hint: "Is the server still running, and the file still there?", code: "upload" });
  }
  if (!response.ok) throw await failure(response);
  return response.json();
}

/** Saves the bytes of a response under the name that the server gives them. */
export async function saveResponse(response, fallback) {
  saveBlob(await response.blob(), nameOf(response) ?? fallback);
}

function nameOf(response) {
  const header = response.headers.get("Content-Disposition") ?? "";
  const encoded = /filename\*=UTF-8''([^;]+)/i.exec(header);
  if (encoded) try { return decodeURIComponent(encoded[1]); } catch { return null; }
  return /filename="?([^";]+)"?/i.exec(header)?.[1] ?? null;
}

/** Saves a Blob as a file. */
export function saveBlob(blob, name) {
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
