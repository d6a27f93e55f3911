/**
 * Compiles ONNX and GGUF models in the page, in a worker, once per model. The compiler is given the model's structure, hardly ever its
 * weights. The result is kept in the browser's store, where there is one; it holds no weights, they stay in the model. Loaded only when
 * a model needs it.
 */
import { compiledHere, type Asked, type Done, type How, type Job, type Need, type Told } from "./compiler.js";
import type { PyodideEnv } from "./env.js";
import { messageOf } from "./errors.js";
import type { External } from "./host.js";
import type { First } from "./messages.js";
import { files as own } from "./files.js";
import { ranged, remoteRanges, type Ranged, type Stage } from "./ranges.js";
import { absolute, asBytes, type ModelSource } from "./source.js";
import { sha256, Store } from "./store.js";
import { structureOf, type Piece } from "./structure.js";
import type { CompileProgress } from "./types.js";
import { pendingOf, type Pending } from "./variants.js";
import { NoWorker, startWorker, unref, type WorkerLike } from "./workers.js";

export { serve } from "./compiler.js";
export { Variants } from "./variants.js";

declare const COMPILER: string;

/** Where and how models are compiled. */
export interface CompileEnv extends PyodideEnv, How {}

/** What a session loads: the compiled model, and the files that its weights are in. */
export interface Compiled {
  readonly model: Uint8Array;
  readonly external: readonly External[];
  /** What has to be known of the inputs before there is a model. */
  readonly pending: Pending | undefined;
  /** Compiles again where this came from the cache; undefined where it did not. */
  renew(): Promise<Compiled | undefined>;
  /** Gives back what is held of the files. */
  forget(): void;
  /** The same files, compiled for what is known of the inputs. */
  given(known: Pick<How, "shapes" | "sizes">): Promise<Compiled>;
}

interface File {
  readonly path: string;
  readonly ranged: Ranged;
  /** All that decides what comes out, as a rule. */
  readonly structure: readonly Piece[];
}

type Progress = (progress: CompileProgress) => void;

const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.3/full/";
const LINGER_MS = 10_000;
/** Behind a model of so many bytes the compiler does not wait for another: its heap would lie beside the weights that arrive. */
const LARGE_BYTES = 2 ** 25;
const SOURCE = "source.onnx";
/** So long one page waits for another that compiles the same model. */
const PATIENCE_MS = 60_000;
/** After so many questions of the compiler it is given all. */
const MOST_QUESTIONS = 16;

/**
 * Compiles a model, or takes what was compiled before. With a `stage` the contents of its tensors go there while they arrive, not through
 * this thread's memory.
 *
 * Rejects with an error that says what the compiler has against the model, or what could not be fetched.
 */
export async function compiled(
  source: ModelSource,
  external: readonly External[],
  env: CompileEnv,
  onProgress: Progress,
  stage?: () => Promise<Stage>,
): Promise<Compiled> {
  // Without a secure context there are neither hashes nor caches.
  const store = await Store.open().catch(() => undefined);
  const known = await knownName(source, external);
  if (known !== undefined && !(await store?.find(known).catch(() => undefined))) compilerOf(env).prepare();
  const told = (loaded: number, total: number): void =>
    onProgress({ phase: "source", loaded, total: loaded > total ? 0 : total });
  told(0, 0);
  const read = async (where?: typeof stage): Promise<File[]> => {
    const main = await ranged(source, told, where);
    const others = external.map(async ({ path, data }) => ({
      path,
      ranged: await externalRanges(data as ModelSource),
      structure: [],
    }));
    return [{ path: SOURCE, ranged: main, structure: await structureOf(main) }, ...(await Promise.all(others))];
  };
  const files = await read(stage);
  const again = typeof source === "string" || source instanceof URL ? () => read() : undefined;
  const made = await new Compilation(files, env, onProgress, store, again).compiled().catch((error: unknown) => {
    for (const { ranged } of files) ranged.forget();
    throw error;
  });
  if (known && store) await store.keep(known, new Blob()).catch(() => {});
  return made;
}

/** External data is read where it lies: of what is in it the compiler needs little. */
async function externalRanges(data: ModelSource): Promise<Ranged> {
  const there = typeof data === "string" || data instanceof URL ? await remoteRanges(absolute(data)) : undefined;
  return there ?? ranged(data);
}

/**
 * Under what the store keeps that a model was compiled before: then, as for what is at hand at once (undefined), no compiler is started
 * while the model arrives. "" where that is not known.
 */
async function knownName(source: ModelSource, external: readonly External[]): Promise<string | undefined> {
  if (source instanceof Blob || asBytes(source)) return undefined;
  const url =
    source instanceof Response ? source.url : source instanceof ReadableStream ? "" : absolute(source as string);
  if (!url || !globalThis.crypto?.subtle) return "";
  return `known/${await hashOf([COMPILER, url, external.map(({ path }) => path)])}`;
}

