/** Operators in WebAssembly beside the core, each with a memory of its own (PROGRAM.md §10). */
import {
  argumentsOf,
  missing,
  shownNode,
  unfit,
  type Answers,
  type Asked,
  type Callback,
  type Kind,
  type Plain,
} from "./asked.js";
import { bytesOf, codeOf, elements } from "./dtypes.js";
import { messageOf } from "./errors.js";
import type { Limits } from "./program.js";

const PAGE = 2 ** 16;
const ALIGN = 16;
const MOST_BYTES = 2 ** 32;
const UNKNOWN = 2 ** 32 - 1;
/** data, dims, rank, type: 32 bits each. */
const RECORD = 16;

type Run = (inputs: number, n: number, outputs: number, m: number) => unknown;

/** What a module of its own may do where `maxOperations` says nothing: for the call, and for each byte that it takes and gives. */
const MOST_OPERATIONS = 2 ** 31;
const OPERATIONS_PER_BYTE = 2 ** 12;
/** Modules are not counted here, they are timed: as slow as this they still may be. */
const OPERATIONS_PER_MS = 2 ** 19;

/** Told before a module runs, how long it may, and without a node once it has. */
export type Watch = (inside?: { readonly node: string; readonly ms: number }) => void;

/** The operators of a file that are in WebAssembly. */
export class Operators {
  readonly #made = new Map<Callback, WasmOperator>();

  constructor(
    readonly modules: readonly WebAssembly.Module[],
    readonly limits: Limits = {},
    readonly watch: Watch = () => {},
  ) {}

  /** Runs what is asked where it is in WebAssembly. */
  answer(asked: Asked): Answers | undefined {
    const { callback } = asked;
    if (!callback.wasm) return undefined;
    let operator = this.#made.get(callback);
    if (!operator) {
      const module = this.modules[callback.wasm.module] as WebAssembly.Module;
      operator = new WasmOperator(callback, callback.wasm.name, module, this.limits, this.watch);
      this.#made.set(callback, operator);
    }
    return operator.run(asked);
  }
}

/** What a run asks of the host, by the modules of the file and else by the host itself. */
export async function answering(
  modules: readonly Uint8Array<ArrayBuffer>[],
  {
    answer,
    limits,
    watch,
  }: {
    readonly answer?: ((asked: Asked) => Promise<Answers>) | undefined;
    readonly limits?: Limits | undefined;
    readonly watch?: Watch | undefined;
  },
): Promise<(asked: Asked) => Promise<Answers>> {
  const compiled = modules.map((bytes, i) =>
    WebAssembly.compile(bytes).catch((error: unknown) => {
      throw new Error(`WebAssembly module ${i} of the file does not compile: ${messageOf(error)}`);
    }),
  );
  const operators = new Operators(await Promise.all(compiled), limits, watch);
  return async (asked) => {
    const found = operators.answer(asked);
    if (found) return found;
    if (!answer) throw missing(asked.callback);
    return answer(asked);
  };
}

class WasmOperator {
  #memory: WebAssembly.Memory | undefined;
  #function: Run | undefined;
  #room = 0;
  #size = 0;
  readonly most: number;

  constructor(
    readonly callback: Callback,
    readonly name: string,
    readonly module: WebAssembly.Module,
    readonly limits: Limits,
    readonly watch: Watch,
  ) {
    this.most = limits.maxMemory ?? MOST_BYTES;
    const [first] = WebAssembly.Module.imports(module);
    if (first) this.#fail(`its WebAssembly module imports ${first.module}.${first.name}; it must import nothing`);
  }

