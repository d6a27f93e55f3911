/** Where weights lie in one piece of memory, so that what init has read makes room for what it writes. */
import { homeOf, type Header, type WeightInfo } from "./format.js";
import { stream, type Range } from "./loader.js";
import type { Reader } from "./source.js";
import { readTables, weightsOf, WEIGHT, type Tables } from "./tables.js";

const ALIGN = 256;

/** Reads what lies ahead of all weights; false, without a byte read, where it does not. */
export async function ahead(
  reader: Reader,
  ranges: Range[],
  weights: readonly WeightInfo[],
  dataStart: number,
): Promise<boolean> {
  const end = ranges.reduce((most, r) => Math.max(most, r.end), 0);
  const before = ({ source, bytes }: WeightInfo): boolean =>
    source.kind === "data" && bytes > 0 && dataStart + source.start < end;
  if (weights.some(before)) return false;
  await stream(reader, ranges, end, () => {});
  return true;
}

export interface Layout {
  readonly bytes: number;
  readonly offsets: ReadonlyMap<number, number>;
}

/** Free pieces of a memory that grows at its end, by address; neighbours are one. */
class Space {
  end = 0;
  private readonly free: { at: number; bytes: number }[] = [];

  /** The smallest free piece that is large enough, or the end. */
  take(bytes: number): number {
    let best = -1;
    for (const [i, piece] of this.free.entries())
      if (piece.bytes >= bytes && (best < 0 || piece.bytes < this.free[best]!.bytes)) best = i;
    if (best >= 0) {
      const piece = this.free[best]!;
      const { at } = piece;
      piece.at += bytes;
      piece.bytes -= bytes;
      if (!piece.bytes) this.free.splice(best, 1);
      return at;
    }
    const last = this.free.at(-1);
    const at = last && last.at + last.bytes === this.end ? this.free.pop()!.at : this.end;
    this.end = at + bytes;
    return at;
  }

  give(at: number, bytes: number): void {
    let i = this.free.findIndex((piece) => piece.at > at);
    if (i < 0) i = this.free.length;
    const [before, after] = [this.free[i - 1], this.free[i]];
    const joins = before && before.at + before.bytes === at;
    if (joins) before.bytes += bytes;
    else this.free.splice(i++, 0, { at, bytes });
    const piece = this.free[i - 1]!;
    if (after && piece.at + piece.bytes === after.at) {
      piece.bytes += after.bytes;
      this.free.splice(i, 1);
    }
  }
}

/**
 * Places of the weights `own`, by index; undefined where init's steps do not tell all that they touch, or little would be spared.
 * Weights that nothing uses have none: steps run in their order, but before all weights have come. What comes late must be read late.
 * `words` gives the verified words of a Program.
 */
export function layout(
  { init, script, weights }: Header,
  words: (program: number) => Int32Array,
  own: readonly number[],
): Layout | undefined {
  if (init === null) return undefined;
  const kept = script.flatMap(({ program }) => [...weightsOf(words(program))]);
  return placed(readTables(words(init)), weights, kept, own);
}

function placed(
  init: Tables,
  weights: readonly WeightInfo[],
  kept: readonly number[],
  own: readonly number[],
): Layout | undefined {
  if (init.controls.size || init.programs.length || init.stages.length > 1) return undefined;
  const size = (k: number): number => Math.ceil(Math.max(weights[k]!.bytes, 1) / ALIGN) * ALIGN;
  const [begins, ends] = [new Map<number, number>(), new Map<number, number>()];
  for (const k of own) if (weights[k]!.source.kind !== "init") begins.set(k, -1);
  for (const [step, buffers] of init.steps.entries())
    for (const b of buffers) {
      const storage = init.storages[init.buffers[b]!.storage]!;
      if (storage.kind !== WEIGHT) continue;
      const k = homeOf(weights, storage.index);
      if (!begins.has(k)) begins.set(k, step);
      ends.set(k, step);
    }
  for (const k of kept) ends.set(homeOf(weights, k), Infinity);
  const used = own.filter((k) => ends.has(k));
  const space = new Space();
  const offsets = new Map<number, number>();
  const by = (steps: Map<number, number>): Map<number, number[]> => {
    const groups = new Map<number, number[]>();
    for (const k of used) {
      const step = steps.get(k) ?? -1;
      const group = groups.get(step);
      if (group) group.push(k);
      else groups.set(step, [k]);
    }
    return groups;
  };
  const [starting, ending] = [by(begins), by(ends)];
  for (let step = -1; step < init.steps.length; step++) {
    const fresh = starting.get(step) ?? [];
    if (step >= 0) fresh.sort((a, b) => size(b) - size(a));
    for (const k of fresh) offsets.set(k, space.take(size(k)));
    for (const k of ending.get(step) ?? []) space.give(offsets.get(k)!, size(k));
  }
  const sum = own.reduce((total, k) => total + size(k), 0);
  return space.end > 0.75 * sum ? undefined : { bytes: space.end, offsets };
}
