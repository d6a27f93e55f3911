/** Files by content hash: kept in the browser's Cache API, else read from the kernel, chunk by chunk as they are consumed. */
import { messageOf } from "../player/errors.js";
import type { Rpc } from "./rpc.js";

/** A file that the kernel serves. */
export interface Blob {
  readonly sha256: string;
  readonly bytes: number;
}

export interface Transfer {
  readonly loaded: number;
  readonly total: number;
  readonly from: "cache" | "kernel";
  /** Why the browser does not keep the file. */
  readonly uncached?: string;
}

const CACHE = "pyonnx_wasm";
const FIRST_CHUNK = 2 ** 18;
const LARGEST_CHUNK = 2 ** 23;
const AHEAD = 4;
const KEEP_AHEAD = 2 ** 26;
// A chunk should take about this long, so that a slow line shows progress and signs of life.
const QUICK_MS = 300;
const SLOW_MS = 1500;

/**
 * The bytes of a file: from this browser's cache, where nothing travels, or from the kernel, and then kept.
 *
 * At most four chunks are under way, and none before the reader wants it. A cache that is full, or missing because the page is
 * no secure context, only means that the file travels again next time; `onProgress` says why. Errors of the transfer end the stream.
 */
export async function fetchModel(
  rpc: Rpc,
  blob: Blob,
  onProgress: (transfer: Transfer) => void = () => {},
  signal?: AbortSignal,
): Promise<Response | ReadableStream<Uint8Array>> {
  const { bytes: total } = blob;
  let uncached: string | undefined;
  const tell = (loaded: number): void =>
    onProgress({ loaded, total, from: "kernel", ...(uncached !== undefined && { uncached }) });
  const cache = await openCache().catch((error: unknown) => {
    uncached = messageOf(error);
    return undefined;
  });
  const kept = await cache?.match(address(blob));
  if (kept) {
    onProgress({ loaded: total, total, from: "cache" });
    return kept;
  }
  tell(0);
  const stream = kernelStream(rpc, blob, tell, signal);
  if (!cache) return stream;
  return keeping(stream, async (copy) => {
    const headers = { "Content-Type": "application/octet-stream", "Content-Length": String(total) };
    await cache.put(address(blob), new Response(copy, { headers })).catch((error: unknown) => {
      uncached = `the browser's cache did not take it: ${messageOf(error)}`;
      throw error;
    });
  });
}

/** Removes a file from the cache, as when it turns out to be damaged. */
export async function forget(blob: Blob): Promise<void> {
  await (await openCache().catch(() => undefined))?.delete(address(blob));
}

/** The whole file in memory. */
export async function fetchBytes(rpc: Rpc, blob: Blob): Promise<ArrayBuffer> {
  const found = await fetchModel(rpc, blob);
  return (found instanceof Response ? found : new Response(found)).arrayBuffer();
}

async function openCache(): Promise<Cache> {
  if (!("caches" in globalThis))
    throw new Error("the page is no secure context (https or localhost), so it has no cache");
  return caches.open(CACHE);
}

function address({ sha256 }: Blob): string {
  return `https://pyonnx-wasm.invalid/${sha256}`;
}

function kernelStream(
  rpc: Rpc,
  { sha256, bytes }: Blob,
  tell: (loaded: number) => void,
  signal: AbortSignal | undefined,
): ReadableStream<Uint8Array> {
  const ended = new AbortController();
  signal?.addEventListener("abort", () => ended.abort(signal.reason), { once: true });
  const ahead: Promise<Uint8Array[]>[] = [];
  let [asked, loaded, chunk, arrived] = [0, 0, FIRST_CHUNK, 0];

  const ask = async (start: number, end: number): Promise<Uint8Array[]> => {
    const begin = performance.now();
    const { buffers } = await rpc.call("read", { sha256, start, end }, [], { signal: ended.signal });
    const got = buffers.reduce((sum, { length }) => sum + length, 0);
    if (got !== end - start)
      throw new Error(`the kernel sent ${got} bytes of ${sha256.slice(0, 12)}, not ${end - start}`);
    const now = performance.now();
    const ms = now - Math.max(begin, arrived); // chunks before this one had the line to themselves
    arrived = now;
    if (ms < QUICK_MS) chunk = Math.min(chunk * 2, LARGEST_CHUNK);
    if (ms > SLOW_MS) chunk = Math.max(chunk / 2, FIRST_CHUNK);
    return buffers;
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (ahead.length < AHEAD && asked < bytes) {
          const end = Math.min(asked + chunk, bytes);
          const answer = ask(asked, end);
          answer.catch(() => {});
          ahead.push(answer);
          asked = end;
        }
        const next = ahead.shift();
        if (!next) return controller.close();
        for (const buffer of await next) {
          loaded += buffer.length;
          controller.enqueue(buffer);
        }
        tell(loaded);
        if (loaded === bytes) controller.close();
      },
      cancel(reason) {
        ended.abort(reason ?? new Error("the reader stopped"));
      },
    },
    { highWaterMark: 0 },
  );
}

/** The stream again, while `keep` gets a copy of it. A copy that fails is given up; a stream that fails fails both. */
function keeping(
  stream: ReadableStream<Uint8Array>,
  keep: (copy: ReadableStream<Uint8Array>) => Promise<void>,
): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  let copy: ReadableStreamDefaultController<Uint8Array> | undefined;
  let room: (() => void) | undefined;
  const giveUp = (): void => {
    copy = undefined;
    room?.();
  };
  const copied = new ReadableStream<Uint8Array>(
    { start: (controller) => void (copy = controller), pull: () => room?.(), cancel: giveUp },
    new ByteLengthQueuingStrategy({ highWaterMark: KEEP_AHEAD }),
  );
  keep(copied).catch(giveUp);
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) {
            copy?.close();
            return controller.close();
          }
          if (copy) {
            copy.enqueue(value.slice());
            // A disk that is much slower sets the pace, so that no more than this piles up in memory.
            if ((copy.desiredSize ?? 1) <= 0) await new Promise<void>((resolve) => (room = resolve));
          }
          controller.enqueue(value);
        } catch (error) {
          copy?.error(error);
          controller.error(error);
        }
      },
      cancel(reason) {
        copy?.error(reason ?? new Error("the reader stopped"));
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
