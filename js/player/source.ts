/** Byte sources: where a model comes from, read in order, chunk by chunk. */
import { messageOf } from "./errors.js";
import { turn } from "./pause.js";
import { openFile, pathAddress } from "./server.js";

/** Yields the bytes in order; undefined at the end. A chunk is only valid until the next call. */
export interface Source {
  /** For error messages. */
  readonly name: string;
  /** Address that thin files' source files are relative to, if there is one. */
  readonly url?: string;
  /** Bytes of all, where that is known before. */
  readonly size?: number;
  /** Whether chunks are the reader's own, with their buffers. */
  readonly owned?: boolean;
  /** Asks, before the first read, that all chunks come in one memory, which stays the source's; false where they do not. */
  reuse?(): boolean;
  /** Its number where it lies in the engine already. */
  readonly staged?: number;
  read(): Promise<Uint8Array | undefined>;
  cancel(): void;
}

export type ModelSource =
  string | URL | Response | Blob | ReadableStream<Uint8Array> | ArrayBufferLike | ArrayBufferView;

const SLICE = 2 ** 22;
/** What chunks that come in one memory have at most: enough to take what has come meanwhile, and less than a cache. */
const ROOM_BYTES = 2 ** 19;
/**
 * Bytes of a stream after which the thread's tasks have their turn. What has come already is read without one, and Chromium's collector,
 * which goes on in tasks, keeps what the reader is through with until it is done: up to 90 MB of a file of 90.
 */
const TURN_BYTES = 2 ** 20;
/**
 * Files of no more are read without turns, and so much of those whose size is not known: in a turn Chromium takes all that has come into
 * memory of its own, 20 MB for a file of 14, and it has nothing to collect yet.
 */
const SMALL_BYTES = 2 ** 24;

export function bytesSource(bytes: Uint8Array, name: string): Source {
  let at = 0;
  return {
    name,
    read: async () => (at < bytes.length ? bytes.subarray(at, (at = Math.min(at + SLICE, bytes.length))) : undefined),
    cancel: () => {},
  };
}

/** A stream of so many bytes, 0 where that is not known. */
export function streamSource(stream: ReadableStream<Uint8Array>, name: string, url?: string, size = 0): Source {
  let reader: ReadableStreamReader<Uint8Array> = stream.getReader();
  let next = (): Promise<ReadableStreamReadResult<Uint8Array>> => (reader as ReadableStreamDefaultReader).read();
  let since = size > SMALL_BYTES ? 0 : -SMALL_BYTES;
  return {
    name,
    ...(url && { url }),
    async read() {
      if (since >= TURN_BYTES) {
        since = 0;
        await turn();
      }
      const { done, value } = await next().catch((error: unknown) => {
        throw new Error(`the transfer broke off: ${messageOf(error)}`);
      });
      if (done) return undefined;
      if (!(value instanceof Uint8Array)) throw new Error("the stream must yield Uint8Array chunks");
      since += value.length;
      return value;
    },
    reuse() {
      reader.releaseLock();
      const filled = fillerOf(stream);
      reader = filled ?? stream.getReader();
      let room = new ArrayBuffer(ROOM_BYTES);
      if (filled)
        next = async () => {
          const result = await filled.read(new Uint8Array(room));
          room = result.value?.buffer ?? room;
          return result as ReadableStreamReadResult<Uint8Array>;
        };
      return !!filled;
    },
    cancel: () => void reader.cancel().catch(() => {}),
  };
}

/** Reads a stream into memory that is given to it; undefined where the browser or the stream has no such reader. */
function fillerOf(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  try {
    return "ReadableStreamBYOBReader" in globalThis ? stream.getReader({ mode: "byob" }) : undefined;
  } catch {
    return undefined;
  }
}

export function responseSource(response: Response, name: string): Source {
  if (!response.ok) throw new Error(`${name}: HTTP ${response.status} ${response.statusText}`.trimEnd());
  if (response.bodyUsed) throw new Error(`${name}: the body of this Response was read before`);
  if (!response.body) return bytesSource(new Uint8Array(), name);
  // What is unpacked on the way has another length.
  const size = response.headers.has("Content-Encoding") ? 0 : Number(response.headers.get("Content-Length"));
  const source = {
    ...streamSource(response.body, name, response.url || undefined, size),
    owned: response.type !== "default", // else the stream is of somebody's making
  };
  return size ? { ...source, size } : source;
}

export async function urlSource(url: string): Promise<Source> {
  try {
    const file = await openFile(url);
    if (file) {
      const read = async () => {
        const chunk = await file.read(SLICE);
        return chunk.length ? chunk : undefined;
      };
      return { name: url, url, owned: true, read, cancel: () => file.close() };
    }
  } catch (error) {
    throw new Error(`${url}: cannot be read: ${messageOf(error)}`);
  }
  let response: Response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new Error(`${url}: cannot be fetched: ${messageOf(error)}`);
  }
  return responseSource(response, url);
}

/** All bytes of a source, which is closed then. */
export async function readAll(source: Source, onProgress?: (loaded: number) => void): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for (let chunk = await source.read(); chunk; chunk = await source.read()) {
      chunks.push(chunk.slice());
      size += chunk.length;
      onProgress?.(size);
    }
  } catch (error) {
    throw new Error(`${source.name}: ${messageOf(error)}`);
  } finally {
    source.cancel();
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks.splice(0)) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

