/** One instance of the C++ core: its memory, its threads, typed access to both. */
import { CoreLost, messageOf, size } from "./errors.js";
import type { WorkerLike } from "./workers.js";

/** What the core exports; addresses are numbers here, whatever their width (see `narrowed`), `int64_t` is bigint. */
export interface CoreExports {
  pwx_version(): number;
  /** Not of cores older than the name. */
  pwx_build?(): number;
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
  pwx_slice(session: number, operations: bigint): void;
  pwx_limit(session: number, maxMemory: bigint, maxOperations: bigint): void;
  pwx_asked(session: number): number;
  pwx_answer(session: number, output: number, dims: number, error: number): number;
  pwx_seed(session: number, seed: bigint): void;
  pwx_step_count(session: number): number;
  pwx_destroy(session: number): void;
  __tls_size: WebAssembly.Global;
  __tls_align: WebAssembly.Global;
}

/** An address as the module itself takes it: of 64 bits it is a bigint. */
export type Address = number | bigint;

/** What a thread calls, on addresses as they are. */
export interface ThreadExports {
  __stack_pointer: WebAssembly.Global<"i32" | "i64">;
  __tls_size: WebAssembly.Global;
  __wasm_init_tls(address: Address): void;
  pwx_worker(pool: Address, index: number): void;
}

/** Which threads a core is to have, fewer where the context allows no more. */
export interface Threads {
  readonly count: number;
  /** Starts one (see `startThread`). Throws where memory cannot be sent to a worker, as in WebKitGTK, which lacks SharedArrayBuffer in isolated pages too. */
  start(this: void, start: ThreadStart): ThreadLike;
}

/** A thread as its core sees it: told "joined", or of an error. */
export type ThreadLike = Pick<WorkerLike, "onmessage" | "onerror" | "terminate" | "unref">;

export const ONE_THREAD: Threads = {
  count: 1,
  start: () => {
    throw new Error("a core of one thread starts no other");
  },
};

/** What a thread says: before it joins, and what it died of. */
export type Said = "joined" | { readonly trap: string };

/** What a thread needs to join. */
export interface ThreadStart {
  readonly op: "thread";
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly pool: Address;
  readonly index: number;
  readonly stackTop: Address;
  readonly tls: Address;
}

declare const VERSION: string;
/** What `pwx_build` gives of the core that this player was built with. */
declare const CORE_BUILD: number;

const API_VERSION = 3;
const PAGE = 2 ** 16;
// As the modules are linked (toolchain.py, wasm64.py): at least the one, at most the others.
const INITIAL_PAGES = 64;
const MAX_PAGES = 65535;
const MAX_WIDE_PAGES = 2 ** 18;
const THREAD_STACK_BYTES = 2 ** 20;
export const ERROR_BYTES = 256;

// (memory i64 1 1 shared)
const WIDE_PROBE = [0, 97, 115, 109, 1, 0, 0, 0, 5, 4, 1, 7, 1, 1];

/** Whether memory may have 64-bit addresses here. */
export function hasMemory64(): boolean {
  return WebAssembly.validate(new Uint8Array(WIDE_PROBE));
}

interface Thread {
  readonly worker: ThreadLike;
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
  /** Bytes of an address in the core's tables. */
  readonly addressBytes: 4 | 8;

  private constructor(
    instance: WebAssembly.Instance,
    readonly memory: WebAssembly.Memory,
    readonly maxBytes: number,
    /** Whether addresses have 64 bits. */
    readonly wide: boolean,
  ) {
    this.exports = narrowed(instance.exports, wide);
    this.addressBytes = wide ? 8 : 4;
  }

  /** Starts a module; `wide` tells that its addresses have 64 bits. */
  static async start(module: WebAssembly.Module, threads: Threads, wide = false): Promise<Core> {
    const { memory, pages } = newMemory(wide);
    const instance = await WebAssembly.instantiate(module, { env: { memory } });
    return new Core(instance, memory, pages * PAGE, wide).#begin(module, threads);
  }

  /** Like `start`, at once. */
  static startNow(module: WebAssembly.Module, threads: Threads): Core {
    const { memory, pages } = newMemory(false);
    const instance = new WebAssembly.Instance(module, { env: { memory } });
    return new Core(instance, memory, pages * PAGE, false).#begin(module, threads);
  }

  /** What an error of something that the core does not understand says besides; "" where the core is the one of this player. */
  otherBuild(): string {
    const built = this.exports.pwx_build?.();
    if (built === CORE_BUILD) return "";
    return `; the core is of build ${built ?? "unknown"}, this player (version ${VERSION}) goes with build ${CORE_BUILD}: take core.wasm and the player's files from one version of pyonnx-wasm`;
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
    const version = this.exports.pwx_version();
    if (version !== API_VERSION)
      throw new Error(`the core has API version ${version}, this player needs ${API_VERSION}${this.otherBuild()}`);
    // Without isolation memory cannot be sent to a worker; only pages know of isolation.
    this.#startThreads(module, { ...threads, count: globalThis.crossOriginIsolated === false ? 1 : threads.count });
    return this;
  }

