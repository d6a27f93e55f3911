/** One Program on the GPU, stage by stage; the Programs within it are others of these. */
import type { Answers, Asked } from "../asked.js";
import type { Core } from "../core.js";
import { bytesOf, elements, typeOfCode, type Type } from "../dtypes.js";
import { Staging, type Program, type Slot } from "../program.js";
import { INPUT, OUTPUT, SLOT, WEIGHT, type Tables } from "../tables.js";
import type { StepTime } from "../types.js";
import { walk } from "./control.js";
import { Data, type Commands, type Range, type Value } from "./data.js";
import { element } from "./element.js";
import { Groups, Rooms } from "./memory.js";
import { readersOf, type Pipelines, type Readers } from "./pipelines.js";
import type { Plan } from "./section.js";
import { Stage, type Bound, type Dispatch, type Part as Bytes } from "./stage.js";
import { timed } from "./timing.js";

const GROUPS = 8; // bind groups kept per step

/** What the Programs of a model share. */
export interface Shared {
  readonly core: Core;
  readonly commands: Commands;
  readonly pipelines: Pipelines;
  /** Does what the host has to do. */
  readonly answer: ((asked: Asked) => Promise<Answers>) | undefined;
  /** Of the weights that steps on the GPU read, by index. */
  readonly weights: ReadonlyMap<number, GPUBuffer>;
}

/** One run under way: where the storages are that live. */
export interface Run {
  readonly inputs: readonly Value[];
  /** What control steps gave. */
  readonly slots: (Value | undefined)[];
  readonly times: StepTime[] | undefined;
  readonly there: (GPUBuffer | undefined)[];
  /** Addresses in the core's memory. */
  readonly here: number[];
  bound: Bound;
  stage: number;
}

/** Buffers for outputs; undefined: one of the Program's own, until its next run. */
export type Room = (output: number, bytes: number) => GPUBuffer | undefined;

export class Part {
  readonly #readers: Readers;
  readonly #stages: readonly Stage[];
  readonly #rooms: Rooms;
  readonly #groups = new Groups(GROUPS);
  readonly #staging: (Staging | undefined)[] = [];
  readonly #arena: Staging[] = [];
  /** Steps on the GPU that touch a storage. */
  readonly #touching: readonly (readonly number[])[];
  /** It has one stage and nothing runs on the core: dims tell all about a run. */
  readonly #simple: boolean;
  readonly #outermost: boolean;
  /** An estimate of what the last run took, and of what each of its steps takes by itself. */
  operations = 0;

  constructor(
    readonly shared: Shared,
    readonly program: Program,
    readonly tables: Tables,
    readonly plan: Plan,
    /** Of the Programs within. */
    readonly bodies: readonly Part[],
    outermost: boolean,
  ) {
    const { commands, pipelines } = shared;
    this.#outermost = outermost;
    this.#readers = readersOf(tables, plan);
    this.#rooms = new Rooms(commands.gpu);
    this.#stages = tables.stages.map(
      (_, i) => new Stage(i, commands, tables, plan, pipelines, this.#readers, (step) => this.name(step)),
    );
    this.#simple = tables.stages.length === 1 && !plan.steps.includes(null) && tables.elements.size === 0;
    const touching = tables.storages.map(() => new Set<number>());
    for (const [i, buffers] of tables.steps.entries())
      if (Array.isArray(plan.steps[i])) for (const b of buffers) touching[tables.buffers[b]!.storage]!.add(i);
    this.#touching = touching.map((steps) => [...steps]);
  }

