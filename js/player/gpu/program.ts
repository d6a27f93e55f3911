/** A Program on the GPU: buffers and bind groups per sizes, one pass and one submission per run. */
import type { Core } from "../core.js";
import { bytesOf, elements, typeOfCode, type Type } from "../dtypes.js";
import { Staging, type Program, type Slot, type StepTime, type Tables } from "../program.js";
import type { Gpu, Pipeline } from "./device.js";
import { GpuError } from "./device.js";
import { variantOf, type GpuCase, type Section } from "./section.js";

const BINDINGS = 4; // sizes whose buffers and bind groups are kept
const UNIFORM_ALIGN = 256;
const MAX_GROUPS = 65535;
const [ARENA, WEIGHT, INPUT, OUTPUT] = [0, 1, 2, 3];

/** A tensor that stays on the GPU. Whoever holds it destroys the buffer. */
export interface GpuTensor {
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
  readonly pipeline: Pipeline;
  readonly group: GPUBindGroup;
  readonly x: number;
  readonly y: number;
}

/** What depends on sizes. */
interface Bound {
  readonly sizes: readonly number[];
  readonly shapes: readonly (readonly number[])[];
  readonly buffers: (GPUBuffer | undefined)[];
  readonly owned: GPUBuffer[];
  readonly uniforms: { buffer: GPUBuffer; blocks: readonly { at: number; size: number }[] };
  readonly cases: readonly ({ pipeline: Pipeline; grid: number } | undefined)[];
  /** Undone when the caller's own buffers take the place of inputs or outputs. */
  dispatches: (Dispatch | undefined)[];
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

/** All pipelines of a section, compiled at the same time. */
export function makePipelines(gpu: Gpu, section: Section): Promise<Pipeline[]> {
  const features = new Set<string>(gpu.info.features);
  return Promise.all(
    section.pipelines.map((row) => {
      const { kernel, outputs, bindings } = row;
      const code = section.modules[variantOf(row, features).module] as string;
      return gpu.pipeline({ kernel, outputs, bindings, code });
    }),
  );
}

export class GpuProgram {
  readonly #bound = new Map<string, Bound>();
  readonly #readers: Readers;
  readonly #inputs: Staging[];
  readonly #hasCoreSteps: boolean;

