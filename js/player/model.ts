/** A compiled model in core memory: streamed in, initialised, run step by step of its script. */
import type { Core } from "./core.js";
import {
  BINDING_BYTES,
  headerLength,
  homeOf,
  parseHeader,
  PREFIX_BYTES,
  type GpuInfo,
  type Header,
  type ProgramInfo,
} from "./format.js";
import { messageOf } from "./errors.js";
import type { Gpu } from "./gpu/device.js";
import type { GpuProgram } from "./gpu/program.js";
import type { Section } from "./gpu/section.js";
import { loadGpu, type GpuPlan } from "./gpu-module.js";
import { Init } from "./init.js";
import { externalSource, progressOf, range, sourceFiles, stream, type LoadOptions, type Range } from "./loader.js";
import { answering } from "./operators.js";
import { Inputs } from "./inputs.js";
import { Owned } from "./owned.js";
import type { Places } from "./places.js";
import { Program, type Limits, type Slot, type Ways } from "./program.js";
import { Reader, type Source } from "./source.js";
import { spareOf } from "./spares.js";
import type { Staged } from "./staged.js";
import { ahead, layout } from "./slab.js";
import { Held, keeperOf, type CoreRoom, type Keeper, type Rooms } from "./state.js";
import { readTables, weightsOf, type Tables } from "./tables.js";
import type { Feed, Output } from "./feed.js";
import type { StepTime } from "./types.js";

interface Step {
  readonly program: Program;
  readonly inputs: readonly number[];
}

const HEAD_BYTES = 64;
const NO_GPU_PART = "this compiled model has no part for GPUs: compile it again, with --gpu";

export class Model {
  readonly #inputs: Inputs;
  readonly #weights: number[];
  readonly #owned: Owned;
  /** Where the weights lie that lie together. */
  #slab = 0;
  readonly #steps: Step[] = [];
  #init: Init | undefined;
  /** Weights on their way into GPU buffers. */
  readonly #direct = new Map<number, { buffer: GPUBuffer; bytes: Uint8Array }>();
  /** That steps on the core read beside a GPU. */
  #coreWeights: ReadonlySet<number> = new Set();
  /** Set when the model runs on the GPU. */
  gpu: GpuProgram | undefined;
  /** Why the model runs on the core although a GPU was offered. */
  fallback: string | undefined;
  #seed = 0n;
  #limits: Limits | undefined;
  #answer: LoadOptions["answer"];
  #staged: LoadOptions["staged"];
  readonly #adopted = new Set<number>();
  #keeper: Keeper<CoreRoom> | undefined;

  private constructor(
    readonly core: Core,
    readonly header: Header,
  ) {
    this.#owned = new Owned(core);
    this.#inputs = new Inputs(core, header.inputs);
    this.#weights = header.weights.map(() => 0);
  }

  /** Reads a model from `source` into the core that has room for its weights. On failure everything it took is given back. */
  static async load(
    coreFor: (weightBytes: number) => Promise<Core>,
    source: Source,
    options: LoadOptions,
  ): Promise<Model> {
    const reader = new Reader(source);
    let model: Model | undefined;
    try {
      const length = headerLength(await reader.peek(HEAD_BYTES));
      await reader.take(PREFIX_BYTES);
      const header = parseHeader(await reader.take(length));
      const own = header.weights.filter((weight) => weight.source.kind !== "over");
      model = new Model(await coreFor(own.reduce((sum, { bytes }) => sum + bytes, 0)), header);
      await model.#load(reader, options);
      return model;
    } catch (error) {
      model?.free();
      if (error instanceof Error) error.message = `${source.name}: ${error.message}`;
      throw error;
    } finally {
      source.cancel();
    }
  }

  async #load(reader: Reader, options: LoadOptions): Promise<void> {
    const { header } = this;
    this.#limits = options.limits;
    this.#answer = options.answer;
    this.#staged = options.staged;
    this.#seed = options.seed ?? crypto.getRandomValues(new BigUint64Array(1))[0] ?? 0n;
    const files = sourceFiles(header);
    const dataStart = reader.position;
    const dataEnd = dataStart + header.dataBytes;
    const total = files.reduce((sum, { end }) => sum + end, dataEnd);
    const progress = progressOf(total, options.onProgress);
    progress("model", reader.position);

