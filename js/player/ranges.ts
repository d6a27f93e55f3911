/** Files of which any range can be read: where they lie where that can be, else in the chunks in which they came. */
import { messageOf } from "./errors.js";
import type { Host } from "./host.js";
import { openFile } from "./server.js";
import { isGguf } from "./sniff.js";
import { absolute, asBytes, open, urlSource, type ModelSource, type Source } from "./source.js";
import type { Piece } from "./structure.js";

export interface Ranged {
  /** What of it decides how it is compiled, where that is known. */
  readonly structure?: readonly Piece[];
  /** For error messages. */
  readonly name: string;
  readonly size: number;
  /** Whether its bytes were given away. */
  readonly spent: boolean;
  read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** All of it in order. What is held here is given away where nobody reads the file again (`last`). */
  source(last: boolean): Source;
  /** Gives back what is held of it elsewhere. */
  forget(): void;
}

/** Where a file may lie while it is compiled: with the engine that will run it. */
export type Stage = Pick<Host, "stage" | "staged" | "unstage">;

/** Of smaller files nobody waits for the engine. */
const STAGED_BYTES = 2 ** 22;

/**
 * Opens what a caller may hand over; `onRead` is told how many bytes of how many came, where the number is known. What can be read only
 * once goes to the engine at once where there is a `stage`.
 */
export async function ranged(
  source: ModelSource,
  onRead: (loaded: number, total: number) => void = () => {},
  stage?: () => Promise<Stage>,
): Promise<Ranged> {
  if (source instanceof Blob) return blobRanges(source);
  if (typeof source === "string" || source instanceof URL) {
    const url = absolute(source);
    const file = url.startsWith("file:") && (await fileRanges(url));
    if (file) return file;
  }
  const bytes = asBytes(source);
  if (bytes) return new Chunks("model", [bytes], true);
  const opened = counted(await open(source), onRead);
  const chunks: Uint8Array[] = [];
  try {
    let chunk = await opened.read();
    if (stage && chunk && (opened.size ?? 0) > STAGED_BYTES && !isGguf(chunk)) {
      const [begun, size] = [await begins(opened, chunk), opened.size!];
      return await stagedRanges(await stage(), begun, size);
    }
    for (; chunk; chunk = await opened.read()) {
      chunks.push(opened.owned && chunk.byteLength === chunk.buffer.byteLength ? chunk : chunk.slice());
    }
  } catch (error) {
    throw new Error(`${opened.name}: ${messageOf(error)}`);
  } finally {
    opened.cancel();
  }
  return new Chunks(opened.name, chunks, false);
}

function counted(source: Source, onRead: (loaded: number, total: number) => void): Source {
  let loaded = 0;
  const read = async (): Promise<Uint8Array | undefined> => {
    const chunk = await source.read();
    if (chunk) onRead((loaded += chunk.length), source.size ?? 0);
    return chunk;
  };
  return { ...source, read, cancel: () => source.cancel() };
}

/** The source again whose first chunk was read. */
function begins(source: Source, first: Uint8Array): Source {
  let next: Uint8Array | undefined = first;
  const read = async (): Promise<Uint8Array | undefined> => {
    const chunk = next ?? (await source.read());
    next = undefined;
    return chunk;
  };
  return { ...source, read };
}

