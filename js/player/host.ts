/** Where engines live: one per page, core and thread count, in a worker or in place. */
import type { Answers, Asked } from "./asked.js";
import type { Said, ThreadLike, ThreadStart } from "./core.js";
import type { WasmEnv } from "./env.js";
import type { Tensor } from "./tensor.js";
import { CoreLost, messageOf } from "./errors.js";
import { Copies } from "./copies.js";
import type { Feed, Output } from "./feed.js";
import { compileCore, compileWideCore, folderOf } from "./module.js";
import type { Progress, StepTime } from "./types.js";
import { files } from "./files.js";
import { LocalHost } from "./inplace.js";
import type { Loaded, Target } from "./engine.mjs";
import { KnownPlaces } from "./places.js";
import type { Inside, Remote, Reply, Request } from "./messages.js";
import { processors } from "./server.js";
import { absolute, open, servePort, type ModelSource, type Source } from "./source.js";
import { Spares } from "./spares.js";
import type { Arrived } from "./staged.js";
import { startThread } from "./thread.js";
import { NoWorker, startWorker, unref, type WorkerLike } from "./workers.js";

export interface External {
  readonly path: string;
  readonly data: ModelSource | Source;
}

/** Does what a run asks of the host. */
export type Answer = (asked: Asked) => Promise<Answers>;

/** What a session asks of its engine. Calls are served in the order in which they are made. */
export interface Host {
  load(
    source: ModelSource,
    external: readonly External[],
    target: Target,
    onProgress: (p: Progress) => void,
    answer: Answer,
  ): Promise<Loaded>;
  /**
   * Takes a snapshot of the feeds before it returns. Outputs in `keep` stay on the GPU. A run ends early where the signal says so; with
   * its engine where it is in a module of the file's own, of which nobody knows when it ends.
   */
  run(
    session: number,
    feeds: readonly Feed[],
    wanted: readonly number[],
    keep: readonly number[],
    signal?: AbortSignal,
  ): Promise<Output[]>;
  /** The bytes of a tensor that stayed on the GPU. */
  download(tensor: number): Promise<Uint8Array<ArrayBuffer>>;
  dispose(tensor: number): void;
  /** The buffer of a tensor that stayed on the GPU, where the engine runs here. */
  bufferOf(tensor: number): Tensor.GpuBufferType | undefined;
  profile(session: number, feeds: readonly Feed[]): Promise<StepTime[]>;
  release(session: number): Promise<void>;
  memoryBytes(): Promise<number>;
  /** Reads a file of so many bytes into the engine before it is compiled. */
  stage(source: Source, bytes: number): Promise<Arrived>;
  staged(id: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  unstage(id: number): void;
  stop(): void;
  readonly lost: boolean;
  /** The engine that its tensors live in. */
  readonly home: unknown;
  /** Whether the engine runs here: it then reads buffers of the page's device. */
  readonly inPlace: boolean;
}

interface Shared {
  readonly module: Promise<WebAssembly.Module>;
  readonly threads: number;
  readonly worker: boolean;
  readonly host: Promise<Host>;
  users: number;
  linger: ReturnType<typeof setTimeout> | undefined;
}

// WebAssembly memory never shrinks: an engine without sessions is stopped, which gives all of it back.
const LINGER_MS = 1000;
const shared = new Set<Shared>();

/** The engine for these settings, started if need be, and how to give it back. A new one begins to fetch `first` while it starts. */
export async function acquireHost(
  wasm: WasmEnv,
  inWorker: boolean,
  first: ModelSource,
): Promise<{ host: Host; giveBack: () => void }> {
  const worker = inWorker;
  const threads = threadCount(wasm);
  const module = compileCore(wasm);
  const fits = (s: Shared): boolean => s.module === module && s.threads === threads && s.worker === worker;
  let entry = [...shared].find(fits);
  if (entry && (await entry.host).lost) {
    shared.delete(entry);
    entry = [...shared].find(fits);
  }
  if (!entry) {
    const host = worker ? startInWorker(module, wasm, first) : startInPlace(module, wasm);
    entry = { module, threads, worker, host, users: 0, linger: undefined };
    shared.add(entry);
  }
  const mine = entry;
  mine.users++;
  clearTimeout(mine.linger);
  const giveBack = (): void => {
    if (--mine.users > 0) return;
    mine.linger = setTimeout(() => {
      shared.delete(mine);
      void mine.host.then((host) => host.stop());
    }, LINGER_MS);
    unref(mine.linger);
  };
  try {
    return { host: await inTime(mine.host, wasm.initTimeout), giveBack };
  } catch (error) {
    shared.delete(mine);
    throw error;
  }
}

async function inTime(host: Promise<Host>, milliseconds = 0): Promise<Host> {
  if (milliseconds <= 0) return host;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new Error(`the core did not start within env.wasm.initTimeout, ${milliseconds} ms`);
    timer = setTimeout(reject, milliseconds, error);
  });
  try {
    return await Promise.race([host, late]);
  } finally {
    clearTimeout(timer);
  }
}