  /** `weights` are the buffers of the weights that GPU steps read, by index. */
  constructor(
    readonly gpu: Gpu,
    readonly core: Core,
    readonly program: Program,
    readonly tables: Tables,
    readonly section: Section,
    readonly pipelines: readonly Pipeline[],
    readonly weights: ReadonlyMap<number, GPUBuffer>,
  ) {
    this.#readers = readersOf(tables, section);
    this.#inputs = program.inputs.map(() => new Staging(core));
    this.#hasCoreSteps = section.steps.includes(null);
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

  async #run(
    feeds: readonly GpuFeed[],
    wanted: readonly number[],
    keep: ReadonlySet<number>,
    times: StepTime[] | undefined,
  ): Promise<Result[]> {
    const { gpu, section } = this;
    gpu.check("the GPU");
    const slots = await this.#stage(feeds);
    const bound = await this.#bind(slots);
    const outputs = this.#hasCoreSteps ? this.program.ready(slots) : [];
    const kept = this.#place(bound, feeds, keep);

    let encoder: GPUCommandEncoder | undefined;
    const flush = (): void => {
      if (encoder) gpu.device.queue.submit([encoder.finish()]);
      encoder = undefined;
    };
    const zero = performance.now();
    for (const action of section.schedule) {
      if (action.on === "gpu") {
        if (times) await this.#timed(bound, action.first, action.last, times);
        else this.#encode((encoder ??= gpu.device.createCommandEncoder()), bound, action.first, action.last);
        continue;
      }
      flush();
      const start = performance.now();
      if (action.on === "core") {
        for (let i = action.first; i < action.last; i++) {
          const begin = performance.now();
          this.program.runSteps(i, i + 1);
          const { kernel = "", origin = "" } = this.program.steps[i] ?? {};
          const ms = performance.now() - begin;
          times?.push({
            name: origin || kernel,
            kernel,
            backend: "wasm",
            start: begin - zero,
            ms,
            bytes: this.#bytes(bound, i),
          });
        }
        continue;
      }
      await this.#copy(action.on, action.storages, bound, outputs);
      const bytes = action.storages.reduce((n, s) => n + (bound.sizes[s] ?? 0), 0);
      times?.push({
        name: action.on,
        kernel: "copy",
        backend: "copy",
        start: start - zero,
        ms: performance.now() - start,
        bytes,
      });
    }
    flush();
    if (times) return [];
    return this.#results(bound, wanted, outputs, kept);
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
    const quick = this.tables.elements.size === 0 ? this.#bound.get(sizesKey) : undefined;
    if (quick) {
      this.#bound.delete(sizesKey);
      this.#bound.set(sizesKey, quick);
      return quick;
    }
    const registers = this.program.evaluate(slots, this.tables.registers);
    const key = this.tables.elements.size === 0 ? sizesKey : registers.join();
    let bound = this.#bound.get(key);
    if (!bound) {
      for (const [old, { owned }] of this.#bound) {
        if (this.#bound.size < BINDINGS) break;
        this.#bound.delete(old);
        for (const buffer of owned) buffer.destroy();
      }
      bound = await this.#make(registers);
    } else {
      this.#bound.delete(key);
    }
    this.#bound.set(key, bound);
    return bound;
  }

  async #make(registers: BigInt64Array): Promise<Bound> {
    const { gpu, tables, section, pipelines } = this;
    const at = (r: number): number => Number(registers[r]);
    const sizes = tables.storages.map(({ size }) => at(size));
    const shapes = tables.outputDims.map((dims) => dims.map(at));
    const blocks: { at: number; size: number }[] = [];
    const words: Uint32Array[] = [];
    let end = 0;
    const cases = section.steps.map((choices, i) => {
      if (!choices) return undefined;
      const chosen = choices.find(({ guard }) => guard < 0 || registers[guard] !== 0n) as GpuCase;
      const grid = chosen.grid.map(at);
      const groups = grid.reduce((n, g) => n * g, 1);
      if (groups === 0) return undefined;
      const buffers = tables.steps[i] as readonly number[];
      const offsets = buffers.map((b) => {
        const row = tables.buffers[b]!;
        return at(row.offset) / bytesOf(typeOfCode(row.dtype) as Type, 1);
      });
      const pipeline = pipelines[chosen.pipeline] as Pipeline;
      const block = uniformBlock(pipeline.kernel, [...grid, ...offsets], chosen.uniforms, registers);
      words.push(block);
      blocks.push({ at: end, size: block.byteLength });
      end += Math.ceil(block.byteLength / UNIFORM_ALIGN) * UNIFORM_ALIGN;
      return { pipeline, grid: groups };
    });
    return gpu.guarded("memory for these sizes", () => {
      const owned: GPUBuffer[] = [];
      const own = (bytes: number, what: string): GPUBuffer => {
        const buffer = gpu.buffer(bytes, what);
        owned.push(buffer);
        return buffer;
      };
      const buffers = tables.storages.map(({ kind, index }, i) => {
        if (!this.#readers.gpu.has(i)) return undefined;
        if (kind === WEIGHT) return this.weights.get(index);
        if (kind === INPUT) return own(sizes[i] as number, `input ${index}`);
        if (kind === OUTPUT) return own(sizes[i] as number, `output ${index}`);
        return undefined;
      });
      this.#planArena(sizes, buffers, own);
      const buffer = gpu.device.createBuffer({
        size: Math.max(end, 16),
        usage: GPUBufferUsage.UNIFORM,
        mappedAtCreation: true,
        label: "uniforms",
      });
      owned.push(buffer);
      const mapped = new Uint8Array(buffer.getMappedRange());
      words.forEach((block, i) => mapped.set(new Uint8Array(block.buffer), blocks[i]?.at ?? 0));
      buffer.unmap();
      return { sizes, shapes, buffers, owned, uniforms: { buffer, blocks }, cases, dispatches: [] };
    });
  }

  /** Buffers for the arena's storages: largest first, each into the first buffer that is free over its life. */
  #planArena(
    sizes: readonly number[],
    buffers: (GPUBuffer | undefined)[],
    own: (bytes: number, what: string) => GPUBuffer,
  ): void {
    const { storages } = this.tables;
    const slabs: { buffer: GPUBuffer; lives: { first: number; last: number }[] }[] = [];
    const wanted = [...storages.keys()].filter((i) => storages[i]!.kind === ARENA && this.#readers.gpu.has(i));
    wanted.sort((a, b) => sizes[b]! - sizes[a]!);
    for (const i of wanted) {
      const { first, last } = storages[i]!;
      let slab = slabs.find(({ lives }) => lives.every((l) => last < l.first || first > l.last));
      if (!slab) {
        const { origin = "", kernel = "" } = this.program.steps[first] ?? {};
        slab = { buffer: own(sizes[i]!, `the output of ${origin || kernel}`), lives: [] };
        slabs.push(slab);
      }
      slab.lives.push({ first, last });
      buffers[i] = slab.buffer;
    }
  }

  /** Feeds the inputs, makes fresh buffers for outputs that stay, and bind groups where buffers changed. */
  #place(bound: Bound, feeds: readonly GpuFeed[], keep: ReadonlySet<number>): Map<number, GPUBuffer> {
    const kept = new Map<number, GPUBuffer>();
    let changed = bound.dispatches.length === 0;
    const buffers = [...bound.buffers];
    for (const [i, { kind, index }] of this.tables.storages.entries()) {
      const own = bound.buffers[i];
      if (!own) continue;
      if (kind === INPUT) {
        const { data } = feeds[index] as GpuFeed;
        if (data instanceof Uint8Array) this.gpu.write(own, data);
        else {
          buffers[i] = data;
          changed = true;
        }
      } else if (kind === OUTPUT && keep.has(index) && !this.section.onCore.has(index)) {
        const fresh = this.gpu.buffer(bound.sizes[i] as number, `output ${index}`);
        buffers[i] = fresh;
        kept.set(index, fresh);
        changed = true;
      }
    }
    if (changed) {
      const dispatches = this.#groups(bound, buffers);
      const borrowed = buffers.some((b, i) => b !== bound.buffers[i]);
      this.#current = dispatches;
      if (!borrowed) bound.dispatches = dispatches;
    } else {
      this.#current = bound.dispatches;
    }
    return kept;
  }