/** Opens what a caller may hand over. */
export async function open(source: ModelSource | Source): Promise<Source> {
  if (isSource(source)) return source;
  if (typeof source === "string" || source instanceof URL) return urlSource(absolute(source));
  if (source instanceof Response) return responseSource(source, source.url || "Response");
  if (source instanceof Blob) return streamSource(source.stream(), source instanceof File ? source.name : "Blob");
  if (source instanceof ReadableStream) {
    if (source.locked) throw new Error("the ReadableStream is locked by another reader");
    return streamSource(source, "stream");
  }
  const bytes = asBytes(source);
  if (!bytes)
    throw new TypeError(
      "a model is an address, a Response, Blob, ReadableStream, ArrayBuffer or typed array of a .ponnx file",
    );
  return bytesSource(bytes, "model");
}

function isSource(source: ModelSource | Source): source is Source {
  return typeof source === "object" && (source as unknown) !== null && "read" in source;
}

export function asBytes(value: unknown): Uint8Array | undefined {
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  const tag = Object.prototype.toString.call(value);
  if (tag === "[object ArrayBuffer]" || tag === "[object SharedArrayBuffer]")
    return new Uint8Array(value as ArrayBuffer);
  return undefined;
}

/** Addresses as they are fetched; where there are files, of paths too. */
export function absolute(url: string | URL): string {
  const file = typeof url === "string" ? pathAddress(url) : undefined;
  if (file) return file;
  const base = typeof document === "object" ? document.baseURI : globalThis.location?.href;
  try {
    return new URL(url, base).href;
  } catch {
    throw new TypeError(`"${url}" is not an address`);
  }
}

interface Pulled {
  chunk?: Uint8Array<ArrayBuffer>;
  error?: string;
}

/** Serves a source to the far end of a message channel, one chunk per request; chunks are transferred. */
export function servePort(source: Source, port: MessagePort): void {
  port.onmessage = async ({ data }: MessageEvent<"read" | "cancel">) => {
    if (data === "cancel") {
      source.cancel();
      port.close();
      return;
    }
    try {
      const view = await source.read();
      if (!view) return port.postMessage({} satisfies Pulled);
      const whole = source.owned && view.byteLength === view.buffer.byteLength;
      const chunk = (whole ? view : view.slice()) as Uint8Array<ArrayBuffer>;
      port.postMessage({ chunk } satisfies Pulled, [chunk.buffer]);
    } catch (error) {
      port.postMessage({ error: messageOf(error) } satisfies Pulled);
    }
  };
}

export function portSource(port: MessagePort, name: string, url?: string): Source {
  return {
    name,
    ...(url && { url }),
    owned: true,
    read: () =>
      new Promise((resolve, reject) => {
        port.onmessage = ({ data }: MessageEvent<Pulled>) =>
          data.error === undefined ? resolve(data.chunk) : reject(new Error(data.error));
        port.postMessage("read");
      }),
    cancel: () => port.postMessage("cancel"),
  };
}

let nowhere: MessagePort | undefined;

/**
 * Gives the memory of a chunk back at once: collectors hardly see what lies outside of their heap. What is sent where nobody listens is
 * gone; Chromium keeps a buffer's memory beside ArrayBuffer.transfer, until it collects.
 */
export function drop(chunk: Uint8Array): void {
  const { buffer } = chunk;
  if (chunk.byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return;
  if (!nowhere) {
    const { port1, port2 } = new MessageChannel();
    port2.close();
    nowhere = port1;
  }
  nowhere.postMessage(buffer, [buffer]);
}

/** Reads exact counts of bytes from a source, and tells how far it is. Bytes that it gives are gone with the next call. */
export class Reader {
  #rest: Uint8Array = new Uint8Array();
  /** The chunk that the rest is of, where it is the reader's own. */
  #chunk: Uint8Array | undefined;
  readonly #owned: boolean;
  position = 0;

  // The memory of a new chunk costs as much as the copy out of it: the system clears each of its pages.
  constructor(readonly source: Source) {
    this.#owned = !source.reuse?.() && !!source.owned;
  }

  /** The next `count` bytes, fewer only at the end of the source, without moving on. */
  async peek(count: number): Promise<Uint8Array> {
    if (this.#rest.length >= count) return this.#rest.subarray(0, count);
    const parts = [this.#rest.slice()];
    let have = this.#rest.length;
    while (have < count) {
      const part = await this.source.read();
      if (!part) break;
      parts.push(part.slice());
      have += part.length;
    }
    this.#rest = this.#chunk = new Uint8Array(have);
    let at = 0;
    for (const part of parts) {
      this.#rest.set(part, at);
      at += part.length;
    }
    return this.#rest.subarray(0, count);
  }

  /** The next `count` bytes, all of them. */
  async take(count: number): Promise<Uint8Array> {
    const have = (await this.peek(count)).length;
    if (have < count) throw truncated(this.position + have, this.position + count);
    return this.#take(count);
  }

  /** Calls `sink` with the chunks up to `end` and their positions. */
  async pump(end: number, sink: (chunk: Uint8Array, position: number) => void): Promise<void> {
    while (this.position < end) {
      const at = this.position;
      const chunk = await this.#next(end - at);
      if (!chunk) throw truncated(at, end);
      sink(chunk, at);
    }
  }

  async #next(most: number): Promise<Uint8Array | undefined> {
    while (this.#rest.length === 0) {
      if (this.#chunk) drop(this.#chunk);
      const chunk = await this.source.read();
      this.#chunk = this.#owned ? chunk : undefined;
      if (!chunk) return undefined;
      this.#rest = chunk;
    }
    return this.#take(Math.min(most, this.#rest.length));
  }

  #take(count: number): Uint8Array {
    const taken = this.#rest.subarray(0, count);
    this.#rest = this.#rest.subarray(count);
    this.position += count;
    return taken;
  }
}

function truncated(at: number, end: number): Error {
  return new Error(`the file is truncated: it ends after ${at} of ${end} bytes`);
}