function threadCount({ numThreads }: WasmEnv): number {
  if (numThreads === undefined || numThreads === 0) return Math.min(4, Math.ceil(processors() / 2));
  if (!Number.isInteger(numThreads) || numThreads < 0 || numThreads > 64)
    throw new RangeError(`env.wasm.numThreads must be an integer from 0 (automatic) to 64, not ${numThreads}`);
  return numThreads;
}

async function startInPlace(module: Promise<WebAssembly.Module>, wasm: WasmEnv): Promise<Host> {
  const [{ Engine }, compiled] = await Promise.all([engineModule(), module]);
  const threads = { count: threadCount(wasm), start: (start: ThreadStart) => startThread(files.worker, start) };
  const widen = async () => ({ module: await compileWideCore(wasm), threads });
  return new LocalHost(await Engine.start(compiled, threads, widen));
}

async function engineModule(): Promise<typeof import("./engine.mjs")> {
  try {
    return await import("./engine.mjs");
  } catch (error) {
    // Service workers have no import().
    if (!("ServiceWorkerGlobalScope" in globalThis)) throw error;
    throw new Error('a service worker needs the player in one piece: import "pyonnx-wasm/all" (all.mjs)');
  }
}

/** The scripts lie beside this module, as a rule; where a bundler left them behind, `wasmPaths` may say where they are. */
async function startInWorker(module: Promise<WebAssembly.Module>, wasm: WasmEnv, first: ModelSource): Promise<Host> {
  const threads = threadCount(wasm);
  const folder = folderOf(wasm);
  const places = [files, ...(folder ? [{ worker: `${folder}worker.mjs`, gpu: `${folder}gpu.mjs` }] : [])];
  let why = "";
  for (const scripts of places) {
    try {
      return await WorkerHost.start(module, threads, scripts, first, () => compileWideCore(wasm));
    } catch (error) {
      if (!(error instanceof NoWorker)) throw error;
      why = error.message;
    }
  }
  console.warn(`pyonnx-wasm: running in place, which blocks this thread meanwhile: ${why}`);
  return startInPlace(module, wasm);
}

interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
  onProgress?: ((progress: Progress) => void) | undefined;
}

class WorkerHost implements Host {
  readonly home = this;
  readonly inPlace = false;
  readonly #pending = new Map<number, Pending>();
  /** By the request that loaded a session; kept until it is released. */
  readonly #answers = new Map<number, Answer>();
  readonly #loads = new Map<number, number>();
  /** The runs that were asked for, in the order in which they are made. */
  readonly #runs = new Map<number, AbortSignal | undefined>();
  #next = 1;
  #loss: Error | undefined;
  #inside: Inside | undefined;
  readonly #threads = new Map<number, ThreadLike>();
  readonly #copies = new Copies();
  readonly #disposed: number[] = [];
  readonly #places = new KnownPlaces();
  readonly #spares = new Spares();
  #alarmed: ReturnType<typeof setTimeout> | undefined;

  private constructor(
    readonly worker: WorkerLike,
    /** The address of its script, which is its threads' too. */
    readonly script: string,
    readonly wide: () => Promise<WebAssembly.Module>,
  ) {
    worker.onmessage = ({ data }: MessageEvent<Reply>) => this.#receive(data);
    worker.onerror = (event) => {
      event.preventDefault();
      this.#lose(new NoWorker(event.message || "the worker's script failed to load"));
    };
  }

  get lost(): boolean {
    return this.#loss !== undefined;
  }

  /** The worker's script and the first model load while the core compiles. */
  static async start(
    module: Promise<WebAssembly.Module>,
    threads: number,
    { worker: script, gpu }: Pick<typeof files, "worker" | "gpu">,
    first: ModelSource,
    wide: () => Promise<WebAssembly.Module>,
  ): Promise<Host> {
    const worker = startWorker(script, "pyonnx-wasm");
    const host = new WorkerHost(worker, script, wide);
    if (isAddress(first)) worker.postMessage({ op: "open", name: absolute(first), id: 0 }, []);
    try {
      await host.#call({ op: "start", module: await module, threads, gpu });
    } catch (error) {
      worker.terminate();
      throw (error as Error).name === "DataCloneError" ? new NoWorker((error as Error).message) : error;
    }
    return host;
  }

