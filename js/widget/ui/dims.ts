import type { Value } from "./tensor.js";

/** Sizes of symbolic dims, which inputs share. */
export class Dims {
  readonly #sizes = new Map<string, number>();
  readonly #listeners: (() => void)[] = [];

  constructor(readonly given: Readonly<Record<string, number>>) {}

  get(symbol: string): number {
    return this.#sizes.get(symbol) ?? this.given[symbol] ?? guess(symbol);
  }

  set(symbol: string, size: number): void {
    if (this.get(symbol) === size) return;
    this.#sizes.set(symbol, size);
    for (const listener of this.#listeners) listener();
  }

  listen(listener: () => void): void {
    this.#listeners.push(listener);
  }

  shape({ shape }: Value): number[] {
    return shape.map((dim) => (typeof dim === "number" ? dim : this.get(dim)));
  }
}

function guess(symbol: string): number {
  const name = symbol.toLowerCase();
  if (/batch|^n$|\bbs\b/.test(name)) return 1;
  if (/height|width|^h$|^w$/.test(name)) return 64;
  if (/seq|len|token|time/.test(name)) return 8;
  return 4;
}
