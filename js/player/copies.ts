/** Copies of what callers may change afterwards. Their memory is used again: of large arrays, new memory costs more than the copy. */
import type { Feed } from "./feed.js";
import { drop } from "./source.js";
import { unref } from "./workers.js";

export const LARGE_BYTES = 2 ** 16;
export const MOST_BYTES = 2 ** 26;
export const IDLE_MS = 1000;

export class Copies {
  /** What is free, by its bytes. Sizes that are not here were not asked for lately: who runs a model once keeps no memory for more. */
  readonly #free = new Map<number, ArrayBuffer[]>();
  #bytes = 0;
  #used = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** The feeds on copies of their data. */
  of(feeds: readonly Feed[]): Feed[] {
    const known = new Set(this.#free.keys()); // of a decoder's many caches of one size the first is not the only new one
    return feeds.map((feed) => ({ ...feed, ...this.#copy(feed.data, known) }));
  }

  #copy(data: Uint8Array, known: ReadonlySet<number>): Pick<Feed, "data" | "after"> {
    const bytes = data.byteLength;
    if (bytes < LARGE_BYTES) return { data: data.slice() };
    this.#use();
    if (!known.has(bytes)) {
      this.#free.set(bytes, []);
      return { data: data.slice(), after: "drop" };
    }
    const free = this.#free.get(bytes)!;
    const buffer = free.pop();
    if (!buffer) return { data: data.slice(), after: "return" };
    this.#bytes -= bytes;
    const copy = new Uint8Array(buffer);
    copy.set(data);
    return { data: copy, after: "return" };
  }

  /** Takes back what a run has read. */
  takeBack(buffers: readonly ArrayBuffer[]): void {
    for (const buffer of buffers) {
      const { byteLength } = buffer;
      const free = this.#free.get(byteLength);
      if (free && this.#bytes + byteLength <= MOST_BYTES) {
        free.push(buffer);
        this.#bytes += byteLength;
      } else drop(new Uint8Array(buffer));
    }
  }

  /** Gives all back, a while after the last copy. */
  #use(): void {
    this.#used = true;
    if (this.#timer !== undefined) return;
    const look = (): void => {
      this.#timer = undefined;
      if (this.#used) {
        this.#used = false;
        this.#timer = setTimeout(look, IDLE_MS);
        unref(this.#timer);
        return;
      }
      for (const buffers of this.#free.values()) for (const buffer of buffers) drop(new Uint8Array(buffer));
      this.#free.clear();
      this.#bytes = 0;
    };
    look();
  }
}

/** The memory of feeds that is to return to who copied them. */
export function returned(feeds: readonly Feed[]): ArrayBuffer[] {
  return feeds.flatMap(({ after, data }) => (after === "return" ? [data.buffer as ArrayBuffer] : []));
}