const hashOf = (parts: unknown): Promise<string> => sha256(new TextEncoder().encode(JSON.stringify(parts)));

class Compilation {
  constructor(
    readonly files: readonly File[],
    readonly env: CompileEnv,
    readonly onProgress: Progress,
    readonly store: Store | undefined,
    /** Reads the files again, where that can be. */
    readonly again: (() => Promise<readonly File[]>) | undefined,
    /** Whether there will be more of the same files. */
    readonly several = false,
  ) {}

  async compiled(): Promise<Compiled> {
    const { store } = this;
    if (!store) return this.#loadable(await this.#compile([]), false);
    const key = await this.#key();
    const kept = await this.#find(store, key);
    return kept
      ? this.#loadable(kept, true)
      : this.#alone(key, async () => {
          const meanwhile = await this.#find(store, key);
          return meanwhile ? this.#loadable(meanwhile, true) : this.#anew(store, key);
        });
  }

  /** One page at a time compiles a model, the others then take what it kept. */
  async #alone<T>(key: string, compile: () => Promise<T>): Promise<T> {
    const locks = globalThis.navigator?.locks;
    if (!locks) return compile();
    const name = `pyonnx-wasm ${key}`;
    const here = await locks.request(name, { ifAvailable: true }, async (lock) => lock && { made: await compile() });
    if (here) return here.made;
    this.onProgress({ phase: "other", loaded: 0, total: 0 });
    const signal = AbortSignal.timeout(PATIENCE_MS);
    let begun = false;
    const turn = locks.request(name, { signal }, () => ((begun = true), compile()));
    return turn.catch((error: unknown) => {
      if (begun) throw error;
      return compile();
    });
  }

  async #anew(store: Store, key: string): Promise<Compiled> {
    const reads: Need[] = [];
    const model = await this.#compile(reads);
    const keep = async (at: string, content: BlobPart): Promise<void> => store.keep(at, new Blob([content]));
    const kept = reads.length
      ? Promise.all([keep(key, READS + JSON.stringify(reads)), keep(await this.#keyOf(key, reads), model)])
      : keep(key, model);
    await kept.catch((error: unknown) => {
      console.warn(`pyonnx-wasm: the compiled model is not kept for the next time: ${messageOf(error)}`);
    });
    return this.#loadable(model, false);
  }

  /** All that decides what comes out, as a key of the store. */
  async #key(): Promise<string> {
    const parts = this.files.map(async ({ path, ranged, structure }) => [
      path,
      ranged.size,
      await Promise.all(structure.map(async ({ at, bytes }) => [at, await sha256(bytes)])),
    ]);
    return `compiled/${await hashOf([COMPILER, placesOf(this.env), howOf(this.env), await Promise.all(parts)])}`;
  }

  /** Where the compiler read more than the structure: what it read decides as well. */
  async #keyOf(key: string, reads: readonly Need[]): Promise<string> {
    const parts = reads.map(async (need) => [need, await sha256(await this.#read(need))]);
    return `compiled/${await hashOf([key, await Promise.all(parts)])}`;
  }

  async #find(store: Store, key: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    try {
      const found = await store.find(key);
      const text = found && new TextDecoder().decode(found.subarray(0, READS.length));
      if (!found || text !== READS) return found;
      const reads = JSON.parse(new TextDecoder().decode(found.subarray(READS.length))) as Need[];
      return await store.find(await this.#keyOf(key, reads));
    } catch {
      return undefined;
    }
  }

  #read({ file, start, end }: Need): Promise<Uint8Array<ArrayBuffer>> {
    return this.files[file]!.ranged.read(start, end);
  }

  #loadable(model: Uint8Array, kept: boolean): Compiled {
    const { files, env, onProgress, store, again } = this;
    const pending = pendingOf(model);
    return {
      model,
      // A compiled file names those that its weights are in without their folders.
      external: pending
        ? []
        : files.map(({ path, ranged }) => ({
            path: path.split("/").pop() ?? path,
            data: ranged.source(!this.several),
          })),
      pending,
      forget: () => files.forEach(({ ranged }) => ranged.forget()),
      renew: async () => {
        if (!kept || !store) return undefined;
        const spent = files.some(({ ranged }) => ranged.spent);
        if (spent && !again) return undefined;
        const fresh = spent ? await again!() : files;
        const anew = new Compilation(fresh, env, onProgress, store, again, this.several);
        return anew.#anew(store, await anew.#key());
      },
      given: (known) => new Compilation(files, { ...env, ...known }, onProgress, store, again, true).compiled(),
    };
  }

  /** Tells in `reads` what the compiler read beside the files' structure. */
  async #compile(reads: Need[]): Promise<Uint8Array<ArrayBuffer>> {
    const compiler = compilerOf(this.env);
    const [{ ranged }] = this.files as [File];
    const files = this.files.map(({ path, ranged, structure }) => ({
      path,
      size: ranged.size,
      pieces: [...structure],
    }));
    const { index, wheel } = placesOf(this.env);
    const job: Job = { name: ranged.name, files, script: own.compiler, index, wheel, how: howOf(this.env) };
    for (;;) {
      const told = await compiler.compile(job, this.onProgress);
      if ("model" in told) return told.model;
      const all = files.map(({ size }, file): Need => ({ file, start: 0, end: size }));
      for (const need of reads.length < MOST_QUESTIONS ? told.needs : all) {
        reads.push(need);
        const piece = { at: need.start, bytes: await this.#read(need) };
        const { pieces, size } = files[need.file]!;
        if (piece.bytes.length === size) pieces.length = 0;
        pieces.push(piece);
      }
    }
  }
}

