/** One instance of the C++ core: its memory, its threads, typed access to both. */
import { CoreLost, messageOf, size } from "./errors.js";
import { startWorker, type WorkerLike } from "./workers.js";

/** What the core exports; addresses are u32 seen as i32, `int64_t` is bigint. */
export interface CoreExports {
  pwx_version(): number;
  pwx_alloc(bytes: number): number;
  pwx_free(address: number): void;
  pwx_pool_create(threads: number): number;
  pwx_pool_destroy(pool: number): void;
  pwx_create(
    code: number,
    words: bigint,
    weights: number,
    weightBytes: number,
    nWeights: bigint,
    pool: number,
    error: number,
  ): number;
  pwx_bind(session: number, dims: number, inputs: number, error: number): number;
  pwx_evaluate(session: number, dims: number, inputs: number, registers: number, count: bigint, error: number): number;
  pwx_evaluate_stage(
    session: number,
    stage: number,
    values: number,
    slotBytes: number,
    registers: number,
    count: bigint,
    error: number,
  ): number;
  pwx_part(session: number, index: number): number;
  pwx_run_step(session: number, step: number, storages: number, error: number): number;
  pwx_operations(session: number): bigint;
  pwx_output_dims(session: number): number;
  pwx_arena_bytes(session: number): bigint;
  pwx_run(session: number, inputs: number, outputs: number, error: number): number;
  pwx_run_steps(session: number, inputs: number, outputs: number, first: number, last: number, error: number): number;
  pwx_limit(session: number, maxMemory: bigint, maxOperations: bigint): void;
  pwx_asked(session: number): number;
  pwx_answer(session: number, output: number, dims: number, error: number): number;
  pwx_seed(session: number, seed: bigint): void;
  pwx_step_count(session: number): number;
  pwx_destroy(session: number): void;
  pwx_worker(pool: number, index: number): void;
  _initialize?(): void;
  __stack_pointer: WebAssembly.Global<"i32">;
  __tls_size: WebAssembly.Global<"i32">;
  __tls_align: WebAssembly.Global<"i32">;
  __wasm_init_tls(address: number): void;
}

/** Which threads a core is to have, fewer where the context allows no more. */
export interface Threads {
  readonly count: number;
  /** The address of their script, which takes a ThreadStart. */
  readonly script: string;
  /** For each beyond the first: told of a trap. */
  readonly alarms?: readonly MessagePort[];
}

/** What a thread needs to join. It answers before it does. */
export interface ThreadStart {
  readonly op: "thread";
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly pool: number;
  readonly index: number;
  readonly stackTop: number;
  readonly tls: number;
  /** Told of a trap: the thread that waits for this one hears nothing any more. */
  readonly alarm: MessagePort | undefined;
}

const API_VERSION = 3;
const PAGE = 2 ** 16;
// As the modules are linked (toolchain.py): at least the one, at most the other.
const INITIAL_PAGES = 64;
const MAX_PAGES = 65535;
const THREAD_STACK_BYTES = 2 ** 20;
const JOIN_MS = 5000;
export const ERROR_BYTES = 256;

interface Thread {
  readonly worker: WorkerLike;
  works: boolean;
  /** Settles once it joined, or will not. */
  begun: Promise<unknown>;
}

export class Core {
  readonly #threads: Thread[] = [];
  #view = new Uint8Array();
  #lost: CoreLost | undefined;
  pool = 0;

  readonly exports: CoreExports;

  private constructor(
    instance: WebAssembly.Instance,
    readonly memory: WebAssembly.Memory,
    readonly maxBytes: number,
  ) {
    this.exports = instance.exports as unknown as CoreExports;
  }

  static async start(module: WebAssembly.Module, threads: Threads): Promise<Core> {
    const { memory, pages } = newMemory();
    const instance = await WebAssembly.instantiate(module, { env: { memory } });
    return new Core(instance, memory, pages * PAGE).#begin(module, threads);
  }

  /** Like `start`, at once. */
  static startNow(module: WebAssembly.Module, threads: Threads): Core {
    const { memory, pages } = newMemory();
    const instance = new WebAssembly.Instance(module, { env: { memory } });
    return new Core(instance, memory, pages * PAGE).#begin(module, threads);
  }

  /** Threads that work, the caller among them; those that start count until they fail. */
  get threads(): number {
    return 1 + this.#threads.filter(({ works }) => works).length;
  }

  /** Settles when it is known which threads work. */
  get settled(): Promise<unknown> {
    return Promise.all(this.#threads.map(({ begun }) => begun));
  }

  #begin(module: WebAssembly.Module, threads: Threads): this {
    this.exports._initialize?.();
    const version = this.exports.pwx_version();
    if (version !== API_VERSION)
      throw new Error(`the core has API version ${version}, this player needs ${API_VERSION}`);
    // Without isolation memory cannot be sent to a worker; only pages know of isolation.
    this.#startThreads(module, { ...threads, count: globalThis.crossOriginIsolated === false ? 1 : threads.count });
    return this;
  }

