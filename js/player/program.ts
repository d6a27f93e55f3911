/** One Program inside the core: staging memory, binding, running, errors with names. */
import { missing, type Answers, type Asked } from "./asked.js";
import { bytesOf, codeOf, elements, typeOfCode, type Type } from "./dtypes.js";
import { ERROR_BYTES, type Core } from "./core.js";
import type { ProgramInfo } from "./format.js";
import {
  INPUTS,
  OUTPUTS,
  readKernels,
  readPorts,
  readStates,
  readSteps,
  weightsOf,
  type Port,
  type State,
} from "./tables.js";
import type { CoreRoom, Rooms } from "./state.js";
import { SLICE, Stops } from "./pause.js";
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

  /** Where it lies since it grew last. */
  get address(): number {
    return this.#address;
  }

  get capacity(): number {
    return this.#capacity;
  }

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

/** A Program within another one: it shares weights, limits and random numbers, and goes when that one goes. */
export interface Within {
  readonly outer: Program;
  readonly index: number;
}

/** A run stopped where the sizes of further outputs became known. */
const MORE = -1;
/** A run stopped at a step that the host does. */
const WAIT = -2;
/** The run stopped as it took the operations of a slice. */
const PAUSE = -3;

/** Errors of a Program that the core does not understand. */
const [MALFORMED, UNKNOWN_KERNEL] = [1, 2];

// Where nothing else is said.
const MAX_MEMORY = 2 ** 40;
const MAX_OPERATIONS = 2 ** 48;

export class Program {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly states: readonly State[];
  /** Weights that this Program's storages refer to. */
  readonly uses: ReadonlySet<number>;
  readonly #steps: readonly { kernel: string; origin: string }[];
  readonly #staging: Staging[];
  readonly limits: { readonly maxMemory: number; readonly maxOperations: number };
  readonly #session: number;
  readonly #own: boolean;
  #frame = 0;
  #slots: (Slot | undefined)[] = [];
  #rooms: ReadonlyMap<number, CoreRoom> | undefined;

