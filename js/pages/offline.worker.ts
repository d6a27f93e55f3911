/** The service worker of all pages: what is new comes from the network, and what was kept from this browser where there is none. */
export {};

interface Extendable extends Event {
  waitUntil(done: Promise<unknown>): void;
}
interface Fetching extends Extendable {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface Told extends Extendable {
  readonly data: readonly string[];
  readonly ports: readonly MessagePort[];
}
const scope = self as unknown as EventTarget & { skipWaiting(): Promise<void>; clients: { claim(): Promise<void> } };
const NAME = "pyonnx-wasm-pages";

async function keep(urls: readonly string[]): Promise<boolean> {
  const cache = await caches.open(NAME);
  const kept = urls.map(async (url) => {
    const response = await fetch(url);
    if (response.status === 200) await cache.put(url, response);
    return response.ok;
  });
  return (await Promise.all(kept)).every(Boolean);
}

async function answered(request: Request): Promise<Response> {
  const cache = await caches.open(NAME);
  try {
    const response = await fetch(request);
    // What was kept once is kept as it is now.
    if (response.status === 200 && (await cache.match(request.url))) await cache.put(request.url, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(request.url, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}

scope.addEventListener("install", (event) => (event as Extendable).waitUntil(scope.skipWaiting()));
scope.addEventListener("activate", (event) => (event as Extendable).waitUntil(scope.clients.claim()));
scope.addEventListener("message", (event) => {
  const { data, ports } = event as Told;
  const told = keep(data).catch(() => false);
  (event as Extendable).waitUntil(told.then((all) => ports[0]?.postMessage(all)));
});
scope.addEventListener("fetch", (event) => {
  const { request } = event as Fetching;
  if (request.method === "GET" && new URL(request.url).origin === location.origin && !request.headers.has("range"))
    (event as Fetching).respondWith(answered(request));
});