const READS = '{"reads"}';

const howOf = ({ optimise, gpu, shapes, sizes }: CompileEnv): How => ({ optimise, gpu, shapes, sizes });

function placesOf({ indexURL = PYODIDE, wheelURL }: CompileEnv): { index: string; wheel: string } {
  const folder = absolute(indexURL);
  return { index: folder.endsWith("/") ? folder : `${folder}/`, wheel: wheelURL ? absolute(wheelURL) : own.wheel };
}

type Answer = Done | { readonly needs: readonly Need[] };

/** The compiler does not take the model; it can be given another. */
class Refused extends Error {
  override name = "CompileError";
}

/** A worker that compiles one model after the other; where there are no workers, this thread. */
class Compiler {
  #worker: WorkerLike | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #users = 0;
  #linger: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly drop: () => void) {
    try {
      this.#worker = startWorker(own.worker, "pyonnx-wasm-compiler");
      this.#worker.postMessage({ op: "serve", script: own.compile } satisfies First, []);
      this.#worker.unref?.();
    } catch (error) {
      if (!(error instanceof NoWorker)) throw error;
    }
  }

  /** Begins to load what compiling takes. */
  prepare(): void {
    this.#worker?.postMessage({ script: own.compiler } satisfies Asked, []);
    this.#later();
  }

  async compile(job: Job, onProgress: Progress): Promise<Answer> {
    clearTimeout(this.#linger);
    this.#users++;
    const turn = this.#queue.then(() =>
      this.#worker ? this.#ask(this.#worker, job, onProgress) : here(job, onProgress),
    );
    this.#queue = turn.catch(() => {});
    try {
      return await turn;
    } catch (error) {
      // What failed to load is not asked again from the same worker.
      if (!(error instanceof Refused)) this.#end();
      throw error;
    } finally {
      this.#users--;
      if (!this.#users && job.files.some(({ size }) => size > LARGE_BYTES)) this.#end();
      else this.#later();
    }
  }

  #later(): void {
    clearTimeout(this.#linger);
    if (!this.#users) unref((this.#linger = setTimeout(() => this.#end(), LINGER_MS)));
  }

  #end(): void {
    this.drop();
    this.#worker?.terminate();
  }

  #ask(worker: WorkerLike, job: Job, onProgress: Progress): Promise<Answer> {
    worker.ref?.();
    const done = new Promise<Answer>((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<Told>) => settle(data, onProgress, resolve, reject);
      worker.onerror = (event) => {
        event.preventDefault();
        reject(new Error(`the compiler's worker failed: ${event.message || "its script cannot be loaded"}`));
      };
      worker.postMessage(job satisfies Asked, []);
    });
    return done.finally(() => worker.unref?.());
  }
}

function settle(
  told: Told,
  onProgress: Progress,
  resolve: (answer: Answer) => void,
  reject: (error: Error) => void,
): void {
  if ("phase" in told) onProgress(told);
  else if ("refused" in told) reject(new Refused(told.refused));
  else if ("error" in told) reject(new Error(told.error));
  else resolve(told);
}

function here(job: Job, onProgress: Progress): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const tell = (told: Told): void => settle(told, onProgress, resolve, reject);
    compiledHere(job, tell).then(tell, (error: unknown) => reject(new Error(`${job.name}: ${messageOf(error)}`)));
  });
}

const compilers = new Map<string, Compiler>();

function compilerOf(env: CompileEnv): Compiler {
  const key = JSON.stringify(placesOf(env));
  const compiler = compilers.get(key) ?? new Compiler(() => compilers.get(key) === compiler && compilers.delete(key));
  compilers.set(key, compiler);
  return compiler;
}