  /** Creates the Program from its verified words at `code`; throws an error that names kernel or step. */
  constructor(
    readonly core: Core,
    readonly info: ProgramInfo,
    code: number,
    weights: WeightTable | Within,
    { maxMemory = MAX_MEMORY, maxOperations = MAX_OPERATIONS }: Limits = {},
  ) {
    this.limits = { maxMemory, maxOperations };
    this.#own = !("outer" in weights);
    this.#session =
      "outer" in weights ? core.exports.pwx_part(weights.outer.#session, weights.index) : this.#create(code, weights);
    if (this.#own) {
      core.exports.pwx_limit(this.#session, BigInt(maxMemory), BigInt(maxOperations));
      core.exports.pwx_slice(this.#session, BigInt(SLICE));
    }
    // The core has verified the words by now.
    const words = new Int32Array(core.copy(code, info.bytes).buffer);
    const kernels = readKernels(words);
    this.states = readStates(words);
    const inputs = readPorts(words, INPUTS, false);
    this.inputs = inputs.slice(0, inputs.length - this.states.length);
    this.outputs = readPorts(words, OUTPUTS, true);
    this.uses = weightsOf(words);
    this.#steps = readSteps(words).map(([kernel, origin]) => ({
      kernel: kernels[kernel] ?? "",
      origin: info.origins[origin] ?? "",
    }));
    this.#staging = this.outputs.map(() => new Staging(core));
    const dims = inputs.reduce((n, { rank }) => n + rank, 0);
    try {
      this.#frame = core.alloc(
        ERROR_BYTES + 8 * dims + core.addressBytes * (inputs.length + this.outputs.length),
        "a call frame",
      );
    } catch (error) {
      this.free();
      throw error;
    }
  }

  #create(code: number, { addresses, bytes }: WeightTable): number {
    const { core, info } = this;
    const n = addresses.length;
    const frame = core.alloc(ERROR_BYTES + (8 + core.addressBytes) * n, "the weight table");
    try {
      const view = core.view(frame, ERROR_BYTES + 8 * n);
      bytes.forEach((b, i) => view.setBigInt64(ERROR_BYTES + 8 * i, BigInt(b), true));
      const sizes = frame + ERROR_BYTES;
      core.writeAddresses(sizes + 8 * n, addresses);
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

  /**
   * Binds to the inputs' sizes; returns the sizes of the outputs, undefined for those that are known only in a run. `told` is per
   * state the rows that there is room for, and those that are in place.
   */
  bind(inputs: readonly Slot[], told?: readonly number[]): (number[] | undefined)[] {
    this.#prepare(inputs);
    this.#bind(inputs, undefined, told);
    return this.#outputDims();
  }

  /** Runs with outputs in rooms. */
  runIn(rooms: Rooms<CoreRoom>, inputs: readonly Slot[], how: Ways): Promise<Slot[]> {
    return finishAsync(this.#running(inputs, rooms), how);
  }

  /**
   * Binds to the inputs' sizes and runs, with outputs in `rooms` where there are any; the slots returned are valid until the next run.
   * A long run calls `paused` now and then.
   */
  run(
    inputs: readonly Slot[],
    answer?: (asked: Asked) => Answers,
    paused?: () => void,
    rooms?: Rooms<CoreRoom>,
  ): Slot[] {
    return finish(this.#running(inputs, rooms), answer, paused);
  }

  /** The same where answers take time, and where the run may be given up. */
  runAsync(inputs: readonly Slot[], how: Ways = {}): Promise<Slot[]> {
    return finishAsync(this.#running(inputs), how);
  }

  *#running(inputs: readonly Slot[], rooms?: Rooms<CoreRoom>): Run {
    const { core, exports } = this.#prepare(inputs);
    const [ins, outs] = this.#bind(inputs, undefined, rooms?.told);
    this.#rooms = rooms?.byOutput;
    this.#stageOutputs(outs);
    const error = this.#frame;
    yield* this.#whole(outs, () => core.call(() => exports.pwx_run(this.#session, ins, outs, error)));
    return this.#slots as Slot[];
  }

  /** Like `run`, one step at a time, and adds what each took to `times`. */
  profile(inputs: readonly Slot[], times: StepTime[], answer?: (asked: Asked) => Answers): Slot[] {
    return finish(this.#profiling(inputs, times), answer);
  }

  /** The same where answers take time. */
  profileAsync(inputs: readonly Slot[], times: StepTime[], how: Ways): Promise<Slot[]> {
    return finishAsync(this.#profiling(inputs, times), how);
  }

  *#profiling(inputs: readonly Slot[], times: StepTime[]): Run {
    const { core, exports } = this.#prepare(inputs);
    const [ins, outs] = this.#bind(inputs);
    this.#rooms = undefined;
    this.#stageOutputs(outs);
    const error = this.#frame;
    const zero = performance.now();
    for (const [i, { kernel, origin }] of this.#steps.entries()) {
      const start = performance.now();
      yield* this.#whole(outs, () => core.call(() => exports.pwx_run_steps(this.#session, ins, outs, i, i + 1, error)));
      const ms = performance.now() - start;
      times.push({ name: origin || kernel, kernel, backend: "wasm", start: start - zero, ms, bytes: 0 });
    }
    return this.#slots as Slot[];
  }

  /** Of a Program of one stage, without inputs and outputs: binds it and gives what runs steps, each once, in their order. */
  bySteps(): (first: number, last: number) => void {
    const { core } = this;
    const [ins, outs] = this.#bind([]);
    const { pwx_run_steps: run } = core.exports;
    return (first, last) => {
      if (core.call(() => run(this.#session, ins, outs, first, last, this.#frame))) throw this.#error(this.#frame);
    };
  }

  /** All registers for these sizes; takes no memory and leaves nothing bound. */
  evaluate(inputs: readonly Slot[], count: number, told?: readonly number[]): BigInt64Array {
    this.#prepare(inputs);
    const { core } = this;
    const registers = core.alloc(8 * count, "registers");
    try {
      const evaluate = (dims: number, ins: number, error: number): number =>
        core.exports.pwx_evaluate(this.#session, dims, ins, registers, BigInt(count), error);
      this.#bind(inputs, evaluate, told);
      return new BigInt64Array(core.copy(registers, 8 * count).buffer);
    } finally {
      core.free(registers);
    }
  }

  /** All registers when those of a later stage read `values`; `slotBytes` are those of what control steps gave so far. */
  evaluateStage(stage: number, values: readonly bigint[], slotBytes: readonly number[], count: number): BigInt64Array {
    const { core } = this;
    const error = this.#frame;
    const frame = core.alloc(8 * (values.length + slotBytes.length + count), "registers");
    try {
      const slots = frame + 8 * values.length;
      const registers = slots + 8 * slotBytes.length;
      const view = core.view(frame, registers - frame);
      [...values, ...slotBytes.map(BigInt)].forEach((v, i) => view.setBigInt64(8 * i, v, true));
      const { pwx_evaluate_stage: evaluate } = core.exports;
      if (core.call(() => evaluate(this.#session, stage, frame, slots, registers, BigInt(count), error)))
        throw this.#error(error);
      return new BigInt64Array(core.copy(registers, 8 * count).buffer);
    } finally {
      core.free(frame);
    }
  }

  /** Where the random numbers of later runs begin. */
  seed(seed: bigint): void {
    this.core.exports.pwx_seed(this.#session, BigInt.asIntN(64, seed));
  }

  /** Runs steps of what was evaluated; each storage lies at its address, those of weights aside. */
  runSteps(first: number, last: number, addresses: readonly number[], ran?: (step: number) => void): void {
    const { core } = this;
    const error = this.#frame;
    const frame = core.alloc(core.addressBytes * addresses.length, "the addresses of storages");
    try {
      core.writeAddresses(frame, addresses);
      for (let step = first; step < last; step++) {
        if (core.call(() => core.exports.pwx_run_step(this.#session, step, frame, error))) throw this.#error(error);
        ran?.(step);
      }
    } finally {
      core.free(frame);
    }
  }

  /** An estimate of the elementary operations of a run, as far as its stages are evaluated. */
  get operations(): number {
    return Number(this.core.exports.pwx_operations(this.#session));
  }

  /** An error of this Program as the core would tell it. */
  error(code: number, step: number, text: string): ProgramError {
    const { origin, kernel } = this.#steps[step] ?? { origin: "", kernel: "" };
    return new ProgramError(`${origin ? `node ${origin}` : kernel}: ${text}`, code, step, origin, text);
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
    told: readonly number[] = this.states.flatMap(() => [0, 0]),
  ): [ins: number, outs: number] {
    const { core } = this;
    const error = this.#frame;
    const dimsAt = error + ERROR_BYTES;
    const all = [...inputs.flatMap(({ dims }) => dims), ...told];
    const ins = dimsAt + 8 * all.length;
    const outs = ins + core.addressBytes * (inputs.length + this.states.length);
    const frame = core.view(error, ins - error);
    frame.setInt32(0, 0, true);
    all.forEach((dim, i) => frame.setBigInt64(ERROR_BYTES + 8 * i, BigInt(dim), true));
    core.writeAddresses(ins, [...inputs.map(({ address }) => address), ...this.states.map(() => 0)]);
    if (core.call(() => how(dimsAt, ins, error))) throw this.#error(error);
    return [ins, outs];
  }

  /** Repeats a call for as long as it stops for outputs whose sizes have become known, or for what the host does. */
  *#whole(outs: number, call: () => number): Generator<Asked | undefined, void, Answers> {
    for (let code = call(); code; code = call()) {
      if (code === WAIT) this.#answer(yield this.#asked());
      else if (code === PAUSE) yield undefined;
      else if (code === MORE) this.#stageOutputs(outs);
      else throw this.#error(this.#frame);
    }
  }

  #asked(): Asked {
    const { core, info } = this;
    let at = core.exports.pwx_asked(this.#session);
    const words = (count: number): number[] => {
      const view = core.view(at, 8 * count);
      at += 8 * count;
      return Array.from({ length: count }, (_, i) => Number(view.getBigInt64(8 * i, true)));
    };
    const [number, inputs, outputs] = words(3) as [number, number, number];
    const callback = info.callbacks[number];
    if (!callback) throw new Error(`program "${info.name}" has no callback ${number}`);
    return {
      number,
      callback,
      inputs: Array.from({ length: inputs }, () => {
        const [address, bytes, code, rank] = words(4) as [number, number, number, number];
        return { data: core.copy(address, bytes), type: typeOfCode(code) as Type, dims: words(rank) };
      }),
      outputs: Array.from({ length: outputs }, () => {
        const [code, rank] = words(2) as [number, number];
        return code ? { type: typeOfCode(code) as Type, rank } : undefined;
      }),
    };
  }

  #answer(answers: Answers): void {
    const { core } = this;
    const error = this.#frame;
    for (const [k, answer] of answers.entries()) {
      if (!answer) continue;
      const dims = core.alloc(8 * answer.dims.length, "dims");
      const view = core.view(dims, 8 * answer.dims.length);
      answer.dims.forEach((dim, i) => view.setBigInt64(8 * i, BigInt(dim), true));
      const address = core.call(() => core.exports.pwx_answer(this.#session, k, dims, error));
      core.free(dims);
      if (!address) throw this.#error(error);
      core.bytes.set(answer.data, address);
    }
  }

  #outputDims(): (number[] | undefined)[] {
    const { core } = this;
    const address = core.exports.pwx_output_dims(this.#session);
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
      const room = this.#rooms?.get(i);
      if (room) return { address: room.address, bytes, type, dims };
      const staging = this.#staging[i] as Staging;
      return { address: staging.reserve(bytes, `output ${i} of [${dims}]`), bytes, type, dims };
    });
    this.core.writeAddresses(
      outs,
      this.#slots.map((slot) => slot?.address ?? 0),
    );
  }

  #error(address: number): ProgramError {
    const { core, info } = this;
    const view = core.view(address, ERROR_BYTES);
    const [code, step, message] = [view.getInt32(0, true), view.getInt32(4, true), view.getInt32(8, true)];
    const said = core
      .text(address + 16, ERROR_BYTES - 16)
      .replace(/max_([mo])/, (_, c: string) => `max${c.toUpperCase()}`);
    const told = (code === 3 ? info.messages[message] : said) || said || `error ${code} in program "${info.name}"`;
    const text = code === MALFORMED || code === UNKNOWN_KERNEL ? told + core.otherBuild() : told;
    const at = code >= 3 ? this.#steps?.[step] : undefined;
    const where = !at || code === 3 ? "" : at.origin ? `node ${at.origin}: ` : `${at.kernel}: `;
    return new ProgramError(where + text, code, step, at?.origin ?? "", text);
  }

  free(): void {
    if (this.#own) this.core.destroy(this.#session);
    for (const staging of this.#staging) staging.free();
    this.core.free(this.#frame);
  }
}

/** What goes on beside a run: who does what it asks of the host, and who may give it up. */
export interface Ways {
  readonly answer?: ((asked: Asked) => Promise<Answers>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Gives what it asks of the host; undefined: it pauses. */
type Run = Generator<Asked | undefined, Slot[], Answers>;

function finish(run: Run, answer?: (asked: Asked) => Answers, paused?: () => void): Slot[] {
  let step = run.next();
  while (!step.done) {
    if (!step.value) paused?.();
    else if (!answer) throw missing(step.value.callback);
    step = run.next(step.value ? answer!(step.value) : []);
  }
  return step.value;
}

async function finishAsync(run: Run, { answer, signal }: Ways): Promise<Slot[]> {
  const stops = new Stops(signal);
  let step = run.next();
  while (!step.done) {
    if (!step.value) await stops.stop();
    else if (!answer) throw missing(step.value.callback);
    step = run.next(step.value ? await answer!(step.value) : []);
  }
  return step.value;
}
