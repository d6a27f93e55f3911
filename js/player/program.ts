/** One Program inside the core: staging memory, binding, running, errors with names. */
import { bytesOf, codeOf, elements, typeOfCode, type Type } from "./dtypes.js";
import { ERROR_BYTES, type Core } from "./core.js";
import type { ProgramInfo } from "./format.js";
import type { StepTime } from "./types.js";

/** A tensor in core memory. */
export interface Slot {
  readonly address: number;
  readonly bytes: number;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** What the core said: an error `code` (PROGRAM.md), the step at fault or -1, the ONNX nodes that it came from. */
export class ProgramError extends Error {
  override name = "ProgramError";

  constructor(
    message: string,
    readonly code: number,
    readonly step: number,
    readonly origin: string,
    readonly text: string,
  ) {
    super(message);
  }
}

/** Core memory that grows to what is asked and is reused. */
export class Staging {
  #address = 0;
  #capacity = 0;

  constructor(readonly core: Core) {}

  reserve(bytes: number, what: string): number {
    if (this.#address && bytes <= this.#capacity) return this.#address;
    this.free();
    this.#address = this.core.alloc(bytes, what);
    this.#capacity = bytes;
    return this.#address;
  }

  free(): void {
    this.core.free(this.#address);
    this.#address = 0;
    this.#capacity = 0;
  }
}

/** What a run on the core may take; beyond is an error that names the step. */
export interface Limits {
  /** Bytes of intermediate tensors, scratch and outputs. */
  readonly maxMemory?: number | undefined;
  /** Elementary operations, those of loops and branches included. */
  readonly maxOperations?: number | undefined;
}

export interface WeightTable {
  readonly addresses: readonly number[];
  readonly bytes: readonly number[];
}

// Word offsets in a Program's head (PROGRAM.md §2).
const KERNELS = 3;
const INPUTS = 5;
const OUTPUTS = 7;
const SHAPE_CODE = 9;
const STORAGES = 11;
const BUFFERS = 13;
const STEPS = 15;
/** A run stopped where the sizes of further outputs became known. */
const MORE = -1;
const WEIGHT_STORAGE = 1;
const ELEM = 2;

// Where nothing else is said.
const MAX_MEMORY = 2 ** 40;
const MAX_OPERATIONS = 2 ** 48;

interface Port {
  readonly code: number;
  readonly rank: number;
}

export class Program {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** Weights that this Program's storages refer to. */
  readonly uses: ReadonlySet<number>;
  readonly #steps: readonly { kernel: string; origin: string }[];
  readonly #staging: Staging[];
  readonly #session: number;
  #frame = 0;
  #slots: (Slot | undefined)[] = [];
  #ready: [ins: number, outs: number] = [0, 0];

  /** Creates the Program from its verified words at `code`; throws an error that names kernel or step. */
  constructor(
    readonly core: Core,
    readonly info: ProgramInfo,
    code: number,
    weights: WeightTable,
    { maxMemory = MAX_MEMORY, maxOperations = MAX_OPERATIONS }: Limits = {},
  ) {
    this.#session = this.#create(code, weights);
    core.exports.pwx_limit(this.#session, BigInt(maxMemory), BigInt(maxOperations));
    // The core has verified the words by now.
    const words = new Int32Array(core.copy(code, info.bytes).buffer);
    const kernels = readKernels(words);
    this.inputs = readPorts(words, INPUTS, false);
    this.outputs = readPorts(words, OUTPUTS, true);
    this.uses = readWeights(words);
    this.#steps = readSteps(words).map(([kernel, origin]) => ({
      kernel: kernels[kernel] ?? "",
      origin: info.origins[origin] ?? "",
    }));
    this.#staging = this.outputs.map(() => new Staging(core));
    const dims = this.inputs.reduce((n, { rank }) => n + rank, 0);
    try {
      this.#frame = core.alloc(ERROR_BYTES + 8 * dims + 4 * (this.inputs.length + this.outputs.length), "a call frame");
    } catch (error) {
      this.free();
      throw error;
    }
  }

