// The service worker: every file is kept, so that the page works without a network after the first visit, and pages
// get the headers that let WebAssembly have threads. VERSION, PAGE and REST are put in by `samgraph export --to web`.

const VERSION = "@VERSION@";
const PAGE = ["@PAGE@"];
const REST = ["@REST@"];
const NAME = `samgraph-${self.registration.scope}-${VERSION}`;

const isolated = (response) => {
  if (response.type === "opaque" || response.status === 0) return response;
  const headers = new Headers(response.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  headers.set("Cross-Origin-Resource-Policy", "same-origin");
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
};

const isOld = (name) => name.startsWith(`samgraph-${self.registration.scope}-`) && name !== NAME;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(PAGE)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) if (isOld(name)) await caches.delete(name);
    await self.clients.claim();
  })());
});

/** What is kept under an address, without what follows `?`; else from the network, and kept. */
async function answer(request) {
  const address = new URL(request.url);
  address.search = "";
  address.hash = "";
  const cache = await caches.open(NAME), kept = await cache.match(address.href);
  if (kept) return isolated(kept);
  const response = await fetch(request);
  if (response.status === 200) await cache.put(address.href, response.clone()).catch(() => {}); // no space left
  return isolated(response);
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && request.url.startsWith(self.registration.scope)) event.respondWith(answer(request));
});

/** Keeps the files that no visit has asked for yet: samples, graphs that only videos need. */
self.addEventListener("message", (event) => {
  if (event.data !== "fill") return;
  event.waitUntil((async () => {
    const cache = await caches.open(NAME);
    for (const file of REST) {
      const address = new URL(file, self.registration.scope).href;
      if (!(await cache.match(address))) await cache.add(address).catch(() => {});
    }
  })());
});