  /** Runs. Buffers of the outputs that come from `room` are the caller's. */
  async run(
    inputs: readonly Value[],
    times: StepTime[] | undefined,
    room: Room,
    told?: readonly number[],
  ): Promise<Value[]> {
    const { commands } = this.shared;
    const bound = await this.bind(inputs, told);
    const run: Run = {
      inputs,
      slots: Array<Value | undefined>(this.tables.slots).fill(undefined),
      times,
      there: Array<GPUBuffer | undefined>(this.tables.storages.length).fill(undefined),
      here: Array<number>(this.tables.storages.length).fill(0),
      bound,
      stage: 0,
    };
    await this.#begin(run, room);
    for (const action of this.plan.schedule) {
      if (action.on === "gpu") await this.#onGpu(run, action.first, action.last);
      else if (action.on === "core") this.#onCore(run, action.first, action.last);
      else if (action.on === "control") await walk(this, run, action.step);
      else if (action.on === "stage") await this.#next(run, action.onCore, room);
      else await this.#copy(run, action.on, action.storages);
    }
    this.operations = run.bound.operations + this.tables.steps.length + this.tables.registers + 1;
    const results = this.tables.outputs.map((_, i) => this.#output(run, i));
    for (const slot of run.slots) commands.give(slot?.data.buffer);
    return results;
  }

  /** What the sizes of the inputs lead to in the first stage. */
  async bind(inputs: readonly Value[], told?: readonly number[]): Promise<Bound> {
    const stage = this.#stages[0] as Stage;
    const dims = [...inputs.map((x) => x.dims), told ?? []].map((all) => all.join()).join(";");
    const quick = this.#simple ? stage.find(dims) : undefined;
    if (quick) return quick;
    const registers = this.program.evaluate(await this.#slots(inputs), this.tables.registers, told);
    const key = this.#simple ? dims : this.#key(registers, 0);
    return stage.find(key) ?? (await stage.make(key, registers, undefined, this.program.operations));
  }

  /** The sizes of outputs that the first stage tells, undefined for the others. */
  async sizes(inputs: readonly Value[]): Promise<(told: readonly number[]) => (number[] | undefined)[]> {
    const slots = await this.#slots(inputs);
    const { registers: end } = this.tables.stages[0]!;
    return (told) => {
      const registers = this.program.evaluate(slots, this.tables.registers, told);
      return this.tables.outputDims.map((dims) =>
        dims.every((r) => r < end) ? dims.map((r) => Number(registers[r])) : undefined,
      );
    };
  }

  #key(registers: BigInt64Array, stage: number): string {
    return registers.subarray(0, this.tables.stages[stage]!.registers).join();
  }

  /** The inputs as the core's shape code sees them: those whose contents it reads are in its memory. */
  async #slots(inputs: readonly Value[]): Promise<Slot[]> {
    const slots: Slot[] = [];
    for (const [i, { data, type, dims }] of inputs.entries()) {
      const storage = this.tables.storages.findIndex(({ kind, index }) => kind === INPUT && index === i);
      const address = this.tables.elements.has(i) ? await this.#load(storage, data) : 0;
      slots.push({ address, bytes: data.bytes, type, dims });
    }
    return slots;
  }

