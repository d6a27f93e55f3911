/** Core memory that goes with its owner. */
import type { Core } from "./core.js";

export class Owned {
  readonly #addresses = new Set<number>();

  constructor(readonly core: Core) {}

  take(bytes: number, what: string): number {
    const address = this.core.alloc(bytes, what);
    this.#addresses.add(address);
    return address;
  }

  /** Memory that was taken already. */
  add(address: number): void {
    this.#addresses.add(address);
  }

  /** Gives one back, if it is of these. */
  give(address: number): void {
    if (this.#addresses.delete(address)) this.core.free(address);
  }

  free(): void {
    for (const address of this.#addresses) this.give(address);
  }
}
