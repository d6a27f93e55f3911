/** The init Program under way: each step runs as soon as the weights that it touches have come. */
import { homeOf, type WeightInfo } from "./format.js";
import type { Program } from "./program.js";
import { readTables, WEIGHT } from "./tables.js";

export class Init {
  /** By step, in their order: weights that it touches. */
  readonly #needs: readonly (readonly number[])[] = [];
  /** Weights that have not come wholly. */
  readonly #awaited: Set<number>;
  /** Its steps run one behind the other, in one go. */
  readonly #whole: boolean;
  #run: ((first: number, last: number) => void) | undefined;
  #next = 0;

  /** `program` is this object's from now on; `words` are its own, verified. */
  constructor(
    readonly program: Program,
    words: Int32Array,
    weights: readonly WeightInfo[],
  ) {
    const arrives = ({ source, bytes }: WeightInfo): boolean =>
      bytes > 0 && (source.kind === "data" || source.kind === "file");
    this.#awaited = new Set([...weights.keys()].filter((k) => arrives(weights[k]!)));
    const { steps, buffers, storages, controls, stages } = readTables(words);
    this.#whole = controls.size > 0 || stages.length > 1;
    if (this.#whole) return;
    this.#needs = steps.map((touched) =>
      touched
        .map((b) => storages[buffers[b]!.storage]!)
        .flatMap(({ kind, index }) => (kind === WEIGHT ? [homeOf(weights, index)] : [])),
    );
  }

  /** All bytes of weight `k` are in its place. */
  arrived(k: number): void {
    this.#awaited.delete(k);
  }

  /** Runs the steps whose weights have come, in their order: places of weights are shared in that order (see slab.ts). */
  advance(): void {
    const first = this.#next;
    while (this.#needs[this.#next]?.every((k) => !this.#awaited.has(k))) this.#next++;
    if (first === this.#next) return;
    this.#run ??= this.program.bySteps();
    this.#run(first, this.#next);
  }

  /** Runs what is left, once all weights have come, and goes. */
  finish(): void {
    this.#awaited.clear();
    if (this.#whole) this.program.run([]);
    else this.advance();
    this.free();
  }

  free(): void {
    this.program.free();
  }
}