  /** The core never waits for a thread that has not joined, so nothing waits for them to start. */
  #startThreads(module: WebAssembly.Module, { count, start }: Threads): void {
    const { exports, memory } = this;
    this.pool = exports.pwx_pool_create(count);
    if (!this.pool) throw new Error("out of memory: the thread pool");
    const align = Math.max(Number(exports.__tls_align.value), 1);
    const address = (at: number): Address => (this.wide ? BigInt(at) : at);
    for (let index = 1; index < count; index++) {
      const stack = this.alloc(THREAD_STACK_BYTES, "a thread's stack");
      const variables = this.alloc(Number(exports.__tls_size.value) + align, "a thread's variables");
      const tls = address(Math.ceil(variables / align) * align);
      const [pool, stackTop] = [address(this.pool), address(stack + THREAD_STACK_BYTES)];
      try {
        this.#watchThread(start({ op: "thread", module, memory, pool, index, stackTop, tls }));
      } catch (error) {
        console.warn(`pyonnx-wasm: ${this.threads} of ${count} threads: ${messageOf(error)}`);
        this.free(stack);
        this.free(variables);
        return;
      }
    }
  }

  #watchThread(worker: ThreadLike): void {
    const thread: Thread = { worker, works: true, begun: Promise.resolve() };
    this.#threads.push(thread);
    thread.begun = new Promise<void>((begun) => {
      const settle = (failure?: string): void => {
        worker.unref?.();
        thread.works = failure === undefined;
        if (failure) console.warn(`pyonnx-wasm: a thread failed, ${this.threads} are left: ${failure}`);
        begun();
      };
      worker.onmessage = ({ data }: MessageEvent<Said>) => {
        if (data === "joined") settle();
      };
      worker.onerror = (event) => {
        event.preventDefault();
        settle(event.message);
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
    const address = fits ? this.call(() => this.exports.pwx_alloc(Math.max(bytes, 1))) : 0;
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

  /** Writes addresses one after the other, as the core reads them. */
  writeAddresses(at: number, addresses: readonly number[]): void {
    const view = this.view(at, this.addressBytes * addresses.length);
    for (const [i, address] of addresses.entries())
      if (this.wide) view.setBigUint64(8 * i, BigInt(address), true);
      else view.setUint32(4 * i, address, true);
  }

  /** A copy in memory of its own, as TextDecoder and transfers want it, or in memory of that many bytes. */
  copy(address: number, bytes: number, into?: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const from = this.bytes.subarray(address, address + bytes);
    if (!into) return new Uint8Array(from);
    into.set(from);
    return into;
  }

  text(address: number, most: number): string {
    const bytes = this.copy(address, most);
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  }
}

/** Results and arguments of the core's functions: p is an address or a size of memory, anything else stays as it is. */
const SIGNATURES = {
  pwx_alloc: "p p",
  pwx_free: "_ p",
  pwx_pool_create: "p i",
  pwx_pool_destroy: "_ p",
  pwx_create: "p plpplpp",
  pwx_bind: "i pppp",
  pwx_evaluate: "i pppplp",
  pwx_evaluate_stage: "i pippplp",
  pwx_part: "p pi",
  pwx_run_step: "i pipp",
  pwx_operations: "l p",
  pwx_output_dims: "p p",
  pwx_arena_bytes: "l p",
  pwx_run: "i pppp",
  pwx_run_steps: "i pppiip",
  pwx_limit: "_ pll",
  pwx_slice: "_ pl",
  pwx_asked: "p p",
  pwx_answer: "p pipp",
  pwx_seed: "_ pl",
  pwx_step_count: "i p",
  pwx_destroy: "_ p",
} satisfies Record<Exclude<keyof CoreExports, "pwx_version" | "pwx_build" | "__tls_size" | "__tls_align">, string>;

/** The exports on addresses that are numbers: those of 32 bits come as signed integers, those of 64 bits as bigints. */
function narrowed(exports: WebAssembly.Exports, wide: boolean): CoreExports {
  type Call = (...args: Address[]) => Address;
  const plain: Record<string, unknown> = { ...exports };
  for (const [name, signature] of Object.entries(SIGNATURES)) {
    const call = exports[name] as Call;
    const gives = signature.startsWith("p");
    const takes = [...signature.slice(2)].map((kind) => kind === "p");
    if (wide)
      plain[name] = (...args: Address[]) => {
        const result = call(...args.map((arg, i) => (takes[i] ? BigInt(arg) : arg)));
        return gives ? Number(result) : result;
      };
    else if (gives) plain[name] = (...args: Address[]) => (call(...args) as number) >>> 0;
  }
  return plain as unknown as CoreExports;
}

function newMemory(wide: boolean): { memory: WebAssembly.Memory; pages: number } {
  for (let pages = wide ? MAX_WIDE_PAGES : MAX_PAGES; ; pages = Math.floor(pages / 2)) {
    try {
      const limits = wide
        ? { address: "i64", initial: BigInt(INITIAL_PAGES), maximum: BigInt(pages) }
        : { initial: INITIAL_PAGES, maximum: pages };
      const memory = new WebAssembly.Memory({ ...(limits as WebAssembly.MemoryDescriptor), shared: true });
      return { memory, pages };
    } catch (error) {
      // A shared memory reserves its maximum; small devices refuse large reservations.
      if (pages <= 4096) throw new Error(`the browser gives no WebAssembly memory: ${messageOf(error)}`);
    }
  }
}
