/** What measures the line between kernel and page, for `pyonnx-wasm bench --bridge`. */
import { fetchModel, type Blob } from "./cache.js";
import type { Rpc } from "./rpc.js";

/** Answers `echo` (what came), `produce` (so many bytes) and `fetch` (reads a file as a model is read, and drops it). */
export function addProbes(rpc: Rpc): void {
  rpc.handle("echo", ({ json, tensors }) => ({ json, buffers: tensors }));
  rpc.handle("produce", ({ json }) => ({ buffers: [new Uint8Array((json as { bytes: number }).bytes)] }));
  rpc.handle("fetch", async ({ json, signal }) => {
    const begin = performance.now();
    const found = await fetchModel(rpc, json as Blob, undefined, signal);
    const stream = found instanceof Response ? found.body : found;
    let bytes = 0;
    await stream?.pipeTo(new WritableStream({ write: (chunk: Uint8Array) => void (bytes += chunk.length) }));
    return { json: { bytes, ms: performance.now() - begin } };
  });
}