    const device = await this.#device(options);
    const wanted = header.programs.map((_, i) => {
      const onGpu = i === header.gpu?.program || i === header.gpu?.init;
      return onGpu && device ? true : (!onGpu || i === header.init) && (!device || !!options.gpuOptional);
    });
    const code = header.programs.map(({ name, bytes }, i) =>
      wanted[i] ? this.#owned.take(bytes, `program "${name}"`) : 0,
    );
    const codes = header.programs.flatMap(({ start, bytes }, i) =>
      wanted[i] ? [this.#into(dataStart + start, bytes, code[i] as number)] : [],
    );
    const modules = header.modules.map(({ bytes }) => new Uint8Array(bytes));
    for (const [i, { start, bytes }] of header.modules.entries())
      codes.push(range(dataStart + start, bytes, (chunk, at) => modules[i]!.set(chunk, at)));
    const gpu = device && (await this.#beginGpu(device, reader, codes, code, dataStart, options.gpuOptional));
    const read = device || (await ahead(reader, codes, header.weights, dataStart));
    const early = read && !device;
    if (!gpu) this.#allocate(undefined, early ? code : undefined);
    if (early) this.#create(code);
    const own = header.weights.flatMap(({ source }, k) => (source.kind === "data" ? [k] : []));
    const ranges = [...this.#weightRanges(own, dataStart), ...(read ? [] : codes)];
    const arrived = (at: number): void => {
      this.#init?.advance();
      progress("model", at);
    };
    await stream(reader, ranges, dataEnd, arrived);
    let before = dataEnd;
    for (const { name, weights, end } of files) {
      const staged = this.#staged?.(name);
      for (const k of staged ? weights : []) this.#pour(staged!, k);
      if (staged) {
        before += end;
        continue;
      }
      const source = await (options.external(name) ?? externalSource(name, reader.source));
      try {
        await stream(new Reader(source), this.#weightRanges(weights), end, (at) => arrived(before + at));
      } finally {
        source.cancel();
      }
      before += end;
    }
    progress("init", total);
    if (modules.length) this.#answer = await answering(modules, options);
    if (!early) this.#create(code, gpu);
    this.#init?.finish();
    this.#init = undefined;
    if (gpu) await this.#finishGpu(gpu, code);
    for (const address of code) this.#owned.give(address);
    this.#dropUnusedWeights();
    this.#keeper = keeperOf(this.#steps, header.results);
    progress("ready", total);
  }

  /** The GPU for this model; undefined, with the reason in `fallback`, where the core runs it instead. */
  async #device({ openGpu, gpuOptional }: LoadOptions): Promise<Gpu | undefined> {
    if (!openGpu) return undefined;
    const { gpu, onCore } = this.header;
    try {
      if (gpu) return await openGpu();
      if (!onCore) throw new Error(NO_GPU_PART);
      this.fallback = onCore;
    } catch (error) {
      if (!gpuOptional) throw error;
      this.fallback = messageOf(error);
    }
    return undefined;
  }

  #words(i: number, code: readonly number[]): Int32Array {
    return new Int32Array(this.core.copy(code[i] as number, (this.header.programs[i] as ProgramInfo).bytes).buffer);
  }

  /** Gives weights their places; from each other's, where the Programs' words are there already. */
  #allocate(gpu: GpuPlan | undefined, code?: readonly number[]): void {
    const { weights } = this.header;
    const fresh: number[] = [];
    for (const k of gpu?.uses ?? []) {
      const { name, bytes } = weights[k]!;
      gpu?.gpu.demand(bytes, `weight "${name}"`, bytes > BINDING_BYTES);
    }
    for (const [k, { name, bytes, source }] of weights.entries()) {
      if (source.kind === "over") continue;
      if (gpu && !gpu.inCore.has(k)) {
        const buffer = gpu.uses.has(k)
          ? gpu.gpu.buffer(bytes, `weight "${name}"`, true, bytes > BINDING_BYTES)
          : undefined;
        if (buffer) this.#direct.set(k, { buffer, bytes: new Uint8Array(buffer.getMappedRange()) });
        continue;
      }
      const address = this.#adopt(k);
      if (address === undefined) fresh.push(k);
      else this.#weights[k] = address;
    }
    const verified = (i: number): Int32Array => (this.#probe(i, code!), this.#words(i, code!));
    const together = code && layout(this.header, verified, fresh);
    if (together) this.#slab = this.#owned.take(together.bytes, "the weights");
    for (const [k, at] of together?.offsets ?? []) this.#weights[k] = this.#slab + at;
    for (const k of together ? [] : fresh)
      this.#weights[k] = this.#owned.take(weights[k]!.bytes, `weight "${weights[k]!.name}"`);
    for (const k of weights.keys()) this.#weights[k] = this.#weights[homeOf(weights, k)] as number;
  }

  /** Takes a weight over that lies in core memory as it is; gives its address. */
  #adopt(k: number): number | undefined {
    const { source, bytes } = this.header.weights[k]!;
    const staged = source.kind === "file" ? this.#staged?.(this.header.files[source.file]!) : undefined;
    const address = source.kind === "file" ? staged?.take(this.core, source.start, bytes) : undefined;
    if (address === undefined) return undefined;
    this.#owned.add(address);
    this.#adopted.add(k);
    return address;
  }

