/** Files of which the compiler holds what it reads: a model's structure, hardly ever its weights. */
import { isInt } from "./operators.js";
import { Slice, raise, type Any } from "./values.js";

/** Bytes of a file, and where in it they begin. */
export interface Piece {
  readonly at: number;
  readonly bytes: Uint8Array;
}

/** The compiler reads what it was not given: then it is to be given that, and to begin again. */
export class NeedsBytes extends Error {
  constructor(
    readonly path: string,
    readonly start: number,
    readonly end: number,
  ) {
    super(`${path}: bytes ${start} to ${end}`);
  }
}

const AHEAD = 2 ** 16;

/** What Python has as a mapped file. */
export class Sparse {
  readonly #pieces: readonly Piece[];
  #from = 0;
  #to = 0;
  #bytes = new Uint8Array();

  constructor(
    readonly path: string,
    readonly size: number,
    pieces: readonly Piece[],
  ) {
    this.#pieces = [...pieces].sort((a, b) => a.at - b.at);
  }

  /** Moves on to the piece that holds a byte. */
  #find(at: number): void {
    let [low, high] = [0, this.#pieces.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#pieces[middle] as Piece).at <= at) low = middle + 1;
      else high = middle;
    }
    const piece = this.#pieces[low - 1];
    if (!piece || at >= piece.at + piece.bytes.length)
      throw new NeedsBytes(this.path, at, Math.min(at + AHEAD, this.#pieces[low]?.at ?? this.size));
    this.#from = piece.at;
    this.#to = piece.at + piece.bytes.length;
    this.#bytes = piece.bytes as Uint8Array<ArrayBuffer>;
  }

  byte(at: number): number {
    if (at < this.#from || at >= this.#to) this.#find(at);
    return this.#bytes[at - this.#from] as number;
  }

  /** Without a copy where one piece holds them all. */
  range(start: number, end: number): Uint8Array {
    if (start >= end) return new Uint8Array();
    if (start < this.#from || start >= this.#to) this.#need(start, end);
    if (end <= this.#to) return this.#bytes.subarray(start - this.#from, end - this.#from);
    const out = new Uint8Array(end - start);
    for (let at = start; at < end; at = this.#to) {
      if (at > start) this.#need(at, end);
      out.set(this.#bytes.subarray(at - this.#from, Math.min(this.#to, end) - this.#from), at - start);
    }
    return out;
  }

  #need(start: number, end: number): void {
    try {
      this.#find(start);
    } catch (error) {
      if (!(error instanceof NeedsBytes)) throw error;
      const next = this.#pieces.find(({ at }) => at > start)?.at ?? this.size;
      throw new NeedsBytes(this.path, start, Math.min(Math.max(end, error.end), next));
    }
  }

  $__len__(): number {
    return this.size;
  }

  $__getitem__(k: Any): Any {
    if (k instanceof Slice) {
      const [start, end] = [k.$start ?? 0, k.$stop ?? this.size].map((i) =>
        Math.min(Math.max(Number(i) < 0 ? Number(i) + this.size : Number(i), 0), this.size),
      ) as [number, number];
      return this.range(start, end);
    }
    if (typeof k === "number" && k >= 0 && k < this.size) return this.byte(k);
    throw raise(isInt(k) ? "IndexError" : "TypeError", "index out of range");
  }
}