/** A file that lies with the engine. */
async function stagedRanges(stage: Stage, source: Source, size: number): Promise<Ranged> {
  const { name } = source;
  const { id, structure } = await stage.stage(source, size);
  const read = (start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => stage.staged(id, start, end);
  const ranged = {
    name,
    size,
    structure,
    spent: false,
    read,
    source: (last: boolean): Source => {
      ranged.spent ||= last;
      return { ...pulled(name, size, read), ...(last && { staged: id }) };
    },
    forget: () => stage.unstage(id),
  };
  return ranged;
}

const SLICE = 2 ** 22;

/** Files behind addresses that are read where they lie, as far as the server lets them; undefined where it does not tell their size. */
export async function remoteRanges(url: string): Promise<Ranged | undefined> {
  const head = /^https?:/.test(url) && (await fetch(url, { method: "HEAD" }).catch(() => undefined));
  if (!head || !head.ok || head.headers.has("Content-Encoding")) return undefined;
  const size = Number(head.headers.get("Content-Length"));
  if (!size) return undefined;
  let whole: Promise<Ranged> | undefined;
  const read = async (start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
    if (!whole) {
      // Of another origin it may be asked whether it takes the header, and say no.
      const response = await fetch(url, { headers: { Range: `bytes=${start}-${end - 1}` } }).catch(() => undefined);
      if (response?.status === 206) return new Uint8Array(await response.arrayBuffer());
      whole = ranged(response ?? url);
    }
    return (await whole).read(start, end);
  };
  return { name: url, size, spent: false, read, source: () => deferred(url), forget: () => {} };
}

/** Fetched when it is first read. */
function deferred(url: string): Source {
  let opened: Promise<Source> | undefined;
  return {
    name: url,
    url,
    owned: true,
    read: async () => (await (opened ??= urlSource(url))).read(),
    cancel: () => void opened?.then((source) => source.cancel()).catch(() => {}),
  };
}

function blobRanges(blob: Blob): Ranged {
  const name = globalThis.File && blob instanceof File ? blob.name : "Blob";
  const read = async (start: number, end: number): Promise<Uint8Array<ArrayBuffer>> =>
    new Uint8Array(await blob.slice(start, end).arrayBuffer());
  return { name, size: blob.size, spent: false, read, source: () => pulled(name, blob.size, read), forget: () => {} };
}

async function fileRanges(url: string): Promise<Ranged | undefined> {
  const file = await openFile(url).catch((error: unknown) => {
    throw new Error(`${url}: cannot be read: ${messageOf(error)}`);
  });
  if (!file) return undefined;
  const size = await file.size();
  file.close();
  const read = async (start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
    const opened = (await openFile(url))!;
    try {
      const bytes = new Uint8Array(end - start);
      for (let at = 0; at < bytes.length;) {
        const part = await opened.read(bytes.length - at, start + at);
        if (!part.length) throw new Error(`${url}: the file became shorter`);
        bytes.set(part, at);
        at += part.length;
      }
      return bytes;
    } finally {
      opened.close();
    }
  };
  return { name: url, size, spent: false, read, source: () => deferred(url), forget: () => {} };
}

/** A source that reads a range when it is asked for the next bytes. */
function pulled(name: string, size: number, read: Ranged["read"]): Source {
  let at = 0;
  return {
    name,
    owned: true,
    read: async () => (at < size ? read(at, (at = Math.min(at + SLICE, size))) : undefined),
    cancel: () => {},
  };
}

class Chunks implements Ranged {
  readonly size: number;
  spent = false;
  readonly #starts: number[] = [];

  constructor(
    readonly name: string,
    readonly chunks: (Uint8Array | undefined)[],
    /** Whether the bytes are the caller's. */
    readonly theirs: boolean,
  ) {
    let at = 0;
    for (const chunk of chunks) {
      this.#starts.push(at);
      at += (chunk as Uint8Array).length;
    }
    this.size = at;
  }

  /** The chunk that holds a byte. */
  #at(position: number): number {
    let [low, high] = [0, this.#starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#starts[middle] as number) <= position) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  async read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const out = new Uint8Array(Math.max(0, end - start));
    for (let at = start, k = this.#at(start); at < end; k++) {
      const from = this.#starts[k] as number;
      const chunk = this.chunks[k] as Uint8Array;
      out.set(chunk.subarray(at - from, end - from), at - start);
      at = from + chunk.length;
    }
    return out;
  }

  forget(): void {}

  source(last: boolean): Source {
    if (this.theirs) return pulled(this.name, this.size, (start, end) => this.read(start, end));
    let k = 0;
    const { chunks } = this;
    this.spent ||= last;
    return {
      name: this.name,
      owned: last,
      async read() {
        const chunk = chunks[k];
        if (last) chunks[k] = undefined;
        k++;
        return chunk;
      },
      cancel: () => void (last && chunks.fill(undefined)),
    };
  }
}