  /** Goes on to the next stage, when those elements are read that it asks for. */
  async #next(run: Run, onCore: readonly number[], room: Room): Promise<void> {
    const index = run.stage + 1;
    const values = await this.#read(run, index, onCore);
    const slotBytes = run.slots.map((slot) => slot?.data.bytes ?? 0);
    const registers = this.program.evaluateStage(index, values, slotBytes, this.tables.registers);
    const key = this.#key(registers, index);
    const stage = this.#stages[index] as Stage;
    run.bound = stage.find(key) ?? (await stage.make(key, registers, run.bound, this.program.operations));
    run.stage = index;
    await this.#begin(run, room);
  }

  async #read(run: Run, stage: number, onCore: readonly number[]): Promise<bigint[]> {
    const { registers } = run.bound;
    const { core, commands } = this.shared;
    const away: { at: number; type: Type; range: Range }[] = [];
    const values = this.tables.stages[stage]!.reads.map(({ register, size, from, index }, at) => {
      if (size) return BigInt(run.slots[from]?.dims[index] ?? 0);
      const row = this.tables.buffers[from]!;
      const type = typeOfCode(row.dtype) as Type;
      const each = bytesOf(type, 1);
      // Beyond the end, which the core refuses.
      if ((index + 1) * each > Number(registers[row.size])) return 0n;
      const offset = Number(registers[row.offset]) + index * each;
      const given = this.given(run, row.storage);
      if (given?.local) return element(given.local.subarray(offset, offset + each), type);
      if (!given && onCore.includes(register)) return element(core.copy(run.here[row.storage]! + offset, each), type);
      const buffer = given ? given.buffer : run.there[row.storage];
      if (buffer) away.push({ at, type, range: { buffer, bytes: each, offset } });
      return 0n;
    });
    const read = away.length ? await commands.read(away.map(({ range }) => range)) : [];
    for (const [i, { at, type }] of away.entries()) values[at] = element(read[i]!, type);
    return values;
  }

  /** What is in a storage of an input or a slot. */
  given(run: Run, storage: number): Data | undefined {
    const { kind, index } = this.tables.storages[storage]!;
    return kind === INPUT ? run.inputs[index]!.data : kind === SLOT ? run.slots[index]?.data : undefined;
  }

  /** What a control step takes from a buffer. */
  async operand(run: Run, buffer: number, onCore: boolean): Promise<Data> {
    const { core, commands, weights } = this.shared;
    const { storage, offset, size } = this.tables.buffers[buffer]!;
    const [at, bytes] = [Number(run.bound.registers[offset]), Number(run.bound.registers[size])];
    const whole = run.bound.sizes[storage]!;
    const { kind, index } = this.tables.storages[storage]!;
    let data = this.given(run, storage);
    if (!data && onCore) data = new Data(whole, core.copy(run.here[storage]!, whole), undefined);
    data ??= new Data(whole, undefined, kind === WEIGHT ? weights.get(index) : run.there[storage]);
    if (at === 0 && bytes === data.bytes) return data;
    return new Data(bytes, (await commands.here(data)).subarray(at, at + bytes), undefined);
  }

  /** Memory for what a stage makes ready. */
  async #begin(run: Run, room: Room): Promise<void> {
    const { commands, weights, core } = this.shared;
    const { tables, bound } = { tables: this.tables, bound: run.bound };
    const stage = this.#stages[run.stage] as Stage;
    const own = tables.storages.length;
    const needs = new Map([...bound.needs].map(([place, need]) => [own + place, need]));
    for (const i of stage.known) {
      const { kind, index } = tables.storages[i]!;
      const bytes = bound.sizes[i]!;
      const data = this.given(run, i);
      if (this.#readers.gpu.has(i)) {
        if (kind === WEIGHT) run.there[i] = weights.get(index);
        else if (kind === OUTPUT) run.there[i] = this.plan.onCore.has(index) ? undefined : room(index, bytes);
        else if (data) run.there[i] = this.#outermost ? data.buffer : commands.there(data, `input ${index}`);
        if (!run.there[i] && (kind === INPUT || kind === OUTPUT || kind === SLOT))
          needs.set(i, { bytes, what: `${kind === OUTPUT ? "output" : "input"} ${index}` });
      }
      if (this.#readers.core.has(i) && kind !== WEIGHT) {
        const place = bound.here.get(i);
        if (place !== undefined)
          (this.#arena[place] ??= new Staging(core)).reserve(bytes, `the output of ${this.name(stage.first)}`);
        else if (data) run.here[i] = await this.#load(i, data);
        else run.here[i] = this.#stagingOf(i).reserve(bytes, `output ${index} of ${bytes} bytes`);
      }
    }
    // Several storages may share a place, which lies where the largest of them made it lie.
    for (const i of stage.known) {
      const place = bound.here.get(i);
      if (place !== undefined && this.#readers.core.has(i)) run.here[i] = this.#arena[place]!.address;
    }
    if (this.#rooms.wants(needs)) {
      commands.flush();
      await this.#rooms.fit(needs);
    }
    for (const [i, place] of bound.there) run.there[i] = this.#rooms.at(own + place);
    for (const i of stage.known) {
      if (!needs.has(i)) continue;
      const buffer = (run.there[i] = this.#rooms.at(i));
      const data = this.given(run, i);
      if (!data || !buffer) continue;
      commands.write(buffer, await commands.here(data));
      data.buffer = buffer;
    }
    this.#prepare(run);
  }

  #stagingOf(storage: number): Staging {
    return (this.#staging[storage] ??= new Staging(this.shared.core));
  }

  /** Puts data into the core's memory; returns where it lies. */
  async #load(storage: number, data: Data): Promise<number> {
    const local = await this.shared.commands.here(data);
    const address = this.#stagingOf(storage).reserve(data.bytes, `input ${storage} of ${data.bytes} bytes`);
    this.shared.core.bytes.set(local, address);
    return address;
  }

  /** Finds what to dispatch; only steps whose buffers changed are looked at. */
  #prepare(run: Run): void {
    const { bound, there } = run;
    const { first, last } = this.#stages[run.stage] as Stage;
    const own = this.tables.storages.length;
    const given = [...there.keys()].filter((i) => {
      const place = bound.there.get(i);
      return there[i] && there[i] !== this.#rooms.at(place === undefined ? i : own + place);
    });
    this.#takeOver(run);
    const whole = bound.version !== this.#rooms.version;
    const steps = whole
      ? Array.from({ length: last - first }, (_, k) => first + k)
      : new Set([...bound.given, ...given].flatMap((i) => this.#touching[i]!));
    for (const i of steps) if (i >= first && i < last) bound.dispatches[i - first] = this.#dispatch(run, i);
    bound.version = this.#rooms.version;
    bound.given = given;
  }

  /** The dispatches of the sizes that these were made from, where their buffers are still those. */
  #takeOver(run: Run): void {
    const { bound } = run;
    const { first, blocks, slotBytes } = this.#stages[run.stage] as Stage;
    const { from } = bound;
    bound.from = undefined;
    if (!from || from.bound.version !== this.#rooms.version) return;
    bound.dispatches = from.same.map((same, k) => {
      const dispatch = same ? from.bound.dispatches[k] : this.#dispatch(run, first + k);
      return dispatch && { ...dispatch, uniforms: bound.slot * slotBytes + blocks[k]!.at };
    });
    bound.version = from.bound.version;
    bound.given = from.bound.given;
  }

  #dispatch(run: Run, step: number): Dispatch | undefined {
    const { first, blocks, slotBytes, uniforms } = this.#stages[run.stage] as Stage;
    const found = run.bound.cases[step - first];
    if (!found) return undefined;
    const { pipeline, x, y, parts } = found;
    const { at, bytes } = blocks[step - first]!;
    const buffers = this.tables.steps[step]!.map((b) => run.there[this.tables.buffers[b]!.storage] as GPUBuffer);
    const group = this.#groups.get(step, pipeline.form, buffers, () =>
      this.shared.commands.gpu.device.createBindGroup({
        label: pipeline.kernel,
        layout: pipeline.layout,
        entries: [
          { binding: 0, resource: { buffer: uniforms, size: bytes } },
          ...buffers.map((buffer, k) => ({ binding: k + 1, resource: bindingOf(buffer, parts[k]) })),
        ],
      }),
    );
    return { pipeline: pipeline.pipeline, group, uniforms: run.bound.slot * slotBytes + at, x, y };
  }

  async #onGpu(run: Run, first: number, last: number): Promise<void> {
    const { commands } = this.shared;
    const begin = (this.#stages[run.stage] as Stage).first;
    const { dispatches, operations } = run.bound;
    if (!run.times) {
      const each = operations / Math.max(this.tables.steps.length, 1);
      const many = Math.max(1, Math.floor(commands.slice / Math.max(each, 1)));
      for (let at = first; at < last; at += many) {
        const end = Math.min(at + many, last);
        encode(commands.encoder, dispatches, at - begin, end - begin);
        await commands.pace(each * (end - at));
      }
      return;
    }
    const times = await timed(commands, first, last, (encoder, step, timestamps) =>
      encode(encoder, dispatches, step - begin, step - begin + 1, timestamps),
    );
    for (const [k, ms] of times.entries())
      this.note(run, { ...this.#described(run, first + k), backend: "webgpu", ms });
  }

  #onCore(run: Run, first: number, last: number): void {
    this.shared.commands.flush();
    let begin = performance.now();
    this.program.runSteps(first, last, run.here, (step) => {
      const now = performance.now();
      this.note(run, { ...this.#described(run, step), backend: "wasm", ms: now - begin });
      begin = now;
    });
  }

  /** Adds what something took behind what was noted before. */
  note({ times }: Run, step: Omit<StepTime, "start">): void {
    const last = times?.at(-1);
    times?.push({ ...step, start: last ? last.start + last.ms : 0 });
  }

  name(step: number): string {
    const { origin = "", kernel = "" } = this.program.steps[step] ?? {};
    return origin || kernel;
  }

  #described(run: Run, step: number): { name: string; kernel: string; bytes: number } {
    const storages = (this.tables.steps[step] ?? []).map((b) => this.tables.buffers[b]!.storage);
    const bytes = [...new Set(storages)].reduce((n, s) => n + (run.bound.sizes[s] ?? 0), 0);
    return { name: this.name(step), kernel: this.program.steps[step]?.kernel ?? "", bytes };
  }

  async #copy(run: Run, on: "upload" | "download", storages: readonly number[]): Promise<void> {
    const { commands, core } = this.shared;
    const start = performance.now();
    const { sizes } = run.bound;
    if (on === "upload") {
      for (const s of storages) commands.write(run.there[s] as GPUBuffer, core.copy(run.here[s]!, sizes[s]!));
    } else {
      const read = await commands.read(storages.map((s) => ({ buffer: run.there[s] as GPUBuffer, bytes: sizes[s]! })));
      storages.forEach((s, i) => core.bytes.set(read[i] as Uint8Array, run.here[s]!));
    }
    const bytes = storages.reduce((n, s) => n + (sizes[s] ?? 0), 0);
    this.note(run, { name: on, kernel: "copy", backend: "copy", ms: performance.now() - start, bytes });
  }

  #output(run: Run, index: number): Value {
    const { registers } = run.bound;
    const { code, buffer } = this.tables.outputs[index]!;
    const { storage } = this.tables.buffers[buffer]!;
    const type = typeOfCode(code) as Type;
    const dims = this.tables.outputDims[index]!.map((r) => Number(registers[r]));
    const bytes = bytesOf(type, elements(dims));
    const onCore = this.plan.onCore.has(index);
    const local = onCore ? this.shared.core.copy(run.here[storage]!, bytes) : undefined;
    const there = onCore ? undefined : run.there[storage];
    return { data: new Data(bytes, local ?? (there ? undefined : new Uint8Array(bytes)), there), type, dims };
  }

  free(): void {
    for (const body of this.bodies) body.free();
    for (const stage of this.#stages) stage.free();
    this.#rooms.free();
    for (const staging of [...this.#staging, ...this.#arena]) staging?.free();
    this.program.free();
  }
}

function bindingOf(buffer: GPUBuffer, part: Bytes): GPUBufferBinding {
  return part ? { buffer, offset: part.offset, size: Math.min(part.size, buffer.size - part.offset) } : { buffer };
}

/** One pass over dispatches `first` up to `last`. */
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
