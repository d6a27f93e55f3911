/** A Program on the GPU: uniforms and bind groups prepared, one pass and one submission per run. */
import type { Core } from "../core.js";
import { bytesOf, elements, typeOfCode, type Type } from "../dtypes.js";
import { BINDING_BYTES } from "../format.js";
import { Staging, type Program, type Slot, type Tables } from "../program.js";
import type { StepTime } from "../types.js";
import type { Gpu, Pipeline, PipelineSpec } from "./device.js";
import { GpuError } from "./device.js";
import { blockWords, Groups, Kept, Rooms, uniformBlock, type Need } from "./memory.js";
import { variantOf, type GpuCase, type Section } from "./section.js";

const BINDINGS = 4; // sizes whose uniforms are kept
const GROUPS = 8; // bind groups kept per step
const UNIFORM_ALIGN = 256;
const MAX_GROUPS = 65535;
const MAX_QUERIES = 4096;
const [ARENA, WEIGHT, INPUT, OUTPUT] = [0, 1, 2, 3];

/** A tensor that stays on the GPU. Whoever holds it gives it back to its `owner`. */
export interface GpuTensor {
  readonly owner: GpuProgram;
  readonly buffer: GPUBuffer;
  readonly bytes: number;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** An output: its bytes, or the buffer that it stays in. */
export type Result =
  GpuTensor | { readonly data: Uint8Array<ArrayBuffer>; readonly type: Type; readonly dims: readonly number[] };

export interface GpuFeed {
  readonly data: Uint8Array | GPUBuffer;
  readonly bytes: number;
  readonly type: Type;
  readonly dims: readonly number[];
}

interface Dispatch {
  readonly pipeline: GPUComputePipeline;
  readonly group: GPUBindGroup;
  readonly uniforms: number;
  readonly x: number;
  readonly y: number;
}

/** The bytes of a buffer that are bound, where that is not the whole. */
type Part = { readonly offset: number; readonly size: number } | undefined;

/** How a step runs at these sizes. */
interface Chosen {
  readonly pipeline: Pipeline;
  readonly x: number;
  readonly y: number;
  readonly parts: readonly Part[];
}

/** What depends on sizes. */
interface Bound {
  readonly sizes: readonly number[];
  readonly shapes: readonly (readonly number[])[];
  /** Place of each storage among the rooms, -1 for weights and what no step on the GPU touches. */
  readonly places: readonly number[];
  readonly needs: readonly (Need | undefined)[];
  /** Where its uniforms lie. */
  readonly slot: number;
  readonly cases: readonly (Chosen | undefined)[];
  /** Of the last run, with the rooms of this version; `given` are the storages that had other buffers then. */
  dispatches: (Dispatch | undefined)[];
  version: number;
  given: readonly number[];
}

function bindingOf(buffer: GPUBuffer, part: Part): GPUBufferBinding {
  return part ? { buffer, offset: part.offset, size: Math.min(part.size, buffer.size - part.offset) } : { buffer };
}

/** Storages that steps of each side touch. */
export interface Readers {
  readonly gpu: ReadonlySet<number>;
  readonly core: ReadonlySet<number>;
}

export function readersOf(tables: Tables, section: Section): Readers {
  const gpu = new Set<number>();
  const core = new Set<number>();
  for (const [i, buffers] of tables.steps.entries())
    for (const b of buffers) (section.steps[i] ? gpu : core).add(tables.buffers[b]?.storage ?? -1);
  return { gpu, core };
}

/** The pipelines of a section, compiled at the same time. */
export class Pipelines {
  readonly #specs: readonly PipelineSpec[];
  readonly #made: (Promise<Pipeline> | undefined)[];
  /** Resolves when a model can be used; rejects with what does not compile. */
  readonly ready: Promise<unknown>;

  /** Throws what this GPU lacks for any of them. */
  constructor(
    private readonly gpu: Gpu,
    { modules, pipelines, steps }: Section,
  ) {
    const features = new Set<string>(gpu.info.features);
    this.#specs = pipelines.map((row) => {
      const { kernel, outputs, bindings } = row;
      gpu.demandBindings(bindings, kernel);
      return { kernel, outputs, bindings, code: modules[variantOf(row, features).module] as string };
    });
    this.#made = pipelines.map(() => undefined);
    // A processor that plays GPU has no time for shaders that other sizes would use.
    const sure = steps.flatMap((cases) => (cases?.[0] && isSure(cases[0]) ? [cases[0].pipeline] : []));
    this.ready = Promise.all((gpu.info.isFallbackAdapter ? sure : [...pipelines.keys()]).map((i) => this.at(i)));
    this.ready.catch(() => {});
  }

  at(index: number): Promise<Pipeline> {
    return (this.#made[index] ??= this.gpu.pipeline(this.#specs[index] as PipelineSpec));
  }
}

