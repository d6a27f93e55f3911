/** Keeps a page for when there is no network. */

/** What every page of a model needs of the player; a worker's own imports are told by nobody. */
const PLAYER = [
  "index.mjs",
  "common.mjs",
  "engine.mjs",
  "worker.mjs",
  "generate.mjs",
  "core.wasm",
  "core-relaxed.wasm",
];

/** Whether this page, with these files and all it has fetched so far, now opens without a network. */
export async function offline(files: readonly string[]): Promise<boolean> {
  if (!("serviceWorker" in navigator)) return false;
  try {
    await navigator.serviceWorker.register(new URL("../offline.worker.js", location.href), { scope: "../" });
    const { active } = await navigator.serviceWorker.ready;
    const own = performance.getEntriesByType("resource").map(({ name }) => name);
    const named = [...files, ...PLAYER.map((name) => `../player/${name}`)].map(
      (name) => new URL(name, location.href).href,
    );
    const urls = [location.href, ...own, ...named].filter((url) => new URL(url).origin === location.origin);
    const { port1, port2 } = new MessageChannel();
    const kept = new Promise<boolean>((done) => (port1.onmessage = ({ data }) => done(data === true)));
    active?.postMessage([...new Set(urls)], [port2]);
    return await kept;
  } catch (error) {
    console.warn("the page is not kept for when there is no network:", error);
    return false;
  }
}
