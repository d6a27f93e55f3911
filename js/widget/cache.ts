/** Files by content hash: kept in the browser's Cache API, else read from the kernel, chunk by chunk as they are consumed. */
import { messageOf } from "../player/errors.js";
import type { Caller } from "./rpc.js";
import { Store } from "../player/store.js";

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

const FIRST_CHUNK = 2 ** 18;
const LARGEST_CHUNK = 2 ** 23;
const AHEAD = 4;
/** Bytes that wait to be kept, at most: keeping takes time from a transfer, so it comes after. */
const KEEP_LATER = 2 ** 28;
// A chunk should take about this long, so that a slow line shows progress and signs of life.
const QUICK_MS = 300;
const SLOW_MS = 1500;

/**
 * The bytes of a file: from this browser's cache, where nothing travels, or from the kernel, and then kept.
 *
 * At most four chunks are under way, and none before the reader wants it. A cache that is full, or missing because the page is
 * no secure context, only means that the file travels again next time; `onProgress` says why, also after the end. Errors of the
 * transfer end the stream.
 */
export async function fetchModel(
  rpc: Caller,
  blob: Blob,
  onProgress: (transfer: Transfer) => void = () => {},
  signal?: AbortSignal,
): Promise<Response | ReadableStream<Uint8Array>> {
  const { sha256, bytes: total } = blob;
  let [at, uncached]: [number, string | undefined] = [0, undefined];
  const tell = (loaded: number): void => {
    at = loaded;
    onProgress({ loaded, total, from: "kernel", ...(uncached !== undefined && { uncached }) });
  };
  if (rpc.local) return kernelStream(rpc, blob, tell, signal);
  const store = await Store.open().catch((error: unknown) => {
    uncached = messageOf(error);
    return undefined;
  });
  const kept = await store?.find(sha256).catch(() => undefined);
  if (kept) {
    onProgress({ loaded: total, total, from: "cache" });
    return new Response(kept);
  }
  const notKept = (error: unknown): void => {
    uncached = `the browser's cache did not take it: ${messageOf(error)}`;
    tell(at);
  };
  tell(0);
  const stream = kernelStream(rpc, blob, tell, signal);
  try {
    store?.check(total);
  } catch (error) {
    notKept(error);
    return stream;
  }
  if (!store) return stream;
  const keep = async (file: globalThis.Blob): Promise<void> => {
    if (file.size !== total) throw new Error(`${file.size} of ${total} bytes are left of it`);
    await store.keep(sha256, file);
  };
  return keeping(stream, keep, notKept);
}

/** Removes a file from the cache, as when it turns out to be damaged. */
export async function forget({ sha256 }: Blob): Promise<void> {
  await (await Store.open().catch(() => undefined))?.forget(sha256);
}

/** The whole file in memory. */
export async function fetchBytes(rpc: Caller, blob: Blob): Promise<ArrayBuffer> {
  const found = await fetchModel(rpc, blob);
  return (found instanceof Response ? found : new Response(found)).arrayBuffer();
}

function kernelStream(
  rpc: Caller,
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

/** The stream again; what came of it is kept once it is whole, unless that fails. Readers must leave the chunks as they are. */
function keeping(
  stream: ReadableStream<Uint8Array>,
  keep: (file: globalThis.Blob) => Promise<void>,
  onFailure: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  const waiting: Uint8Array[] = [];
  const parts: globalThis.Blob[] = [];
  let bytes = 0;
  let failed = false;

  // The browser moves blobs out of this page, to disk where memory is short.
  const moveUntil = async (most: number): Promise<void> => {
    for (let chunk; bytes > most && (chunk = waiting.shift());) {
      const part = new globalThis.Blob([chunk as Uint8Array<ArrayBuffer>]);
      parts.push(part);
      bytes -= chunk.length;
      await part.slice(-1).arrayBuffer(); // once it is moved
    }
  };
  const orFail = async (step: () => Promise<void>): Promise<void> => {
    if (failed) return;
    await step().catch((error: unknown) => {
      failed = true;
      waiting.length = parts.length = 0;
      onFailure(error);
    });
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await reader.read();
        if (done) {
          controller.close();
          void orFail(async () => {
            await moveUntil(0);
            await keep(new globalThis.Blob(parts));
          });
          return;
        }
        await orFail(async () => {
          bytes += value.length;
          waiting.push(value);
          await moveUntil(KEEP_LATER);
        });
        controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}