  #pour(staged: Staged, k: number): void {
    const { source, bytes } = this.header.weights[k]!;
    if (source.kind !== "file" || this.#adopted.has(k)) return;
    staged.pour(source.start, source.start + bytes, this.#weightSink(k));
  }

  /** Where the bytes of a weight go: core memory, a mapped GPU buffer, or nowhere. */
  #weightSink(k: number): Range["write"] {
    const direct = this.#direct.get(k);
    if (direct) return (chunk, at) => direct.bytes.set(chunk, at);
    const address = this.#weights[k] as number;
    const { bytes } = this.header.weights[k]!;
    return (chunk, at) => {
      if (address) this.core.bytes.set(chunk, address + at);
      if (at + chunk.length === bytes) this.#init?.arrived(k);
    };
  }

  /** Of weights that lie in one file, which begin at `start` there. */
  #weightRanges(weights: readonly number[], start = 0): Range[] {
    return weights.map((k) => {
      const { bytes, source } = this.header.weights[k]!;
      return range(start + ("start" in source ? source.start : 0), bytes, this.#weightSink(k));
    });
  }

  /** Core memory takes the bytes from `start` on. */
  #into(start: number, bytes: number, address: number): Range {
    return range(start, bytes, (chunk, at) => this.core.bytes.set(chunk, address + at));
  }

  /**
   * Reads the Programs and the GPU section, which lie ahead of the weights, sets the shaders compiling and allocates the
   * weights. Undefined where the GPU's limits are too small for the model and the core may run it.
   */
  async #beginGpu(
    gpu: Gpu,
    reader: Reader,
    codes: Range[],
    code: readonly number[],
    dataStart: number,
    optional: boolean | undefined,
  ): Promise<GpuPlan | undefined> {
    const { header } = this;
    const info = header.gpu as GpuInfo;
    const { parseSection } = await loadGpu();
    const text = new Uint8Array(info.bytes);
    const section = range(dataStart + info.start, info.bytes, (chunk, at) => text.set(chunk, at));
    if (!(await ahead(reader, [...codes, section], header.weights, dataStart)))
      throw new Error("the model's part for GPUs lies behind weights: compile it again");
    const words = (i: number): Int32Array => this.#words(i, code);
    // Created now, without weights, so that its words are verified before they are read.
    this.#probe(info.program, code);
    if (info.init !== null) this.#probe(info.init, code);
    const program = words(info.program);
    const tables = readTables(program);
    const parsed = parseSection(text, tables, (at, count) => readTables(program.slice(at, at + count)));
    try {
      const plan = await this.#plan(gpu, tables, parsed, words);
      this.#allocate(plan);
      return plan;
    } catch (error) {
      if (!optional || !(error instanceof Error && error.name === "GpuError")) throw error;
      this.fallback = error.message;
      this.#forgetGpu();
      return undefined;
    }
  }

  #forgetGpu(): void {
    for (const { buffer } of this.#direct.values()) buffer.destroy();
    this.#direct.clear();
    for (const address of this.#weights.splice(0)) this.#owned.give(address);
    this.#weights.push(...this.header.weights.map(() => 0));
  }

  async #plan(gpu: Gpu, tables: Tables, section: Section, words: (i: number) => Int32Array): Promise<GpuPlan> {
    const { header } = this;
    const { Pipelines, weightReaders } = await loadGpu();
    const pipelines = new Pipelines(gpu, section);
    const { gpu: uses, core } = weightReaders(tables, section.plan);
    const home = (k: number): number => homeOf(header.weights, k);
    const inCore = new Set([...core].map(home));
    const init = (header.gpu as GpuInfo).init;
    for (const k of init === null ? [] : weightsOf(words(init))) inCore.add(home(k));
    for (const k of uses) if (header.weights[k]?.source.kind === "over") inCore.add(home(k));
    return { gpu, tables, section, pipelines, uses, core, inCore };
  }

  /** Creates a Program without weights, so that its words are verified before they are read. */
  #probe(index: number, code: readonly number[]): void {
    const bytes = this.#sizes(index);
    const addresses = this.header.weights.map(() => 0);
    new Program(this.core, this.header.programs[index]!, code[index] as number, { addresses, bytes }).free();
  }

  async #finishGpu(plan: GpuPlan, code: readonly number[]): Promise<void> {
    const { gpu, tables, section, uses } = plan;
    const buffers = new Map<number, GPUBuffer>();
    await gpu.guarded("the model's weights", () => {
      for (const k of uses) {
        const direct = this.#direct.get(k);
        const { name, bytes } = this.header.weights[k]!;
        if (direct) {
          direct.buffer.unmap();
          buffers.set(k, direct.buffer);
        } else {
          const buffer = gpu.buffer(bytes, `weight "${name}"`, false, bytes > BINDING_BYTES);
          buffers.set(k, buffer);
          gpu.write(buffer, this.core.copy(this.#weights[k] as number, bytes));
        }
      }
    });
    this.#direct.clear();
    const info = this.header.gpu as GpuInfo;
    const { inputs, outputs } = this.header;
    const program = this.#program(info.program, code, inputs.length, outputs.length);
    try {
      const { GpuProgram } = await loadGpu();
      await plan.pipelines.ready;
      const own = this.header.programs[info.program] as ProgramInfo;
      const within = (outer: Program, index: number, at: number, words: number): Program =>
        new Program(
          this.core,
          { ...own, bytes: 4 * words },
          (code[info.program] as number) + 4 * at,
          { outer, index },
          this.#limits,
        );
      this.gpu = new GpuProgram(
        gpu,
        this.core,
        program,
        tables,
        section.plan,
        plan.pipelines,
        buffers,
        within,
        this.#answer,
      );
      this.#coreWeights = plan.core;
    } catch (error) {
      program.free();
      for (const buffer of buffers.values()) buffer.destroy();
      throw error;
    }
  }

  #program(index: number, code: readonly number[], inputs: number, outputs: number): Program {
    const info = this.header.programs[index] as ProgramInfo;
    const table = { addresses: this.#weights, bytes: this.#sizes(index) };
    const program = new Program(this.core, info, code[index] as number, table, this.#limits);
    program.seed(this.#seed);
    if (program.inputs.length === inputs && program.outputs.length === outputs) return program;
    const has = `${program.inputs.length} inputs and ${program.outputs.length} outputs`;
    program.free();
    throw new Error(`program "${info.name}" has ${has}, its use has ${inputs} and ${outputs}`);
  }

  /** Of the weights, for a Program. Negative ones tell the core that no step may write: only init does. */
  #sizes(index: number): number[] {
    const { init, gpu, weights } = this.header;
    const sign = index === init || index === gpu?.init ? 1 : -1;
    return weights.map(({ bytes }) => sign * bytes);
  }

  /** Creates the Programs; init's last, so that the memory that it gives back is what a run takes first. */
  #create(code: readonly number[], gpu?: GpuPlan): void {
    const { script, weights } = this.header;
    for (const { program, inputs, outputs } of gpu ? [] : script)
      this.#steps.push({ program: this.#program(program, code, inputs.length, outputs.length), inputs });
    const init = gpu ? this.header.gpu!.init : this.header.init;
    if (init === null) return;
    this.#init = new Init(this.#program(init, code, 0, 0), this.#words(init, code), weights);
    for (const k of this.#adopted) this.#init.arrived(k);
  }

  /** Gives back weights that only the init Program read. */
  #dropUnusedWeights(): void {
    const used = new Set(this.#steps.flatMap(({ program }) => [...program.uses].map((k) => this.#weights[k])));
    for (const k of this.#coreWeights) used.add(this.#weights[k]);
    for (const address of new Set(this.#weights))
      if (!used.has(address) && address !== this.#slab) this.#owned.give(address);
  }

  /** Runs the model; `wanted` are indexes of outputs, those in `keep` stay in the core where they may. Feeds have been checked. */
  run(
    feeds: readonly Feed[],
    wanted: readonly number[],
    keep: readonly number[] = [],
    signal?: AbortSignal,
    spares: ArrayBuffer[] = [],
  ): Promise<Output[]> {
    const how = { answer: this.#answer, signal };
    return this.#run(
      feeds,
      wanted,
      how,
      (program, inputs) => program.runAsync(inputs, how),
      new Set(keep),
      this.#keeper,
      spares,
    );
  }

  /** Where a page that shares the core's memory may write the feeds of the next run, if it asks or they moved; none where no core reads them. */
  places(asked: boolean): Omit<Places, "session"> | undefined {
    const inputs = this.gpu ? undefined : this.#inputs.places(asked);
    return inputs && { memory: this.core.memory, inputs };
  }

  /** Runs the model step by step and returns what each step took. */
  async profile(feeds: readonly Feed[]): Promise<StepTime[]> {
    const times: StepTime[] = [];
    const how = { answer: this.#answer };
    await this.#run(feeds, [], how, (program, inputs) => program.profileAsync(inputs, times, how));
    return times;
  }

  async #run(
    feeds: readonly Feed[],
    wanted: readonly number[],
    how: Ways,
    execute: (program: Program, inputs: Slot[]) => Promise<Slot[]>,
    keep: ReadonlySet<number> = new Set(),
    keeper?: Keeper<CoreRoom>,
    spares: ArrayBuffer[] = [],
  ): Promise<Output[]> {
    const held = keeper ? this.#inputs.settle(feeds, keeper) : new Map<number, Held<CoreRoom>>();
    const slots = this.#inputs.put(feeds, held);
    const rooms = keeper?.rooms(held, keep, (told) => keeper.program.bind(slots, told));
    if (rooms) slots.push(...(await this.#inRooms(rooms, slots, how)));
    else
      for (const { program, inputs } of this.#steps)
        slots.push(
          ...(await execute(
            program,
            inputs.map((slot) => slots[slot] as Slot),
          )),
        );
    const outputs = wanted.map((index): Output => {
      const { address, bytes, type, dims } = slots[this.header.results[index] as number] as Slot;
      const room = rooms?.byOutput.get(index);
      if (!room) return { data: this.core.copy(address, bytes, spareOf(spares, bytes)), type, dims };
      const rows = dims[room.axis] as number;
      if (!keep.has(index)) return { data: room.copy(rows, spares), type, dims };
      room.rows = rows;
      return { data: new Uint8Array(), held: new Held(room, rows), type, dims };
    });
    for (const { past, output } of rooms ? keeper!.program.states : [])
      this.#inputs.settleIn(past, held.get(past), keep.has(output) ? undefined : rooms!.byOutput.get(output));
    for (const room of rooms?.byOutput.values() ?? []) room.drop();
    return outputs;
  }

  async #inRooms(rooms: Rooms<CoreRoom>, inputs: readonly Slot[], how: Ways): Promise<Slot[]> {
    try {
      return await this.#keeper!.program.runIn(rooms, inputs, how);
    } catch (error) {
      for (const room of rooms.byOutput.values()) room.drop();
      throw error;
    }
  }

  free(): void {
    this.gpu?.free();
    this.#forgetGpu();
    this.#init?.free();
    for (const { program } of this.#steps.splice(0)) program.free();
    this.#inputs.free();
    this.#owned.free();
  }
}
