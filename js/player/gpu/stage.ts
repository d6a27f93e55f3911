/** A stage of a Program on the GPU: what its sizes lead to, remembered for the last few. */
import { bytesOf, typeOfCode, type Type } from "../dtypes.js";
import { BINDING_BYTES } from "../format.js";
import { ARENA, SLOT, WEIGHT, type Tables } from "../tables.js";
import type { Commands } from "./data.js";
import { GpuError, type Pipeline } from "./device.js";
import { blockWords, uniformBlock, type Need } from "./memory.js";
import type { Pipelines, Readers } from "./pipelines.js";
import { casesOf, type GpuCase, type Plan } from "./section.js";

const BINDINGS = 4; // sizes whose uniforms are kept
const UNIFORM_ALIGN = 256;
const MAX_GROUPS = 65535;

/** The bytes of a buffer that are bound, where that is not the whole. */
export type Part = { readonly offset: number; readonly size: number } | undefined;

/** How a step runs at these sizes. */
export interface Chosen {
  readonly pipeline: Pipeline;
  readonly x: number;
  readonly y: number;
  readonly parts: readonly Part[];
}

export interface Dispatch {
  readonly pipeline: GPUComputePipeline;
  readonly group: GPUBindGroup;
  readonly uniforms: number;
  readonly x: number;
  readonly y: number;
}

interface Life {
  readonly first: number;
  readonly last: number;
}

/** Who lives in each place of the arena. */
type Lives = readonly (readonly Life[])[];

/** What depends on sizes. */
export interface Bound {
  readonly registers: BigInt64Array;
  /** Bytes of the storages that are known. */
  readonly sizes: readonly number[];
  /** Places in the arena of the storages that the stage makes ready: on the GPU, and in the core's memory. */
  readonly there: ReadonlyMap<number, number>;
  readonly here: ReadonlyMap<number, number>;
  /** What it asks of the places on the GPU. */
  readonly needs: ReadonlyMap<number, Need>;
  readonly lives: { readonly there: Lives; readonly here: Lives };
  readonly operations: number;
  /** Where its uniforms lie. */
  readonly slot: number;
  /** By step of the stage. */
  readonly cases: readonly (Chosen | undefined)[];
  /** What its slot of the uniforms holds. */
  readonly block: Uint8Array;
  /** What it was made from, until the dispatches are taken over. */
  from: Kin | undefined;
  /** Of the last run, with the buffers of this version; `given` are the storages whose buffers are others in each run. */
  dispatches: (Dispatch | undefined)[];
  version: number;
  given: readonly number[];
}

/** Sizes whose places are the same, and the steps that do not tell them apart. */
export interface Kin {
  readonly bound: Bound;
  readonly same: readonly boolean[];
}

export class Stage {
  readonly #bound = new Map<string, Bound>();
  /** Storages that it makes ready. */
  readonly known: readonly number[];
  readonly first: number;
  readonly last: number;
  /** Offset and size of each step's uniforms in a slot. */
  readonly blocks: readonly { at: number; bytes: number }[];
  readonly slotBytes: number;
  readonly uniforms: GPUBuffer;
  /** Registers that each step depends on. */
  readonly #registers: readonly (readonly number[])[];

  constructor(
    readonly index: number,
    readonly commands: Commands,
    readonly tables: Tables,
    readonly plan: Plan,
    readonly pipelines: Pipelines,
    readonly readers: Readers,
    readonly name: (step: number) => string,
  ) {
    ({ first: this.first, last: this.last } = tables.stages[index]!);
    this.known = [...tables.storages.keys()].filter((i) => stageOf(tables, i) === index);
    let end = 0;
    this.blocks = plan.steps.slice(this.first, this.last).map((_, k) => {
      const choices = casesOf(plan, this.first + k);
      const most = (choices ?? []).reduce((n, { uniforms }) => Math.max(n, uniforms.length), 0);
      const bytes = choices ? 4 * blockWords(3 + tables.steps[this.first + k]!.length, most) : 0;
      const block = { at: end, bytes };
      end += Math.ceil(bytes / UNIFORM_ALIGN) * UNIFORM_ALIGN;
      return block;
    });
    this.slotBytes = end;
    this.#registers = this.blocks.map((_, k) => registersOf(tables, plan, this.first + k));
    this.uniforms = commands.gpu.device.createBuffer({
      size: Math.max(BINDINGS * end, UNIFORM_ALIGN),
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      label: "uniforms",
    });
  }