function isSure({ guard, busy }: GpuCase): boolean {
  return guard < 0 && !busy;
}

export class GpuProgram {
  readonly #bound = new Map<string, Bound>();
  readonly #readers: Readers;
  readonly #inputs: Staging[];
  readonly #hasCoreSteps: boolean;
  readonly #rooms: Rooms;
  readonly #kept: Kept;
  readonly #groups = new Groups(GROUPS);
  /** Offset and size of each step's uniforms in a slot. */
  readonly #blocks: readonly { at: number; bytes: number }[];
  readonly #slotBytes: number;
  readonly #uniforms: GPUBuffer;
  /** Steps on the GPU that touch a storage. */
  readonly #touching: readonly (readonly number[])[];

  /** `weights` are the buffers of the weights that GPU steps read, by index. */
  constructor(
    readonly gpu: Gpu,
    readonly core: Core,
    readonly program: Program,
    readonly tables: Tables,
    readonly section: Section,
    readonly pipelines: Pipelines,
    readonly weights: ReadonlyMap<number, GPUBuffer>,
  ) {
    this.#readers = readersOf(tables, section);
    this.#inputs = program.inputs.map(() => new Staging(core));
    this.#hasCoreSteps = section.steps.includes(null);
    this.#rooms = new Rooms(gpu);
    this.#kept = new Kept(gpu);
    let end = 0;
    this.#blocks = section.steps.map((choices, i) => {
      const most = (choices ?? []).reduce((n, { uniforms }) => Math.max(n, uniforms.length), 0);
      const block = { at: end, bytes: choices ? 4 * blockWords(3 + tables.steps[i]!.length, most) : 0 };
      end += Math.ceil(block.bytes / UNIFORM_ALIGN) * UNIFORM_ALIGN;
      return block;
    });
    this.#slotBytes = end;
    this.#uniforms = gpu.device.createBuffer({
      size: Math.max(BINDINGS * end, UNIFORM_ALIGN),
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      label: "uniforms",
    });
    const touching = tables.storages.map(() => new Set<number>());
    for (const [i, buffers] of tables.steps.entries())
      if (section.steps[i]) for (const b of buffers) touching[tables.buffers[b]!.storage]!.add(i);
    this.#touching = touching.map((steps) => [...steps]);
  }

  /** Weights that steps on the core read. */
  get coreWeights(): number[] {
    return [...this.#readers.core].flatMap((s) => {
      const row = this.tables.storages[s];
      return row?.kind === WEIGHT ? [row.index] : [];
    });
  }

  /** Runs; outputs named in `keep` stay on the GPU. */
  async run(feeds: readonly GpuFeed[], wanted: readonly number[], keep: ReadonlySet<number>): Promise<Result[]> {
    return this.#run(feeds, wanted, keep, undefined);
  }

  /** Runs step by step, each between two timestamps, and returns what each took. */
  async profile(feeds: readonly GpuFeed[]): Promise<StepTime[]> {
    const times: StepTime[] = [];
    await this.#run(feeds, [], new Set(), times);
    return times;
  }

  /** Takes a tensor's buffer back. */
  dispose({ buffer }: GpuTensor): void {
    this.#kept.give(buffer);
  }

  async #run(
    feeds: readonly GpuFeed[],
    wanted: readonly number[],
    keep: ReadonlySet<number>,
    times: StepTime[] | undefined,
  ): Promise<Result[]> {
    this.gpu.check("the GPU");
    this.#kept.begin();
    const slots = await this.#stage(feeds);
    const bound = await this.#bind(slots);
    const outputs = this.#hasCoreSteps ? this.program.ready(slots) : [];
    const kept = new Map<number, GPUBuffer>();
    try {
      const allocated = keep.size ? this.#keep(bound, keep, kept) : undefined;
      // Waited for at the end: what lacks memory is known by then.
      allocated?.catch(() => {});
      const buffers = await this.#place(bound, feeds, kept);
      const dispatches = this.#dispatches(bound, buffers);
      const encoder = await this.#execute(bound, buffers, dispatches, outputs, times);
      if (times) {
        this.gpu.check("running the model");
        return [];
      }
      const results = await this.#results(bound, buffers, wanted, outputs, kept, encoder);
      await allocated;
      return results;
    } catch (error) {
      for (const buffer of kept.values()) this.#kept.drop(buffer);
      throw error;
    }
  }

  /** Works off the schedule; returns commands that are still to be submitted. */
  async #execute(
    bound: Bound,
    buffers: readonly (GPUBuffer | undefined)[],
    dispatches: readonly (Dispatch | undefined)[],
    outputs: readonly Slot[],
    times: StepTime[] | undefined,
  ): Promise<GPUCommandEncoder | undefined> {
    const { device } = this.gpu;
    let encoder: GPUCommandEncoder | undefined;
    const zero = performance.now();
    for (const action of this.section.schedule) {
      if (action.on === "gpu") {
        if (times) await this.#timed(bound, dispatches, action.first, action.last, times);
        else encode((encoder ??= device.createCommandEncoder()), dispatches, action.first, action.last);
        continue;
      }
      if (encoder) device.queue.submit([encoder.finish()]);
      encoder = undefined;
      const start = performance.now();
      if (action.on === "core") {
        for (let i = action.first; i < action.last; i++) {
          const begin = performance.now();
          this.program.runSteps(i, i + 1);
          const ms = performance.now() - begin;
          times?.push({ ...this.#step(bound, i), backend: "wasm", start: begin - zero, ms });
        }
        continue;
      }
      await this.#copy(action.on, action.storages, bound, buffers, outputs);
      const bytes = action.storages.reduce((n, s) => n + (bound.sizes[s] ?? 0), 0);
      const ms = performance.now() - start;
      times?.push({ name: action.on, kernel: "copy", backend: "copy", start: start - zero, ms, bytes });
    }
    return encoder;
  }

  /** Feeds that the core reads, in its memory; the others with address 0. */
  async #stage(feeds: readonly GpuFeed[]): Promise<Slot[]> {
    const slots: Slot[] = [];
    for (const [i, { data, bytes, type, dims }] of feeds.entries()) {
      let address = 0;
      const read = this.tables.elements.has(i) || this.#coreReads(INPUT, i);
      if (read) {
        address = (this.#inputs[i] as Staging).reserve(bytes, `input ${i} of [${dims}]`);
        const plain = data instanceof Uint8Array ? data : (await this.gpu.read([{ buffer: data, bytes }]))[0];
        this.core.bytes.set(plain as Uint8Array, address);
      }
      slots.push({ address, bytes, type, dims });
    }
    return slots;
  }

  #coreReads(kind: number, index: number): boolean {
    return this.tables.storages.some((s, i) => s.kind === kind && s.index === index && this.#readers.core.has(i));
  }

  async #bind(slots: readonly Slot[]): Promise<Bound> {
    const sizesKey = slots.map(({ dims }) => dims.join()).join(";");
    const fixed = this.tables.elements.size === 0;
    const quick = fixed ? this.#bound.get(sizesKey) : undefined;
    const registers = quick ? undefined : this.program.evaluate(slots, this.tables.registers);
    const key = registers && !fixed ? registers.join() : sizesKey;
    let bound = quick ?? this.#bound.get(key);
    if (!bound) {
      if (this.#bound.size >= BINDINGS) this.#bound.delete(this.#bound.keys().next().value as string);
      const taken = [...this.#bound.values()].map(({ slot }) => slot);
      const slot = [...Array(BINDINGS).keys()].find((i) => !taken.includes(i)) as number;
      bound = await this.#make(registers as BigInt64Array, slot);
    }
    this.#bound.delete(key);
    this.#bound.set(key, bound);
    return bound;
  }

  async #make(registers: BigInt64Array, slot: number): Promise<Bound> {
    const { gpu, tables, section, pipelines } = this;
    const at = (r: number): number => Number(registers[r]);
    const sizes = tables.storages.map(({ size }) => at(size));
    const shapes = tables.outputDims.map((dims) => dims.map(at));
    const uniforms = new Uint8Array(this.#slotBytes);
    const groupsOf = ({ grid }: GpuCase): number => grid.reduce((n, g) => n * at(g), 1);
    const fits = (c: GpuCase): boolean =>
      (c.guard < 0 || registers[c.guard] !== 0n) && !(c.busy && groupsOf(c) < gpu.workgroups);
    const choices = section.steps.map((cases, i) => {
      const chosen = cases?.find(fits);
      if (cases && !chosen) throw new GpuError(`${this.#name(i)}: no shader takes these sizes; run this shape on wasm`);
      return chosen && groupsOf(chosen) > 0 ? chosen : undefined;
    });
    const made = await Promise.all(choices.map((chosen) => chosen && pipelines.at(chosen.pipeline)));
    const cases = choices.map((chosen, i) => {
      const pipeline = made[i];
      if (!chosen || !pipeline) return undefined;
      const groups = groupsOf(chosen);
      const parts = tables.steps[i]!.map((b) => {
        const { storage, offset, size } = tables.buffers[b]!;
        const inParts = tables.storages[storage]!.kind === WEIGHT && sizes[storage]! > BINDING_BYTES;
        return inParts ? { offset: at(offset), size: gpu.demand(at(size), this.#name(i)) } : undefined;
      });
      const offsets = tables.steps[i]!.map((b, k) => {
        const row = tables.buffers[b]!;
        return parts[k] ? 0 : at(row.offset) / bytesOf(typeOfCode(row.dtype) as Type, 1);
      });
      const head = [...chosen.grid.map(at), ...offsets];
      const block = uniformBlock(pipeline.kernel, head, chosen.uniforms, registers);
      uniforms.set(new Uint8Array(block.buffer), this.#blocks[i]!.at);
      return { pipeline, x: Math.min(groups, MAX_GROUPS), y: Math.ceil(groups / MAX_GROUPS), parts };
    });
    if (this.#slotBytes) gpu.device.queue.writeBuffer(this.#uniforms, slot * this.#slotBytes, uniforms);
    return { sizes, shapes, slot, cases, ...this.#plan(sizes), dispatches: [], version: -1, given: [] };
  }

  /** A place per input and output, then places of the arena: largest first, each where it is free over its life. */
  #plan(sizes: readonly number[]): Pick<Bound, "places" | "needs"> {
    const { storages } = this.tables;
    const [inputs, outputs] = [this.program.inputs.length, this.program.outputs.length];
    const needs: (Need | undefined)[] = new Array<undefined>(inputs + outputs).fill(undefined);
    const places = storages.map(({ kind, index }, i) => {
      if (!this.#readers.gpu.has(i) || (kind !== INPUT && kind !== OUTPUT)) return -1;
      const place = kind === INPUT ? index : inputs + index;
      needs[place] = { bytes: sizes[i]!, what: `${kind === INPUT ? "input" : "output"} ${index}` };
      return place;
    });
    const lives: { first: number; last: number }[][] = [];
    const wanted = [...storages.keys()].filter((i) => storages[i]!.kind === ARENA && this.#readers.gpu.has(i));
    wanted.sort((a, b) => sizes[b]! - sizes[a]!);
    for (const i of wanted) {
      const { first, last } = storages[i]!;
      let place = lives.findIndex((all) => all.every((l) => last < l.first || first > l.last));
      if (place < 0) {
        place = lives.push([]) - 1;
        needs.push({ bytes: sizes[i]!, what: `the output of ${this.#name(first)}` });
      }
      lives[place]!.push({ first, last });
      places[i] = inputs + outputs + place;
    }
    return { places, needs };
  }

  #keep(bound: Bound, keep: ReadonlySet<number>, kept: Map<number, GPUBuffer>): Promise<void> {
    return this.gpu.guarded("outputs that stay on the GPU", () => {
      for (const index of keep) {
        const storage = this.#output(index);
        const bytes = storage < 0 ? this.#described(bound, index).bytes : bound.sizes[storage]!;
        kept.set(index, this.#kept.take(bytes, `output ${index}`));
      }
    });
  }

  /** The buffer of each storage for this run, with the feeds in it. */
  async #place(
    bound: Bound,
    feeds: readonly GpuFeed[],
    kept: ReadonlyMap<number, GPUBuffer>,
  ): Promise<(GPUBuffer | undefined)[]> {
    const { storages } = this.tables;
    const needs = [...bound.needs];
    const given = new Map<number, GPUBuffer>();
    for (const [i, { kind, index }] of storages.entries()) {
      const data = kind === INPUT ? feeds[index]!.data : undefined;
      const buffer = data instanceof Uint8Array ? undefined : (data ?? this.#keptIn(kind, index, kept));
      if (!buffer || bound.places[i]! < 0) continue;
      given.set(i, buffer);
      needs[bound.places[i]!] = undefined;
    }
    await this.#rooms.fit(needs);
    return storages.map(({ kind, index }, i) => {
      if (!this.#readers.gpu.has(i)) return undefined;
      if (kind === WEIGHT) return this.weights.get(index);
      const buffer = given.get(i) ?? this.#rooms.at(bound.places[i]!);
      const data = kind === INPUT ? feeds[index]!.data : undefined;
      if (data instanceof Uint8Array) this.gpu.write(buffer as GPUBuffer, data);
      return buffer;
    });
  }

  #keptIn(kind: number, index: number, kept: ReadonlyMap<number, GPUBuffer>): GPUBuffer | undefined {
    return kind === OUTPUT && !this.section.onCore.has(index) ? kept.get(index) : undefined;
  }

  /** What to dispatch; only steps whose buffers changed are looked at. */
  #dispatches(bound: Bound, buffers: readonly (GPUBuffer | undefined)[]): readonly (Dispatch | undefined)[] {
    const { places, dispatches } = bound;
    const given = [...buffers.keys()].filter((i) => places[i]! >= 0 && buffers[i] !== this.#rooms.at(places[i]!));
    const whole = bound.version !== this.#rooms.version;
    const steps = whole ? bound.cases.keys() : new Set([...bound.given, ...given].flatMap((i) => this.#touching[i]!));
    for (const i of steps) dispatches[i] = this.#dispatch(bound, i, buffers);
    bound.version = this.#rooms.version;
    bound.given = given;
    return dispatches;
  }

  #dispatch(bound: Bound, step: number, all: readonly (GPUBuffer | undefined)[]): Dispatch | undefined {
    const found = bound.cases[step];
    if (!found) return undefined;
    const { pipeline, x, y, parts } = found;
    const { at, bytes } = this.#blocks[step]!;
    const buffers = this.tables.steps[step]!.map((b) => all[this.tables.buffers[b]!.storage] as GPUBuffer);
    const group = this.#groups.get(step, pipeline.form, buffers, () =>
      this.gpu.device.createBindGroup({
        label: pipeline.kernel,
        layout: pipeline.layout,
        entries: [
          { binding: 0, resource: { buffer: this.#uniforms, size: bytes } },
          ...buffers.map((buffer, k) => ({ binding: k + 1, resource: bindingOf(buffer, parts[k]) })),
        ],
      }),
    );
    return { pipeline: pipeline.pipeline, group, uniforms: bound.slot * this.#slotBytes + at, x, y };
  }

  #name(step: number): string {
    const { origin = "", kernel = "" } = this.program.steps[step] ?? {};
    return origin || kernel;
  }

  #step(bound: Bound, step: number): { name: string; kernel: string; bytes: number } {
    const storages = (this.tables.steps[step] ?? []).map((b) => this.tables.buffers[b]!.storage);
    const bytes = [...new Set(storages)].reduce((n, s) => n + (bound.sizes[s] ?? 0), 0);
    return { name: this.#name(step), kernel: this.program.steps[step]?.kernel ?? "", bytes };
  }

  /** The storage of an output that steps on the GPU touch, or -1. */
  #output(index: number): number {
    return this.tables.storages.findIndex((s, i) => s.kind === OUTPUT && s.index === index && this.#readers.gpu.has(i));
  }

  #described(bound: Bound, index: number): { type: Type; dims: readonly number[]; bytes: number } {
    const type = typeOfCode(this.program.outputs[index]?.code ?? 0) as Type;
    const dims = bound.shapes[index] as readonly number[];
    return { type, dims, bytes: bytesOf(type, elements(dims)) };
  }

  /** Runs steps one by one: with timestamps where the adapter has them, else waiting for each. */
  async #timed(
    bound: Bound,
    dispatches: readonly (Dispatch | undefined)[],
    first: number,
    last: number,
    times: StepTime[],
  ): Promise<void> {
    const { device, info } = this.gpu;
    const base = times.at(-1);
    let clock = base ? base.start + base.ms : 0;
    const push = (i: number, ms: number): void => {
      times.push({ ...this.#step(bound, i), backend: "webgpu", start: clock, ms });
      clock += ms;
    };
    const n = last - first;
    if (!info.features.includes("timestamp-query") || n > MAX_QUERIES / 2) {
      for (let i = first; i < last; i++) {
        const start = performance.now();
        const encoder = device.createCommandEncoder();
        encode(encoder, dispatches, i, i + 1);
        device.queue.submit([encoder.finish()]);
        await device.queue.onSubmittedWorkDone();
        push(i, performance.now() - start);
      }
      return;
    }
    const querySet = device.createQuerySet({ type: "timestamp", count: 2 * n });
    const resolved = device.createBuffer({
      size: 16 * n,
      usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
    });
    const encoder = device.createCommandEncoder();
    for (let i = 0; i < n; i++)
      encode(encoder, dispatches, first + i, first + i + 1, {
        querySet,
        beginningOfPassWriteIndex: 2 * i,
        endOfPassWriteIndex: 2 * i + 1,
      });
    encoder.resolveQuerySet(querySet, 0, 2 * n, resolved, 0);
    device.queue.submit([encoder.finish()]);
    const [bytes] = await this.gpu.read([{ buffer: resolved, bytes: 16 * n }]);
    const ticks = new BigUint64Array((bytes as Uint8Array<ArrayBuffer>).buffer);
    for (let i = 0; i < n; i++) push(first + i, Math.max(0, Number(ticks[2 * i + 1]! - ticks[2 * i]!)) / 1e6);
    querySet.destroy();
    resolved.destroy();
  }

  async #copy(
    on: "upload" | "download",
    storages: readonly number[],
    bound: Bound,
    buffers: readonly (GPUBuffer | undefined)[],
    outputs: readonly Slot[],
  ): Promise<void> {
    const place = (s: number): number => {
      const row = this.tables.storages[s]!;
      return row.kind === OUTPUT ? (outputs[row.index] as Slot).address : this.program.storage(s);
    };
    if (on === "upload") {
      for (const s of storages) {
        const bytes = bound.sizes[s] as number;
        this.gpu.write(buffers[s] as GPUBuffer, this.core.copy(place(s), bytes));
      }
      return;
    }
    const read = await this.gpu.read(
      storages.map((s) => ({ buffer: buffers[s] as GPUBuffer, bytes: bound.sizes[s] as number })),
    );
    storages.forEach((s, i) => this.core.bytes.set(read[i] as Uint8Array, place(s)));
  }

  async #results(
    bound: Bound,
    buffers: readonly (GPUBuffer | undefined)[],
    wanted: readonly number[],
    outputs: readonly Slot[],
    kept: ReadonlyMap<number, GPUBuffer>,
    encoder: GPUCommandEncoder | undefined,
  ): Promise<Result[]> {
    const { onCore } = this.section;
    const reads = wanted.filter((index) => !kept.has(index) && !onCore.has(index));
    const data = await this.gpu.read(
      reads.map((index) => ({
        buffer: buffers[this.#output(index)] as GPUBuffer,
        bytes: this.#described(bound, index).bytes,
      })),
      encoder,
    );
    this.gpu.check("running the model");
    return wanted.map((index): Result => {
      const { type, dims, bytes } = this.#described(bound, index);
      const buffer = kept.get(index);
      const at = reads.indexOf(index);
      if (at >= 0) return { data: data[at] as Uint8Array<ArrayBuffer>, type, dims };
      const plain = onCore.has(index) ? this.core.copy((outputs[index] as Slot).address, bytes) : undefined;
      if (!buffer) return { data: plain as Uint8Array<ArrayBuffer>, type, dims };
      if (plain) this.gpu.write(buffer, plain);
      return { owner: this, buffer, bytes, type, dims };
    });
  }

  free(): void {
    this.#bound.clear();
    this.#rooms.free();
    this.#kept.free();
    this.#uniforms.destroy();
    for (const buffer of this.weights.values()) buffer.destroy();
    for (const staging of this.#inputs) staging.free();
    this.program.free();
  }
}

/** One pass over steps `first` up to `last`. */
function encode(
  encoder: GPUCommandEncoder,
  dispatches: readonly (Dispatch | undefined)[],
  first: number,
  last: number,
  timestamps?: GPUComputePassTimestampWrites,
): void {
  const pass = encoder.beginComputePass(timestamps ? { timestampWrites: timestamps } : {});
  let set: GPUComputePipeline | undefined;
  for (let i = first; i < last; i++) {
    const dispatch = dispatches[i];
    if (!dispatch) continue;
    if (dispatch.pipeline !== set) pass.setPipeline((set = dispatch.pipeline));
    pass.setBindGroup(0, dispatch.group, [dispatch.uniforms]);
    pass.dispatchWorkgroups(dispatch.x, dispatch.y);
  }
  pass.end();
}
