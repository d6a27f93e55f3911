/**
 * The core as Python in Pyodide calls it (pyonnx_wasm/runtimes/pyodide.py): nothing is awaited, and one call makes a run.
 *
 * Tensors stay in Pyodide's memory: Python writes their addresses into a frame, an array of f64 that both sides see.
 */
import type { Answers, Asked, Callback } from "../player/asked.js";
import { Core } from "../player/core.js";
import { bytesOf, elements, typeOfCode, type Type } from "../player/dtypes.js";
import { messageOf } from "../player/errors.js";
import { callbackOf } from "../player/format.js";
import { hasRelaxedSimd } from "../player/module.js";
import { Operators } from "../player/operators.js";
import { asking, GpuSession, type Ask, type Result } from "./gpu.js";
import { Program, Staging, type Limits, type Slot } from "../player/program.js";
import { CoreRoom, Held, Keeper } from "../player/state.js";
import { startThread } from "../player/thread.js";
import type { StepTime } from "../player/types.js";

declare const THREAD_SCRIPT: string;

/** What Pyodide gives for a numpy array. */
interface Buffer {
  readonly data: Uint8Array | Int32Array | Float64Array;
  release(): void;
}
interface PythonArray {
  getBuffer(type?: string): Buffer;
}

interface WeightSpec {
  readonly name: string;
  readonly bytes: number;
  /** Index of the weight whose memory this one has, or its own. */
  readonly home: number;
}
interface ProgramSpec {
  readonly name: string;
  readonly messages: readonly string[];
  readonly origins: readonly string[];
  readonly callbacks: readonly unknown[];
}
interface Spec {
  /** How many WebAssembly modules operators are in. */
  readonly modules: number;
  readonly weights: readonly WeightSpec[];
  readonly main: ProgramSpec;
  readonly init: ProgramSpec | null;
  readonly limits: Limits;
}

let compiled: WebAssembly.Module | undefined;
let threadScript: string | undefined;
const cores = new Map<number, Core>();

/** Name of the module that suits this browser. */
export function coreFile(): string {
  return hasRelaxedSimd() ? "core-relaxed.wasm" : "core.wasm";
}

/** Compiles the module from its bytes; once for all sessions. */
export function compile(bytes: PythonArray): void {
  const { data, release } = viewOf(bytes);
  try {
    compiled = new WebAssembly.Module(data.slice());
  } finally {
    release();
  }
}

/** The core that all sessions of so many threads share; a new one after a trap. */
function coreOf(threads: number): Core {
  let core = cores.get(threads);
  if (!core || core.lost) {
    if (!compiled) throw new Error("the core was not compiled");
    const script = (threadScript ??= URL.createObjectURL(new Blob([THREAD_SCRIPT], { type: "text/javascript" })));
    core?.stop();
    core = Core.startNow(compiled, { count: threads, start: (start) => startThread(script, start) });
    cores.set(threads, core);
  }
  return core;
}

function defaultThreads(): number {
  // Node 20 has no navigator.
  const cores = (globalThis.navigator as Navigator | undefined)?.hardwareConcurrency ?? 1;
  return Math.max(1, Math.min(4, Math.floor(cores / 2)));
}

/** In place of bytes in a frame: what stays in the core, whose number is there for an address, or an output that is not to be copied. */
const HELD = -1;
/** The number of what stays of output `i` is that of its run times this, and `i`. */
const OUTPUTS = 2 ** 16;

/** What a run takes. */
interface Taken {
  readonly main: Program;
  readonly inputs: Slot[];
  readonly held: ReadonlyMap<number, Held<CoreRoom>>;
  readonly frame: Float64Array;
  /** Where outputs begin in the frame. */
  readonly at: number;
}