  /** What is remembered for a key. */
  find(key: string): Bound | undefined {
    const bound = this.#bound.get(key);
    if (!bound) return undefined;
    this.#bound.delete(key);
    this.#bound.set(key, bound);
    return bound;
  }

  /** What the registers lead to, behind what they led to in the stage before. */
  async make(key: string, registers: BigInt64Array, before: Bound | undefined, operations: number): Promise<Bound> {
    if (this.#bound.size >= BINDINGS) this.#bound.delete(this.#bound.keys().next().value as string);
    const taken = [...this.#bound.values()].map((bound) => bound.slot);
    const slot = [...Array(BINDINGS).keys()].find((i) => !taken.includes(i)) as number;
    const { gpu } = this.commands;
    const sizes = before ? [...before.sizes] : this.tables.storages.map(() => 0);
    for (const i of this.known) sizes[i] = Number(registers[this.tables.storages[i]!.size]);
    const from = before ? undefined : this.#kin(registers);
    const made = await this.#cases(registers, sizes, slot, from);
    const places = from ? this.#kept(sizes, from.bound) : this.#places(sizes, before);
    const state = { operations, dispatches: [], version: -1, given: [] };
    const bound = { registers, sizes, slot, ...made, from, ...places, ...state };
    this.#bound.set(key, bound);
    gpu.check("the GPU");
    return bound;
  }

  /** The sizes of the run before, if most steps do not tell them from these: a decoder's next token. */
  #kin(registers: BigInt64Array): Kin | undefined {
    const bound = [...this.#bound.values()].at(-1);
    if (!bound) return undefined;
    const [now, then] = [wordsOf(registers), wordsOf(bound.registers)];
    const equal = (r: number): boolean => now[2 * r] === then[2 * r] && now[2 * r + 1] === then[2 * r + 1];
    const same = this.#registers.map((all) => all.every(equal));
    return 2 * same.filter(Boolean).length > same.length ? { bound, same } : undefined;
  }

  async #cases(
    registers: BigInt64Array,
    sizes: readonly number[],
    slot: number,
    from: Kin | undefined,
  ): Promise<{ cases: (Chosen | undefined)[]; block: Uint8Array }> {
    const { tables, plan, pipelines, first, last } = this;
    const { gpu } = this.commands;
    const at = (r: number): number => Number(registers[r]);
    const uniforms = from ? from.bound.block.slice() : new Uint8Array(this.slotBytes);
    const groupsOf = ({ grid }: GpuCase): number => grid.reduce((n, g) => n * at(g), 1);
    const fits = (c: GpuCase): boolean =>
      (c.guard < 0 || registers[c.guard] !== 0n) && !(c.busy && groupsOf(c) < gpu.workgroups);
    const steps = Array.from({ length: last - first }, (_, k) => first + k);
    const choices = steps.map((i, k) => {
      const cases = from?.same[k] ? undefined : casesOf(plan, i);
      const chosen = cases?.find(fits);
      if (cases && !chosen) throw new GpuError(`${this.name(i)}: no shader takes these sizes; run this shape on wasm`);
      return chosen && groupsOf(chosen) > 0 ? chosen : undefined;
    });
    const made = await Promise.all(choices.map((chosen) => chosen && pipelines.at(chosen.pipeline)));
    const cases = choices.map((chosen, k) => {
      const [pipeline, step] = [made[k], first + k];
      if (from?.same[k]) return from.bound.cases[k];
      if (!chosen || !pipeline) return undefined;
      const groups = groupsOf(chosen);
      const parts = tables.steps[step]!.map((b): Part => {
        const { storage, offset, size } = tables.buffers[b]!;
        const inParts = tables.storages[storage]!.kind === WEIGHT && sizes[storage]! > BINDING_BYTES;
        return inParts ? { offset: at(offset), size: gpu.demand(at(size), this.name(step)) } : undefined;
      });
      const offsets = tables.steps[step]!.map((b, n) => {
        const row = tables.buffers[b]!;
        return parts[n] ? 0 : at(row.offset) / bytesOf(typeOfCode(row.dtype) as Type, 1);
      });
      const block = uniformBlock(pipeline.kernel, [...chosen.grid.map(at), ...offsets], chosen.uniforms, registers);
      uniforms.set(new Uint8Array(block.buffer), this.blocks[k]!.at);
      return { pipeline, x: Math.min(groups, MAX_GROUPS), y: Math.ceil(groups / MAX_GROUPS), parts };
    });
    // What is pending may use the slot.
    this.commands.flush();
    if (this.slotBytes) gpu.device.queue.writeBuffer(this.uniforms, slot * this.slotBytes, uniforms);
    return { cases, block: uniforms };
  }

  /** The places of other sizes, and what these ask of them. */
  #kept(sizes: readonly number[], from: Bound): Pick<Bound, "there" | "here" | "needs" | "lives"> {
    const needs = new Map<number, Need>();
    for (const [i, place] of from.there)
      if ((needs.get(place)?.bytes ?? -1) < sizes[i]!)
        needs.set(place, { bytes: sizes[i]!, what: `the output of ${this.name(this.tables.storages[i]!.first)}` });
    return { there: from.there, here: from.here, needs, lives: from.lives };
  }