  #current: (Dispatch | undefined)[] = [];

  #groups(bound: Bound, buffers: readonly (GPUBuffer | undefined)[]): (Dispatch | undefined)[] {
    let block = 0;
    return bound.cases.map((found, i) => {
      if (!found) return undefined;
      const { pipeline, grid } = found;
      const { at, size } = bound.uniforms.blocks[block++]!;
      const entries: GPUBindGroupEntry[] = [
        { binding: 0, resource: { buffer: bound.uniforms.buffer, offset: at, size } },
      ];
      for (const [k, b] of (this.tables.steps[i] as readonly number[]).entries())
        entries.push({ binding: k + 1, resource: { buffer: buffers[this.tables.buffers[b]!.storage] as GPUBuffer } });
      const group = this.gpu.device.createBindGroup({ label: pipeline.kernel, layout: pipeline.layout, entries });
      return { pipeline, group, x: Math.min(grid, MAX_GROUPS), y: Math.ceil(grid / MAX_GROUPS) };
    });
  }

  #encode(
    encoder: GPUCommandEncoder,
    _bound: Bound,
    first: number,
    last: number,
    timestamps?: GPUComputePassTimestampWrites,
  ): void {
    const pass = encoder.beginComputePass(timestamps ? { timestampWrites: timestamps } : {});
    let set: Pipeline | undefined;
    for (let i = first; i < last; i++) {
      const dispatch = this.#current[i];
      if (!dispatch) continue;
      if (dispatch.pipeline !== set) pass.setPipeline((set = dispatch.pipeline).pipeline);
      pass.setBindGroup(0, dispatch.group);
      pass.dispatchWorkgroups(dispatch.x, dispatch.y);
    }
    pass.end();
  }

  #bytes(bound: Bound, step: number): number {
    const storages = (this.tables.steps[step] ?? []).map((b) => this.tables.buffers[b]!.storage);
    return [...new Set(storages)].reduce((n, s) => n + (bound.sizes[s] ?? 0), 0);
  }

  /** Runs steps one by one: with timestamps where the adapter has them, else waiting for each. */
  async #timed(bound: Bound, first: number, last: number, times: StepTime[]): Promise<void> {
    const { device, info } = this.gpu;
    const base = times.at(-1);
    let clock = base ? base.start + base.ms : 0;
    const push = (i: number, ms: number): void => {
      const { kernel = "", origin = "" } = this.program.steps[i] ?? {};
      times.push({ name: origin || kernel, kernel, backend: "webgpu", start: clock, ms, bytes: this.#bytes(bound, i) });
      clock += ms;
    };
    const n = last - first;
    if (!info.features.includes("timestamp-query") || n > 2048) {
      for (let i = first; i < last; i++) {
        const start = performance.now();
        const encoder = device.createCommandEncoder();
        this.#encode(encoder, bound, i, i + 1);
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
      this.#encode(encoder, bound, first + i, first + i + 1, {
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
    outputs: readonly Slot[],
  ): Promise<void> {
    const place = (s: number): number => {
      const row = this.tables.storages[s]!;
      return row.kind === OUTPUT ? (outputs[row.index] as Slot).address : this.program.storage(s);
    };
    if (on === "upload") {
      for (const s of storages) {
        const bytes = bound.sizes[s] as number;
        this.gpu.write(bound.buffers[s] as GPUBuffer, this.core.copy(place(s), bytes));
      }
      return;
    }
    const read = await this.gpu.read(
      storages.map((s) => ({ buffer: bound.buffers[s] as GPUBuffer, bytes: bound.sizes[s] as number })),
    );
    storages.forEach((s, i) => this.core.bytes.set(read[i] as Uint8Array, place(s)));
  }

  async #results(
    bound: Bound,
    wanted: readonly number[],
    outputs: readonly Slot[],
    kept: ReadonlyMap<number, GPUBuffer>,
  ): Promise<Result[]> {
    const describe = (index: number): { type: Type; dims: readonly number[]; bytes: number } => {
      const type = typeOfCode(this.program.outputs[index]?.code ?? 0) as Type;
      const dims = bound.shapes[index] as readonly number[];
      return { type, dims, bytes: bytesOf(type, elements(dims)) };
    };
    const reads = wanted.filter((index) => !kept.has(index) && !this.section.onCore.has(index));
    const storage = (index: number): GPUBuffer => {
      const i = this.tables.storages.findIndex((s) => s.kind === OUTPUT && s.index === index);
      return bound.buffers[i] as GPUBuffer;
    };
    const data = await this.gpu.read(reads.map((index) => ({ buffer: storage(index), bytes: describe(index).bytes })));
    this.gpu.check("running the model");
    return wanted.map((index) => {
      const { type, dims, bytes } = describe(index);
      const buffer = kept.get(index);
      if (buffer) return { buffer, bytes, type, dims };
      const at = reads.indexOf(index);
      if (at >= 0) return { data: data[at] as Uint8Array<ArrayBuffer>, type, dims };
      return { data: this.core.copy((outputs[index] as Slot).address, bytes), type, dims };
    });
  }

  free(): void {
    for (const { owned } of this.#bound.values()) for (const buffer of owned) buffer.destroy();
    this.#bound.clear();
    for (const buffer of this.weights.values()) buffer.destroy();
    for (const staging of this.#inputs) staging.free();
    this.program.free();
  }
}

/** 32-bit integers, and float32 where the register holds the bits of an f64. */
function uniformBlock(
  kernel: string,
  head: readonly number[],
  numbers: readonly number[],
  registers: BigInt64Array,
): Uint32Array {
  const block = new Uint32Array(Math.ceil((head.length + numbers.length) / 4) * 4);
  const floats = new Float32Array(block.buffer);
  const doubles = new Float64Array(registers.buffer);
  const put = (i: number, value: number): void => {
    if (value < -(2 ** 31) || value >= 2 ** 32)
      throw new GpuError(`kernel ${kernel}: the size ${value} does not fit in 32 bits; run this shape on wasm`);
    block[i] = value;
  };
  head.forEach((value, i) => put(i, value));
  numbers.forEach((r, i) => {
    if (r >= 0) put(head.length + i, Number(registers[r]));
    else floats[head.length + i] = doubles[~r] as number;
  });
  return block;
}