  /** The core never waits for a thread that has not joined, so nothing waits for them to start. */
  #startThreads(module: WebAssembly.Module, { count, script, alarms = [] }: Threads): void {
    const { exports, memory } = this;
    this.pool = exports.pwx_pool_create(count);
    if (!this.pool) throw new Error("out of memory: the thread pool");
    const align = Math.max(exports.__tls_align.value, 1);
    for (let index = 1; index < count; index++) {
      const stack = this.alloc(THREAD_STACK_BYTES, "a thread's stack");
      const variables = this.alloc(exports.__tls_size.value + align, "a thread's variables");
      const tls = Math.ceil(variables / align) * align;
      const [pool, stackTop, alarm] = [this.pool, stack + THREAD_STACK_BYTES, alarms[index - 1]];
      try {
        this.#startThread({ op: "thread", module, memory, pool, index, stackTop, tls, alarm }, script);
      } catch (error) {
        console.warn(`pyonnx-wasm: ${this.threads} of ${count} threads: ${messageOf(error)}`);
        this.free(stack);
        this.free(variables);
        return;
      }
    }
  }

  /** Throws where memory cannot be sent to a worker, as in WebKitGTK, which lacks SharedArrayBuffer in isolated pages too. */
  #startThread(start: ThreadStart, script: string): void {
    const worker = startWorker(script, "pyonnx-wasm-thread");
    try {
      worker.postMessage(start, start.alarm ? [start.alarm] : []);
    } catch (error) {
      worker.terminate();
      throw error;
    }
    const thread: Thread = { worker, works: true, begun: Promise.resolve() };
    this.#threads.push(thread);
    thread.begun = new Promise<void>((begun) => {
      const settle = (failure?: string): void => {
        clearTimeout(overdue);
        worker.unref?.();
        thread.works = failure === undefined;
        if (failure) console.warn(`pyonnx-wasm: a thread failed, ${this.threads} are left: ${failure}`);
        begun();
      };
      const overdue = setTimeout(settle, JOIN_MS, "it does not start");
      worker.onmessage = () => settle();
      worker.onerror = (event) => {
        event.preventDefault();
        settle(event.message || "its script did not load");
      };
    });
  }

  /** Ends the threads; the memory goes with the last reference to this object. */
  stop(): void {
    for (const { worker } of this.#threads.splice(0)) worker.terminate();
    this.#lost ??= new CoreLost("the core was stopped");
  }

  /** After a trap, or once stopped: no call is possible any more. */
  get lost(): boolean {
    return this.#lost !== undefined;
  }

  /** Calls into the core. A trap leaves its heap in an unknown state, so all later calls are refused. */
  call<T>(fn: () => T): T {
    if (this.#lost) throw this.#lost;
    try {
      return fn();
    } catch (error) {
      if (error instanceof WebAssembly.RuntimeError || error instanceof RangeError)
        throw (this.#lost = new CoreLost(
          `the core stopped by an internal error: ${error.message}; create the session again`,
        ));
      throw error;
    }
  }

  /** Memory of at least one byte, 64-byte aligned; throws an error that says for `what` it was. */
  alloc(bytes: number, what: string): number {
    const fits = bytes <= this.maxBytes;
    const address = fits ? this.call(() => this.exports.pwx_alloc(Math.max(bytes, 1))) >>> 0 : 0;
    if (address) return address;
    const used = size(this.memory.buffer.byteLength);
    throw new Error(
      `out of memory: ${what} needs ${size(bytes)}; the core has ${used} of at most ${size(this.maxBytes)}`,
    );
  }

  free(address: number): void {
    if (address && !this.#lost) this.call(() => this.exports.pwx_free(address));
  }

  destroy(session: number): void {
    if (session && !this.#lost) this.call(() => this.exports.pwx_destroy(session));
  }

  /** All of the memory. Growth gives it a new length, so a view must not be kept. */
  get bytes(): Uint8Array {
    if (this.#view.buffer !== this.memory.buffer) this.#view = new Uint8Array(this.memory.buffer);
    return this.#view;
  }

  view(address: number, bytes: number): DataView {
    return new DataView(this.memory.buffer, address, bytes);
  }

  /** A copy in memory of its own, as TextDecoder and transfers want it. */
  copy(address: number, bytes: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.bytes.subarray(address, address + bytes));
  }

  text(address: number, most: number): string {
    const bytes = this.copy(address, most);
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  }
}

function newMemory(): { memory: WebAssembly.Memory; pages: number } {
  for (let pages = MAX_PAGES; ; pages = Math.floor(pages / 2)) {
    try {
      return { memory: new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum: pages, shared: true }), pages };
    } catch (error) {
      // A shared memory reserves its maximum; small devices refuse large reservations.
      if (pages <= 4096) throw new Error(`the browser gives no WebAssembly memory: ${messageOf(error)}`);
    }
  }
}