  #create(code: number, { addresses, bytes }: WeightTable): number {
    const { core, info } = this;
    const n = addresses.length;
    const frame = core.alloc(ERROR_BYTES + 12 * n, "the weight table");
    try {
      const view = core.view(frame, ERROR_BYTES + 12 * n);
      bytes.forEach((b, i) => view.setBigInt64(ERROR_BYTES + 8 * i, BigInt(b), true));
      addresses.forEach((a, i) => view.setUint32(ERROR_BYTES + 8 * n + 4 * i, a, true));
      const sizes = frame + ERROR_BYTES;
      const words = BigInt(info.bytes / 4);
      view.setInt32(0, 0, true);
      const session = core.call(() =>
        core.exports.pwx_create(code, words, sizes + 8 * n, sizes, BigInt(n), core.pool, frame),
      );
      if (!session) throw this.#error(frame);
      return session;
    } finally {
      core.free(frame);
    }
  }

  /** Binds to the inputs' sizes; returns the sizes of the outputs, undefined for those that are known only in a run. */
  bind(inputs: readonly Slot[]): (number[] | undefined)[] {
    this.#prepare(inputs);
    this.#bind(inputs);
    return this.#outputDims();
  }

  /** Binds to the inputs' sizes and runs; the slots returned are valid until the next run. */
  run(inputs: readonly Slot[]): Slot[] {
    const { core, exports } = this.#prepare(inputs);
    return this.#finish(inputs, (ins, outs) => {
      const error = this.#frame;
      this.#whole(outs, () => core.call(() => exports.pwx_run(this.#session, ins, outs, error)));
    });
  }

  /** Like `run`, one step at a time, and adds what each took to `times`. */
  profile(inputs: readonly Slot[], times: StepTime[]): Slot[] {
    const { core, exports } = this.#prepare(inputs);
    return this.#finish(inputs, (ins, outs) => {
      const error = this.#frame;
      const zero = performance.now();
      for (const [i, { kernel, origin }] of this.#steps.entries()) {
        const start = performance.now();
        this.#whole(outs, () => core.call(() => exports.pwx_run_steps(this.#session, ins, outs, i, i + 1, error)));
        const ms = performance.now() - start;
        times.push({ name: origin || kernel, kernel, backend: "wasm", start: start - zero, ms, bytes: 0 });
      }
    });
  }

  /** All registers for these sizes; takes no memory and leaves nothing bound. */
  evaluate(inputs: readonly Slot[], count: number): BigInt64Array {
    this.#prepare(inputs);
    const { core } = this;
    const registers = core.alloc(8 * count, "registers");
    try {
      this.#bind(inputs, (dims, ins, error) =>
        core.exports.pwx_evaluate(this.#session, dims, ins, registers, BigInt(count), error),
      );
      return new BigInt64Array(core.copy(registers, 8 * count).buffer);
    } finally {
      core.free(registers);
    }
  }

  /** Binds to the inputs' sizes and readies memory for `runSteps`; returns the outputs. */
  ready(inputs: readonly Slot[]): Slot[] {
    this.#prepare(inputs);
    return this.#finish(inputs, (ins, outs) => {
      this.#ready = [ins, outs];
    });
  }

  /** Runs steps `first` up to `last` of what was made ready. */
  runSteps(first: number, last: number): void {
    const { core } = this;
    const [ins, outs] = this.#ready;
    const error = this.#frame;
    if (core.call(() => core.exports.pwx_run_steps(this.#session, ins, outs, first, last, error)))
      throw this.#error(error);
  }

  /** Where the random numbers of later runs begin. */
  seed(seed: bigint): void {
    this.core.exports.pwx_seed(this.#session, BigInt.asIntN(64, seed));
  }

  /** Where a storage of the arena lies under the current binding. */
  storage(index: number): number {
    return this.core.exports.pwx_storage(this.#session, BigInt(index)) >>> 0;
  }

  /** Kernel and ONNX node of each step. */
  get steps(): readonly { kernel: string; origin: string }[] {
    return this.#steps;
  }

  #prepare(inputs: readonly Slot[]): { core: Core; exports: Core["exports"] } {
    inputs.forEach(({ type, dims }, i) => {
      const port = this.inputs[i];
      if (!port || codeOf(type) !== port.code || dims.length !== port.rank)
        throw new Error(
          `program "${this.info.name}": input ${i} is a ${type} of rank ${dims.length}, which it does not take`,
        );
    });
    return { core: this.core, exports: this.core.exports };
  }

  /** Returns the addresses of the arrays of input and output addresses. */
  #bind(
    inputs: readonly Slot[],
    how = (dims: number, ins: number, error: number): number =>
      this.core.exports.pwx_bind(this.#session, dims, ins, error),
  ): [ins: number, outs: number] {
    const { core } = this;
    const error = this.#frame;
    const dimsAt = error + ERROR_BYTES;
    const all = inputs.flatMap(({ dims }) => dims);
    const ins = dimsAt + 8 * all.length;
    const outs = ins + 4 * inputs.length;
    const frame = core.view(error, outs - error);
    frame.setInt32(0, 0, true);
    all.forEach((dim, i) => frame.setBigInt64(ERROR_BYTES + 8 * i, BigInt(dim), true));
    inputs.forEach(({ address }, i) => frame.setUint32(ins - error + 4 * i, address, true));
    if (core.call(() => how(dimsAt, ins, error))) throw this.#error(error);
    return [ins, outs];
  }

  #finish(inputs: readonly Slot[], execute: (ins: number, outs: number) => void): Slot[] {
    const [ins, outs] = this.#bind(inputs);
    this.#stageOutputs(outs);
    execute(ins, outs);
    return this.#slots as Slot[];
  }

  /** Repeats a call for as long as it stops for outputs whose sizes have become known. */
  #whole(outs: number, call: () => number): void {
    for (let code = call(); code; code = call()) {
      if (code !== MORE) throw this.#error(this.#frame);
      this.#stageOutputs(outs);
    }
  }

  #outputDims(): (number[] | undefined)[] {
    const { core } = this;
    const address = core.exports.pwx_output_dims(this.#session) >>> 0;
    const view = core.view(address, 8 * this.outputs.reduce((n, { rank }) => n + rank, 0));
    let at = 0;
    return this.outputs.map(({ rank }) => {
      const dims = Array.from({ length: rank }, () => Number(view.getBigInt64(8 * at++, true)));
      return dims.some((dim) => dim < 0) ? undefined : dims;
    });
  }

  /** Memory for the outputs whose sizes are known; their addresses go to `outs`. */
  #stageOutputs(outs: number): void {
    const shapes = this.#outputDims();
    this.#slots = this.outputs.map(({ code }, i) => {
      const type = typeOfCode(code) as Type;
      const dims = shapes[i];
      if (!dims) return undefined;
      const bytes = bytesOf(type, elements(dims));
      const staging = this.#staging[i] as Staging;
      return { address: staging.reserve(bytes, `output ${i} of [${dims}]`), bytes, type, dims };
    });
    const frame = this.core.view(outs, 4 * this.outputs.length);
    this.#slots.forEach((slot, i) => frame.setUint32(4 * i, slot?.address ?? 0, true));
  }

  #error(address: number): ProgramError {
    const { core, info } = this;
    const view = core.view(address, ERROR_BYTES);
    const [code, step, message] = [view.getInt32(0, true), view.getInt32(4, true), view.getInt32(8, true)];
    const said = core
      .text(address + 16, ERROR_BYTES - 16)
      .replace(/max_([mo])/, (_, c: string) => `max${c.toUpperCase()}`);
    const text = (code === 3 ? info.messages[message] : said) || said || `error ${code} in program "${info.name}"`;
    const at = code >= 3 ? this.#steps?.[step] : undefined;
    const where = !at || code === 3 ? "" : at.origin ? `node ${at.origin}: ` : `${at.kernel}: `;
    return new ProgramError(where + text, code, step, at?.origin ?? "", text);
  }

  free(): void {
    this.core.destroy(this.#session);
    for (const staging of this.#staging) staging.free();
    this.core.free(this.#frame);
  }
}

function table(words: Int32Array, head: number): { count: number; at: number } {
  return { count: words[head] as number, at: words[head + 1] as number };
}

function readKernels(words: Int32Array): string[] {
  let { count, at } = table(words, KERNELS);
  const bytes = new Uint8Array(words.buffer);
  const names: string[] = [];
  for (; count > 0; count--) {
    const length = words[at + 1] as number;
    names.push(new TextDecoder().decode(bytes.subarray(4 * at + 8, 4 * at + 8 + length)));
    at += 2 + Math.ceil(length / 4);
  }
  return names;
}

function readPorts(words: Int32Array, head: number, withDims: boolean): Port[] {
  let { count, at } = table(words, head);
  const ports: Port[] = [];
  for (; count > 0; count--) {
    const rank = words[at + 1] as number;
    ports.push({ code: words[at] as number, rank });
    at += 3 + (withDims ? rank : 0);
  }
  return ports;
}

function readWeights(words: Int32Array): Set<number> {
  const { count, at } = table(words, STORAGES);
  const used = new Set<number>();
  for (let i = at; i < at + 6 * count; i += 6) if (words[i] === WEIGHT_STORAGE) used.add(words[i + 1] as number);
  return used;
}

function readSteps(words: Int32Array): [kernel: number, origin: number][] {
  let { count, at } = table(words, STEPS);
  const steps: [number, number][] = [];
  for (; count > 0; count--) {
    const [kernel, buffers, params, origin] = words.subarray(at, at + 4) as unknown as [number, number, number, number];
    steps.push([kernel < 0 ? ~kernel : kernel, origin]);
    at += 4 + buffers + params;
  }
  return steps;
}

/** The tables of a Program that the core has verified. */
export interface Tables {
  readonly registers: number;
  readonly storages: readonly StorageRow[];
  readonly buffers: readonly BufferRow[];
  /** Buffers of each step, absent ones left out. */
  readonly steps: readonly (readonly number[])[];
  /** Registers of each output's dims. */
  readonly outputDims: readonly (readonly number[])[];
  /** Inputs whose contents decide sizes. */
  readonly elements: ReadonlySet<number>;
}

export interface StorageRow {
  /** 0 arena, 1 weight, 2 input, 3 output. */
  readonly kind: number;
  readonly index: number;
  /** Register of the size in bytes. */
  readonly size: number;
  readonly first: number;
  readonly last: number;
}

export interface BufferRow {
  readonly storage: number;
  /** Register of the offset in bytes. */
  readonly offset: number;
  /** Register of the size in bytes. */
  readonly size: number;
  readonly dtype: number;
}

export function readTables(words: Int32Array): Tables {
  const rows = (head: number, size: number): Int32Array[] => {
    const { count, at } = table(words, head);
    return Array.from({ length: count }, (_, i) => words.subarray(at + size * i, at + size * (i + 1)));
  };
  const code = rows(SHAPE_CODE, 4);
  let { count, at } = table(words, STEPS);
  const steps: number[][] = [];
  for (; count > 0; count--) {
    const [buffers, params] = [words[at + 1] as number, words[at + 2] as number];
    steps.push([...words.subarray(at + 4, at + 4 + buffers)].filter((b) => b >= 0));
    at += 4 + buffers + params;
  }
  ({ count, at } = table(words, OUTPUTS));
  const outputDims: number[][] = [];
  for (; count > 0; count--) {
    const rank = words[at + 1] as number;
    outputDims.push([...words.subarray(at + 3, at + 3 + rank)]);
    at += 3 + rank;
  }
  return {
    registers: code.length,
    storages: rows(STORAGES, 6).map((r) => ({ kind: r[0]!, index: r[1]!, size: r[2]!, first: r[3]!, last: r[4]! })),
    buffers: rows(BUFFERS, 4).map((r) => ({ storage: r[0]!, offset: r[1]!, size: r[2]!, dtype: r[3]! })),
    steps,
    outputDims,
    elements: new Set(code.filter((c) => c[0] === ELEM).map((c) => c[1]!)),
  };
}

/** Weights that a Program's storages refer to. */
export const weightsOf = readWeights;