  #places(sizes: readonly number[], before: Bound | undefined): Pick<Bound, "there" | "here" | "needs" | "lives"> {
    const { storages } = this.tables;
    const arena = this.known.filter((i) => storages[i]!.kind === ARENA).sort((a, b) => sizes[b]! - sizes[a]!);
    const needs = new Map<number, Need>();
    const sides = (["there", "here"] as const).map((side) => {
      const lives = (before?.lives[side] ?? []).map((all) => [...all]);
      const busy = lives.map((all) => all.some((l) => l.last >= this.first));
      const found = new Map<number, number>();
      for (const i of arena.filter((s) => this.readers[side === "there" ? "gpu" : "core"].has(s))) {
        const { first, last } = storages[i]!;
        let place = lives.findIndex((all, k) => !busy[k] && all.every((l) => last < l.first || first > l.last));
        if (place < 0) place = lives.push([]) - 1;
        lives[place]!.push({ first, last });
        found.set(i, place);
        const bytes = sizes[i]!;
        if (side === "there" && (needs.get(place)?.bytes ?? -1) < bytes)
          needs.set(place, { bytes, what: `the output of ${this.name(first)}` });
      }
      return { found, lives };
    });
    const [there, here] = sides as [(typeof sides)[number], (typeof sides)[number]];
    return { there: there.found, here: here.found, needs, lives: { there: there.lives, here: here.lives } };
  }

  free(): void {
    this.#bound.clear();
    this.uniforms.destroy();
  }
}

/** The registers that tell how a step runs. */
function registersOf(tables: Tables, plan: Plan, step: number): number[] {
  const found = new Set<number>();
  for (const { guard, grid, uniforms } of casesOf(plan, step) ?? []) {
    if (guard >= 0) found.add(guard);
    for (const r of grid) found.add(r);
    for (const r of uniforms) found.add(r >= 0 ? r : ~r);
  }
  for (const b of tables.steps[step]!) {
    const { storage, offset, size } = tables.buffers[b]!;
    found.add(offset);
    if (tables.storages[storage]!.kind === WEIGHT) found.add(size).add(tables.storages[storage]!.size);
  }
  return [...found];
}

function wordsOf(registers: BigInt64Array): Int32Array {
  return new Int32Array(registers.buffer, registers.byteOffset, 2 * registers.length);
}

/** The stage that makes a storage ready: its size is known and, but for inputs, outputs and weights, its first step is in it. */
function stageOf({ stages, storages }: Tables, storage: number): number {
  const { kind, size, first } = storages[storage]!;
  const known = stages.findIndex(({ registers }) => size < registers);
  if (kind !== ARENA && kind !== SLOT) return known;
  const begins = stages.findIndex(({ last }) => first < last);
  return Math.max(known, begins < 0 ? stages.length - 1 : begins);
}