  /** The worker needs the core with 64-bit addresses. */
  async #widen(): Promise<void> {
    try {
      this.#tell({ op: "core64", module: await this.wide() });
    } catch (error) {
      this.#tell({ op: "core64", error: messageOf(error) });
    }
  }

  /** The worker needs a thread, or no more. One that dies says so here: the engine, which waits for it for ever, hears nothing. */
  #thread(number: number, start: ThreadStart | undefined): void {
    if (this.#loss) return;
    if (!start) {
      this.#threads.get(number)?.terminate();
      this.#threads.delete(number);
      return;
    }
    const joined = (error?: string): void => {
      this.#threads.get(number)?.unref?.();
      this.#tell({ op: "joined", thread: number, error });
    };
    try {
      const thread = startThread(this.script, start);
      this.#threads.set(number, thread);
      thread.onmessage = ({ data }: MessageEvent<Said>) => {
        if (data === "joined") joined();
        else this.#lose(new CoreLost(`a thread of the core failed: ${data.trap}; create the session again`));
      };
      thread.onerror = ({ message }) => joined(message);
    } catch (error) {
      joined(messageOf(error));
    }
  }

  /** A message that no answer comes to. */
  #tell(request: Request): void {
    if (!this.#loss) this.worker.postMessage({ ...request, id: 0 }, []);
  }

  async load(
    source: ModelSource,
    external: readonly External[],
    target: Target,
    onProgress: (p: Progress) => void,
    answer: Answer,
  ): Promise<Loaded> {
    const remotes = await Promise.all(external.map(async ({ path, data }) => ({ path, ...(await remoteOf(data)) })));
    const request: Request = { op: "load", source: await remoteOf(source), external: remotes, target };
    const ports = [request.source, ...remotes].flatMap(({ port }) => (port ? [port] : []));
    const load = this.#next;
    this.#answers.set(load, answer);
    try {
      const loaded = (await this.#call(request, ports, onProgress)) as Loaded;
      this.#loads.set(loaded.id, load);
      if (loaded.backend === "wasm") this.#spares.serve(loaded.id);
      return loaded;
    } catch (error) {
      this.#answers.delete(load);
      throw error;
    }
  }

  async run(
    session: number,
    feeds: readonly Feed[],
    wanted: readonly number[],
    keep: readonly number[],
    signal?: AbortSignal,
  ): Promise<Output[]> {
    const { feeds: given, asks } = this.#given(session, feeds);
    const call = this.#next;
    const giveUp = (): void => this.#giveUp(call);
    this.#runs.set(call, signal);
    signal?.addEventListener("abort", giveUp);
    try {
      const spares = this.#spares.take(session);
      const request: Request = { op: "run", session, feeds: given, wanted, keep, asks, spares };
      const answered = this.#call(request, [...buffers(given), ...spares]) as Promise<Output[]>;
      this.#spares.make();
      const outputs = await answered;
      this.#spares.learn(session, outputs);
      return outputs;
    } catch (error) {
      this.#places.forget(session);
      this.#spares.forget();
      throw error;
    } finally {
      this.#runs.delete(call);
      signal?.removeEventListener("abort", giveUp);
    }
  }

  /** A snapshot of the feeds: in the core's memory, where it is shared and nothing else may be at work there, else in copies. */
  #given(session: number, feeds: readonly Feed[]): { feeds: readonly Feed[]; asks: boolean } {
    const written = this.#pending.size ? undefined : this.#places.write(session, feeds);
    if (written) return { feeds: written, asks: false };
    this.#places.forget(session);
    return { feeds: this.#copies.of(feeds), asks: true };
  }

  #giveUp(call: number): void {
    const [first] = this.#runs.keys();
    if (this.#inside && call === first) this.#end("the run was terminated");
    else this.#tell({ op: "cancel", call });
  }

  async download(tensor: number): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.#call({ op: "download", tensor })) as Uint8Array<ArrayBuffer>;
  }

  /** A decoder's step gives up dozens: they go together, ahead of what is asked next. */
  dispose(tensor: number): void {
    if (!this.#disposed.length) queueMicrotask(() => this.#giveUpTensors());
    this.#disposed.push(tensor);
  }

  #giveUpTensors(): void {
    if (this.#disposed.length) this.#tell({ op: "dispose", tensors: this.#disposed.splice(0) });
  }

  bufferOf(): undefined {
    return undefined;
  }

  async profile(session: number, feeds: readonly Feed[]): Promise<StepTime[]> {
    const copies = this.#copies.of(feeds);
    try {
      return (await this.#call({ op: "profile", session, feeds: copies }, buffers(copies))) as StepTime[];
    } finally {
      this.#places.forget(session);
    }
  }

  async release(session: number): Promise<void> {
    this.#spares.release(session);
    await this.#call({ op: "release", session }).finally(() => this.#places.forget(session));
    this.#answers.delete(this.#loads.get(session) ?? 0);
    this.#loads.delete(session);
  }

  async memoryBytes(): Promise<number> {
    return (await this.#call({ op: "memory" })) as number;
  }

  async stage(source: Source, bytes: number): Promise<Arrived> {
    const remote = await remoteOf(source);
    return (await this.#call({ op: "stage", source: remote, bytes }, [remote.port!])) as Arrived;
  }

  async staged(id: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.#call({ op: "staged", staged: id, start, end })) as Uint8Array<ArrayBuffer>;
  }

  unstage(id: number): void {
    if (!this.lost) this.#call({ op: "unstage", staged: id }).catch(() => {});
  }

  stop(): void {
    this.#lose(new CoreLost("the engine was stopped"));
  }

  /** Ends the worker, which is the only way out of a module that does not end. */
  #end(why: string): void {
    this.#lose(new CoreLost(`${this.#inside?.node}: ${why}, and its engine with it; create the session again`));
  }

  /** A module of a file's own begins, or has ended. */
  #watch(inside: Inside | null): void {
    clearTimeout(this.#alarmed);
    this.#inside = inside ?? undefined;
    if (!inside) return;
    const [signal] = this.#runs.values();
    if (signal?.aborted) return this.#end("the run was terminated");
    const { ms } = inside;
    const why = `its WebAssembly takes more than ${ms} ms, the limit (maxOperations sets another); the run was ended`;
    this.#alarmed = setTimeout(() => this.#end(why), ms);
  }

  #call(request: Request, transfer: Transferable[] = [], onProgress?: (progress: Progress) => void): Promise<unknown> {
    if (this.#loss) return Promise.reject(this.#loss);
    this.#giveUpTensors();
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.worker.postMessage({ ...request, id }, transfer);
      this.#pending.set(id, { resolve, reject, onProgress });
      this.worker.ref?.();
    });
  }

  async #answer(id: number, { call, ...asked }: NonNullable<Reply["asked"]>): Promise<void> {
    try {
      const answers = await (this.#answers.get(id) as Answer)(asked);
      this.#tell({ op: "answer", call, answers });
    } catch (error) {
      this.#tell({ op: "answer", call, error: messageOf(error) });
    }
  }

  #receive({
    id,
    result,
    read,
    places,
    progress,
    asked,
    error,
    inside,
    wants,
    thread,
    name = "Error",
    lost,
  }: Reply): void {
    if (read) this.#copies.takeBack(read);
    if (places) this.#places.learn(places);
    if (wants) return void this.#widen();
    if (thread) return this.#thread(thread.number, thread.start);
    if (inside !== undefined) return this.#watch(inside);
    if (asked) return void this.#answer(id, asked);
    const pending = this.#pending.get(id);
    if (!pending) return;
    if (progress) {
      pending.onProgress?.(progress);
      return;
    }
    this.#pending.delete(id);
    if (!this.#pending.size) this.worker.unref?.();
    if (error === undefined) pending.resolve(result);
    else pending.reject(lost ? new CoreLost(error) : Object.assign(new Error(error), { name }));
    if (lost) this.#lose(new CoreLost(error));
  }

  #lose(error: Error): void {
    this.#loss ??= error;
    clearTimeout(this.#alarmed);
    this.worker.terminate();
    for (const thread of this.#threads.values()) thread.terminate();
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

function buffers(feeds: readonly Feed[]): Transferable[] {
  return feeds.flatMap(({ data, placed }) => (placed === undefined ? [data.buffer as ArrayBuffer] : []));
}

function isAddress(source: unknown): source is string | URL {
  return typeof source === "string" || source instanceof URL;
}

/** Addresses are fetched by the worker; other sources are read here and sent chunk by chunk. */
async function remoteOf(source: ModelSource | Source): Promise<Remote> {
  if (isAddress(source)) return { name: absolute(source) };
  const opened = await open(source);
  if (opened.staged !== undefined) return { name: opened.name, staged: opened.staged };
  const { port1, port2 } = new MessageChannel();
  servePort(opened, port1);
  return { name: opened.name, port: port2, ...(opened.url && { url: opened.url }) };
}
