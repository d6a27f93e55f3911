/**
 * Memory that the next run's outputs are copied into. It is made while the run before is awaited, when the page has nothing to do: the
 * system clears memory as it is touched first, which takes longer than the copy.
 */
import { IDLE_MS, LARGE_BYTES, MOST_BYTES } from "./copies.js";
import type { Output } from "./feed.js";
import { pause } from "./pause.js";
import { drop } from "./source.js";
import { unref } from "./workers.js";

const PAGE_BYTES = 2 ** 12;
/** Touched without a break: half a millisecond. */
const SLICE_BYTES = 2 ** 20;

export class Spares {
  /** Sessions whose outputs are copied out of a core's memory; those of a GPU are mapped. */
  readonly #sessions = new Set<number>();
  /** The session that ran last; the bytes of its outputs in its last three runs, the latest first. */
  #session = 0;
  #sizes: number[][] = [];
  #ready: ArrayBuffer[] = [];
  #making: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  serve(session: number): void {
    this.#sessions.add(session);
  }

  release(session: number): void {
    this.#sessions.delete(session);
    this.forget();
  }

  /** What is ready for a run of the session. */
  take(session: number): ArrayBuffer[] {
    if (session !== this.#session) this.forget();
    this.#session = session;
    return this.#ready.splice(0);
  }

  /** Makes ready what the run after the one that is awaited will want. */
  make(): void {
    if (this.#making) return;
    clearTimeout(this.#timer);
    this.#making = new AbortController();
    this.#make(this.#making.signal).catch(() => {}); // the answer has come: what is ready must do
  }

  async #make(signal: AbortSignal): Promise<void> {
    let left = SLICE_BYTES;
    for (const size of expected(this.#sizes)) {
      const bytes = new Uint8Array(size);
      for (let at = 0; at < size; at += PAGE_BYTES) {
        if ((left -= PAGE_BYTES) < 0) {
          await pause(signal);
          left = SLICE_BYTES;
        }
        bytes[at] = 0;
      }
      this.#ready.push(bytes.buffer);
    }
  }

  /** The answer to a run of the session has come. */
  learn(session: number, outputs: readonly Output[]): void {
    this.#stop();
    if (session !== this.#session || !this.#sessions.has(session)) return;
    this.#sizes = [outputs.map(({ data }) => data.byteLength), ...this.#sizes.slice(0, 2)];
    this.#timer = setTimeout(() => this.#giveBack(), IDLE_MS);
    unref(this.#timer);
  }

  forget(): void {
    this.#stop();
    this.#sizes = [];
    this.#giveBack();
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#making?.abort();
    this.#making = undefined;
  }

  #giveBack(): void {
    for (const buffer of this.#ready.splice(0)) drop(new Uint8Array(buffer));
  }
}

/** Large outputs of the run after the next, where sizes stay or grow by the same from run to run, as a decoder's caches do. */
function expected([last = [], before = [], first = []]: number[][]): number[] {
  const more = (i: number): number => last[i]! - before[i]!;
  const sizes = last.map((size, i) => (more(i) === before[i]! - first[i]! ? size + 2 * more(i) : 0));
  const large = sizes.filter((size) => size >= LARGE_BYTES);
  return large.reduce((sum, size) => sum + size, 0) <= MOST_BYTES ? large : [];
}

/** Takes one of the spares that has exactly so many bytes. */
export function spareOf(spares: ArrayBuffer[], bytes: number): Uint8Array<ArrayBuffer> | undefined {
  const found = spares.findIndex(({ byteLength }) => byteLength === bytes);
  return found < 0 ? undefined : new Uint8Array(spares.splice(found, 1)[0] as ArrayBuffer);
}
