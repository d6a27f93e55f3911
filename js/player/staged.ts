/**
 * Files that come into core memory before it is known which weights they hold: the contents of each large tensor lie by themselves, where
 * a model may take them over; the rest, which says what they are, lies beside.
 */
import type { Core } from "./core.js";
import { Reader, type Source } from "./source.js";
import { walk, type Piece } from "./structure.js";

/** What is known of such a file where it is compiled. */
export interface Arrived {
  readonly id: number;
  readonly structure: readonly Piece[];
}

interface Block {
  readonly bytes: number;
  readonly address: number;
  /** A model has it now. */
  taken: boolean;
}

export class Staged {
  readonly structure: Piece[] = [];
  /** By where they begin in the file. */
  readonly #blocks = new Map<number, Block>();

  private constructor(readonly core: Core) {}

  /** Reads all of a file. On failure nothing of it is left. */
  static async read(core: Core, source: Source, size: number): Promise<Staged> {
    const staged = new Staged(core);
    try {
      await staged.#fill(new Reader(source), size);
      return staged;
    } catch (error) {
      staged.release();
      throw error;
    } finally {
      source.cancel();
    }
  }

  async #fill(reader: Reader, size: number): Promise<void> {
    const { core } = this;
    let parts: Uint8Array[] = [];
    /** Keeps what lies before `end`. */
    const keep = async (end: number): Promise<void> => {
      if (end > reader.position) parts.push((await reader.take(end - reader.position)).slice());
    };
    const close = (): void => {
      const bytes = joined(parts);
      if (bytes.length) this.structure.push({ at: reader.position - bytes.length, bytes });
      parts = [];
    };
    const read = async (start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
      await keep(start);
      return (await reader.peek(end - start)).slice();
    };
    await walk({ size, read }, async (start, end) => {
      await keep(start);
      close();
      const address = core.alloc(end - start, "a tensor of the model's file");
      this.#blocks.set(start, { bytes: end - start, address, taken: false });
      await reader.pump(end, (chunk, at) => core.bytes.set(chunk, address + at - start));
    });
    await keep(size);
    close();
  }

  /** The address of the bytes from `at` on, which are the caller's from then on; undefined where they do not lie there by themselves. */
  take(core: Core, at: number, bytes: number): number | undefined {
    const found = core === this.core ? this.#blocks.get(at) : undefined;
    if (!found || found.taken || found.bytes !== bytes) return undefined;
    found.taken = true;
    return found.address;
  }

  /** Gives the bytes from `start` to `end`, each chunk with its distance from `start`. */
  pour(start: number, end: number, sink: (chunk: Uint8Array, at: number) => void): void {
    const blocks = Array.from(this.#blocks, ([at, { bytes, address }]) => ({ at, bytes: this.#view(address, bytes) }));
    for (const { at, bytes } of [...this.structure, ...blocks]) {
      const [from, to] = [Math.max(start, at), Math.min(end, at + bytes.length)];
      if (from < to) sink(bytes.subarray(from - at, to - at), from - start);
    }
  }

  #view(address: number, bytes: number): Uint8Array {
    return this.core.bytes.subarray(address, address + bytes);
  }

  bytes(start: number, end: number): Uint8Array<ArrayBuffer> {
    const out = new Uint8Array(Math.max(0, end - start));
    this.pour(start, end, (chunk, at) => out.set(chunk, at));
    return out;
  }

  /** Gives back what nobody took. */
  release(): void {
    for (const { address, taken } of this.#blocks.values()) if (!taken) this.core.free(address);
    this.#blocks.clear();
    this.structure.length = 0;
  }
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