/** A model in core memory. Frames hold, per input, its address, its bytes and its dims, then per output the same. */
export class Executor {
  readonly #core: Core;
  readonly #owned = new Set<number>();
  readonly #weights: number[] = [];
  readonly #spec: Spec;
  #main: Program | undefined;
  #inputs: Staging[] = [];
  #keeper: Keeper<CoreRoom> | undefined;
  #results: readonly Slot[] = [];
  /** Of results that lie in rooms, what is to be copied: nothing of what stays. */
  #copies: ReadonlyMap<number, Uint8Array> = new Map();
  #at = 0;
  #runs = 0;
  /** What stays of each run, by its number and by output, until it is disposed of. */
  readonly #left = new Map<number, ReadonlyMap<number, Held<CoreRoom>>>();
  readonly #modules: WebAssembly.Module[] = [];
  readonly #callbacks: readonly Callback[];
  #answer: ((asked: Asked) => Answers) | undefined;
  #paused: (() => void) | undefined;
  #frame: PythonArray | undefined;
  #view: Buffer | undefined;

  constructor(spec: string, threads: number) {
    this.#spec = JSON.parse(spec) as Spec;
    const { main, modules } = this.#spec;
    this.#callbacks = main.callbacks.map((row, k) => callbackOf(row, `callbacks[${k}]`, modules));
    this.#core = coreOf(threads || defaultThreads());
    try {
      for (const [k, { name, bytes, home }] of this.#spec.weights.entries())
        if (home === k) this.#weights[k] = this.#own(bytes, `weight "${name}"`);
    } catch (error) {
      this.free();
      throw error;
    }
    for (const [k, { home }] of this.#spec.weights.entries()) this.#weights[k] = this.#weights[home] as number;
  }

  /** Threads that work, or are still to start. */
  get threads(): number {
    return this.#core.threads;
  }

  /** Copies the bytes of weight `k` in. */
  write(k: number, bytes: PythonArray): void {
    const { data, release } = viewOf(bytes);
    this.#core.bytes.set(data, this.#weights[k]);
    release();
  }

  /** Runs the init Program, then makes the main one ready; both are given as words. */
  start(main: PythonArray, init: PythonArray | undefined): void {
    try {
      if (init && this.#spec.init) {
        const program = this.#program(this.#spec.init, init, 1);
        try {
          program.run([]);
        } finally {
          program.free();
        }
      }
      // Negative sizes tell the core that no step may write.
      this.#main = this.#program(this.#spec.main, main, -1);
    } catch (error) {
      this.free();
      throw error;
    }
    const used = new Set([...this.#main.uses].map((k) => this.#weights[k]));
    for (const address of [...this.#owned]) if (!used.has(address)) this.#disown(address);
    this.#inputs = this.#main.inputs.map(() => new Staging(this.#core));
    this.#keeper = new Keeper(this.#main, (...room) => new CoreRoom(this.#core, ...room));
  }

  /** Takes the bytes of the next WebAssembly module. */
  module(bytes: PythonArray): void {
    const { data, release } = viewOf(bytes);
    const copy = data.slice();
    release();
    try {
      this.#modules.push(new WebAssembly.Module(copy));
    } catch (error) {
      throw new Error(`WebAssembly module ${this.#modules.length} does not compile: ${messageOf(error)}`);
    }
  }

  /** Takes the function that does what a run asks of the host, by the callback's number; it gives nothing where it fails. */
  answerWith(ask: Ask): void {
    const operators = new Operators(this.#modules, this.#spec.limits);
    const answer = asking(ask);
    this.#answer = (asked) => operators.answer(asked) ?? answer(asked);
  }

  /** Takes what a long run calls now and then, and what it throws ends the run. */
  pauseWith(paused: () => void): void {
    this.#paused = paused;
  }

  /** Where random numbers begin, in decimal. */
  seed(seed: string): void {
    this.#main?.seed(BigInt(seed));
  }

  /** Takes the array that frames are written to; it must not be moved. */
  share(frame: PythonArray): void {
    this.#frame = frame;
  }

  /** Writes the outputs' dims into the frame, -1 for those that are known only in a run. */
  bind(): void {
    const { main, inputs, frame, at } = this.#take();
    let word = at;
    for (const [i, dims] of main.bind(inputs).entries()) {
      const { rank } = main.outputs[i] as { rank: number };
      frame.set(dims ?? new Array<number>(rank).fill(-1), word + 2);
      word += 2 + rank;
    }
  }

  /** Runs; with `fetch` outputs go to the addresses that the frame holds for them, else their dims into the frame. */
  run(fetch: boolean): void {
    const { main, inputs, at } = this.#take();
    this.#results = main.run(inputs, this.#answer, this.#paused);
    this.#copies = new Map();
    this.#at = at;
    if (fetch) this.fetch();
    else this.#tell();
  }

  /** Runs for outputs of which some, a list, stay in the core; the number of what does. Dims go into the frame. */
  runHeld(keep: string): number {
    const { main, inputs, held, at } = this.#take();
    const stay = new Set(JSON.parse(keep) as number[]);
    const rooms = this.#keeper?.rooms(held, stay, (told) => main.bind(inputs, told));
    const left = new Map<number, Held<CoreRoom>>();
    const copies = new Map<number, Uint8Array>();
    try {
      this.#results = main.run(inputs, this.#answer, this.#paused, rooms);
      for (const [i, room] of rooms?.byOutput ?? []) {
        const rows = this.#results[i]!.dims[room.axis]!;
        if (stay.has(i)) {
          room.rows = rows;
          left.set(i, new Held(room, rows));
        } else copies.set(i, room.copy(rows));
      }
    } finally {
      for (const room of rooms?.byOutput.values() ?? []) room.drop();
    }
    this.#copies = copies;
    this.#at = at;
    this.#left.set(++this.#runs, left);
    this.#tell();
    return this.#runs;
  }

  /** Copies what stays, by its number, to an address. */
  copyHeld(number: number, to: number): void {
    const { room, rows } = this.#heldOf(number);
    new Uint8Array(this.#words().buffer).set(room.copy(rows), to);
  }

  /** Frees what a run has left. */
  dispose(run: number): void {
    for (const held of this.#left.get(run)?.values() ?? []) held.release();
    this.#left.delete(run);
  }

  #heldOf(number: number): Held<CoreRoom> {
    const held = this.#left.get(Math.floor(number / OUTPUTS))?.get(number % OUTPUTS);
    if (!held) throw new Error("what stayed of a run is gone");
    return held;
  }

  /** Writes the outputs' dims into the frame. */
  #tell(): void {
    const frame = this.#words();
    let word = this.#at;
    for (const { dims } of this.#results) {
      frame.set(dims, word + 2);
      word += 2 + dims.length;
    }
  }

  /** Copies the outputs of the latest run to the addresses that the frame holds for them. */
  fetch(): void {
    const frame = this.#words();
    const heap = new Uint8Array(frame.buffer);
    let word = this.#at;
    for (const [i, { address, bytes, dims }] of this.#results.entries()) {
      const [to, room] = frame.subarray(word, word + 2) as unknown as [number, number];
      word += 2 + dims.length;
      if (room === HELD) continue;
      if (room !== bytes) throw new Error(`output ${i} has ${bytes} bytes, there is room for ${room}`);
      heap.set(this.#copies.get(i) ?? this.#core.bytes.subarray(address, address + bytes), to);
    }
    this.#copies = new Map();
  }

  /** Runs step by step; as JSON what each took, and the first `count` registers. */
  profile(count: number): string {
    const { main, inputs } = this.#take();
    const registers = Array.from(main.evaluate(inputs, count), Number);
    const steps: StepTime[] = [];
    main.profile(inputs, steps, this.#answer);
    return JSON.stringify({ steps, registers });
  }

  /** Copies the inputs that the frame names into the core, but for what is there and can be gone on from. */
  #take(): Taken {
    const main = this.#main;
    if (!main) throw new Error("the session was released");
    const frame = this.#words();
    const heap = new Uint8Array(frame.buffer);
    const held = new Map<number, Held<CoreRoom>>();
    let at = 0;
    const inputs = main.inputs.map(({ code, rank }, i): Slot => {
      const [from, given] = frame.subarray(at, at + 2) as unknown as [number, number];
      const dims = [...frame.subarray(at + 2, at + 2 + rank)];
      const type = typeOfCode(code) as Type;
      const bytes = bytesOf(type, elements(dims));
      at += 2 + rank;
      const there = given === HELD ? this.#heldOf(from) : undefined;
      if (there && this.#keeper?.takes(i, there.room)) {
        held.set(i, there);
        return { address: there.room.address, bytes, type, dims };
      }
      const data = there ? there.room.copy(there.rows) : heap.subarray(from, from + given);
      if (bytes !== data.length) throw new Error(`input ${i} of [${dims}] has ${data.length} bytes, not ${bytes}`);
      const address = (this.#inputs[i] as Staging).reserve(bytes, `input ${i} of [${dims}]`);
      this.#core.bytes.set(data, address);
      return { address, bytes, type, dims };
    });
    return { main, inputs, held, frame, at };
  }

  /** The frame; Pyodide's memory moves when it grows. */
  #words(): Float64Array {
    if (this.#view && this.#view.data.length === 0) {
      this.#view.release();
      this.#view = undefined;
    }
    this.#view ??= (this.#frame as PythonArray).getBuffer();
    return this.#view.data as Float64Array;
  }

  #program(spec: ProgramSpec, words: PythonArray, sign: number): Program {
    const { data, release } = viewOf(words);
    const code = this.#own(data.length, `program "${spec.name}"`);
    try {
      this.#core.bytes.set(data, code);
      release();
      const bytes = this.#spec.weights.map((w) => sign * w.bytes);
      const callbacks = spec === this.#spec.main ? this.#callbacks : [];
      const info = { ...spec, callbacks, start: 0, bytes: data.length };
      return new Program(this.#core, info, code, { addresses: this.#weights, bytes }, this.#spec.limits);
    } finally {
      this.#disown(code);
    }
  }

  #own(bytes: number, what: string): number {
    const address = this.#core.alloc(bytes, what);
    this.#owned.add(address);
    return address;
  }

  #disown(address: number): void {
    if (this.#owned.delete(address)) this.#core.free(address);
  }

  free(): void {
    this.#view?.release();
    this.#view = undefined;
    this.#main?.free();
    this.#main = undefined;
    for (const staging of this.#inputs.splice(0)) staging.free();
    for (const address of [...this.#owned]) this.#disown(address);
  }
}

/** A model on WebGPU; `model` are the bytes of a compiled file. */
export async function openGpu(model: Uint8Array, seed: string, limits: string, ask: Ask): Promise<GpuSession> {
  return GpuSession.open(coreOf(1), model, BigInt(seed), JSON.parse(limits) as Limits, ask);
}

/** Room for bytes that Python writes piece by piece. */
export function room(bytes: number): Uint8Array {
  return new Uint8Array(bytes);
}

/** Runs a session on WebGPU for some outputs, a list, of which others, a list, stay there; the frame is read before this returns. */
export function runGpu(
  session: GpuSession,
  frame: PythonArray,
  wanted: string,
  keep: string,
  signal?: AbortSignal,
): Promise<Result[]> {
  const buffer = frame.getBuffer();
  try {
    const [some, stay] = [wanted, keep].map((list) => JSON.parse(list) as number[]) as [number[], number[]];
    return session.run(buffer.data as Float64Array, some, stay, signal);
  } finally {
    buffer.release();
  }
}

/** The same, step by step. */
export function profileGpu(session: GpuSession, frame: PythonArray): Promise<string> {
  const buffer = frame.getBuffer();
  try {
    return session.profile(buffer.data as Float64Array);
  } finally {
    buffer.release();
  }
}

/** Bytes of WebAssembly memory that all cores hold. */
export function memoryBytes(): number {
  return [...cores.values()].reduce((sum, core) => sum + core.memory.buffer.byteLength, 0);
}

function viewOf(array: PythonArray): { data: Uint8Array<ArrayBuffer>; release: () => void } {
  const buffer = array.getBuffer("u8");
  return { data: buffer.data as Uint8Array<ArrayBuffer>, release: () => buffer.release() };
}