  #fail(text: string, cause?: unknown): never {
    throw Object.assign(new Error(`${shownNode(this.callback)}: ${text}`), { cause });
  }

  /** An instance: with the first call, and after one that failed. */
  #start(): [WebAssembly.Memory, Run] {
    if (this.#memory && this.#function) return [this.#memory, this.#function];
    let exports: WebAssembly.Exports;
    try {
      ({ exports } = new WebAssembly.Instance(this.module));
    } catch (error) {
      this.#fail(`its WebAssembly module does not start: ${messageOf(error)}`, error);
    }
    const [memory, run] = [exports["memory"], exports[this.name]];
    if (!(memory instanceof WebAssembly.Memory)) this.#fail("its WebAssembly module exports no memory named memory");
    if (typeof run !== "function" || run.length !== 4)
      this.#fail(`its WebAssembly module exports no function ${this.name}(i32, i32, i32, i32) -> i32`);
    [this.#memory, this.#function] = [memory, run as Run];
    [this.#room, this.#size] = [memory.buffer.byteLength, 0];
    return [memory, this.#function];
  }

  run(asked: Asked): Answers {
    const { inputs, tensors, shapes } = argumentsOf(asked);
    const { attributes, wasm } = this.callback;
    const given = [...inputs, ...(wasm?.attributes ?? []).map((n) => tensors.get(n) ?? tensorOf(attributes[n]))];
    const kinds = asked.outputs.map((want, k) => want ?? this.callback.outputs[k]);
    const [memory, call] = this.#start();
    const plan = new Plan(given, kinds, shapes);
    const base = this.#reserve(memory, plan.bytes);
    plan.write(memory, base);
    let code: unknown;
    const operations = this.limits.maxOperations ?? MOST_OPERATIONS + OPERATIONS_PER_BYTE * plan.bytes;
    this.watch({ node: shownNode(this.callback), ms: Math.ceil(operations / OPERATIONS_PER_MS) });
    try {
      code = call(base, given.length, base + RECORD * given.length, kinds.length);
    } catch (error) {
      this.#memory = this.#function = undefined; // the memory is in an unknown state
      this.#fail(`its function ${this.name} in WebAssembly failed: ${messageOf(error)}`, error);
    } finally {
      this.watch();
    }
    if (code !== 0) this.#fail(`its function ${this.name} in WebAssembly returned ${String(code)}`);
    if (memory.buffer.byteLength > this.most) {
      this.#memory = this.#function = undefined;
      this.#fail(`its function ${this.name} took more memory than ${this.most} bytes, the limit (maxMemory)`);
    }
    return asked.outputs.map((want, k) => want && this.#output(memory, plan, base, k, want, shapes[k]));
  }

  #output(
    memory: WebAssembly.Memory,
    plan: Plan,
    base: number,
    k: number,
    { type, rank }: Kind,
    told: readonly number[] | undefined,
  ): Plain {
    const view = new DataView(memory.buffer);
    const whole = told && !told.includes(-1);
    const [record, table] = [base + plan.record(k), base + plan.dimsOf(k)];
    const dims = whole ? told : Array.from({ length: rank }, (_, i) => view.getUint32(table + 4 * i, true));
    const at = whole ? base + plan.dataOf(k) : view.getUint32(record, true);
    const misfit = unfit(told, dims);
    if (misfit) this.#fail(`output ${k} of its function ${misfit}`);
    const bytes = bytesOf(type, elements(dims));
    if (dims.includes(UNKNOWN) || !(at + bytes <= memory.buffer.byteLength))
      this.#fail(`output ${k} of its function, [${dims.join(", ")}] at ${at}, leaves its memory`);
    return { data: new Uint8Array(memory.buffer).slice(at, at + bytes), type, dims };
  }

  /** Room behind what the module has for itself; it may have grown its memory since, over which nothing is laid. */
  #reserve(memory: WebAssembly.Memory, bytes: number): number {
    if (bytes > this.#size) {
      const have = memory.buffer.byteLength;
      if (this.#room + this.#size !== have) [this.#room, this.#size] = [have, 0];
      const pages = Math.ceil((bytes - this.#size) / PAGE);
      const most = Math.min(this.most, MOST_BYTES);
      try {
        if (have + pages * PAGE > most) throw new RangeError(`at most ${most}`);
        memory.grow(pages);
      } catch (error) {
        this.#fail(`out of memory: ${bytes} bytes for its inputs and outputs are more than it may have`, error);
      }
      this.#size += pages * PAGE;
    }
    return this.#room;
  }
}

/** Where what a call takes lies: records of inputs, attributes and outputs, then their dims, then their data. */
class Plan {
  readonly bytes: number;
  readonly #dims: number[] = [];
  readonly #data: number[] = [];

  constructor(
    readonly tensors: readonly (Plain | undefined)[],
    readonly outputs: readonly (Kind | undefined)[],
    readonly shapes: readonly (readonly number[] | undefined)[],
  ) {
    const ranks = [...tensors.map((t) => t?.dims.length ?? 0), ...outputs.map((o) => o?.rank ?? 0)];
    let at = RECORD * ranks.length;
    for (const rank of ranks) {
      this.#dims.push(at);
      at += 4 * rank;
    }
    for (const bytes of [...tensors.map((t) => t?.data.length ?? 0), ...outputs.map((_, k) => this.#sizeOf(k))]) {
      at = Math.ceil(at / ALIGN) * ALIGN;
      this.#data.push(at);
      at += bytes;
    }
    this.bytes = at;
  }

  #sizeOf(k: number): number {
    const [kind, shape] = [this.outputs[k], this.shapes[k]];
    return kind && shape && !shape.includes(-1) ? bytesOf(kind.type, elements(shape)) : 0;
  }

  /** Of an output. */
  record(k: number): number {
    return RECORD * (this.tensors.length + k);
  }

  dimsOf(k: number): number {
    return this.#dims[this.tensors.length + k] as number;
  }

  dataOf(k: number): number {
    return this.#data[this.tensors.length + k] as number;
  }

  write(memory: WebAssembly.Memory, base: number): void {
    const [view, bytes] = [new DataView(memory.buffer), new Uint8Array(memory.buffer)];
    const record = (k: number, type: number, dims: readonly number[], placed: boolean): void => {
      const [data, table] = [placed ? base + (this.#data[k] as number) : 0, base + (this.#dims[k] as number)];
      for (const [i, word] of [data, table, dims.length, type].entries())
        view.setUint32(base + RECORD * k + 4 * i, word, true);
      for (const [i, dim] of dims.entries()) view.setUint32(table + 4 * i, dim >>> 0, true);
    };
    for (const [k, tensor] of this.tensors.entries()) {
      bytes.fill(0, base + RECORD * k, base + RECORD * (k + 1));
      if (!tensor) continue;
      record(k, codeOf(tensor.type), tensor.dims, true);
      bytes.set(tensor.data, base + (this.#data[k] as number));
    }
    for (const [o, kind] of this.outputs.entries()) {
      const k = this.tensors.length + o;
      bytes.fill(0, base + RECORD * k, base + RECORD * (k + 1));
      const shape = this.shapes[o];
      if (kind)
        record(k, codeOf(kind.type), shape ?? Array<number>(kind.rank).fill(-1), !!shape && !shape.includes(-1));
    }
  }
}

/** An attribute as an operator in WebAssembly gets it: float64 of rank 0 or 1, text as its bytes. */
function tensorOf(value: unknown): Plain | undefined {
  if (value === undefined) return undefined;
  const items = Array.isArray(value) ? (value as unknown[]) : [value];
  if (items.some((item) => typeof item === "string")) {
    const data = new TextEncoder().encode(items.join("\0"));
    return { data, type: "uint8", dims: [data.length] };
  }
  const data = Float64Array.from(items, Number);
  return { data: new Uint8Array(data.buffer), type: "float64", dims: Array.isArray(value) ? [items.length] : [] };
}
