/**
 * Compiles ONNX models in the page, in a worker, once per model. The result is kept in the browser's store, where there is one; it
 * holds no weights, they stay in the model. Loaded only when a model needs it.
 */
import type { Done, How, Job, Told } from "./compiler.js";
import type { PyodideEnv } from "./env.js";
import { messageOf } from "./errors.js";
import type { External } from "./host.js";
import type { First } from "./messages.js";
import { files as own } from "./files.js";
import { absolute, open, readAll, type ModelSource } from "./source.js";
import { sha256, Store } from "./store.js";
import type { CompileProgress } from "./types.js";
import { pendingOf, type Pending } from "./variants.js";
import { startWorker, unref, type WorkerLike } from "./workers.js";

export { serve } from "./compiler.js";
export { Variants } from "./variants.js";

declare const VERSION: string;
declare const CORE: string;

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
  /** The same files, compiled for what is known of the inputs. */
  given(known: Pick<How, "shapes" | "sizes">): Promise<Compiled>;
}

interface File {
  readonly path: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.3/full/";
const LINGER_MS = 10_000;
const SOURCE = "source.onnx";

/**
 * Compiles a model, or takes what was compiled before.
 *
 * Rejects with an error that says what the compiler has against the model, or what could not be fetched.
 */
export async function compiled(
  source: ModelSource,
  external: readonly External[],
  env: CompileEnv,
  onProgress: (progress: CompileProgress) => void,
): Promise<Compiled> {
  const opened = await open(source);
  const main: File = {
    path: SOURCE,
    bytes: await readAll(opened, (loaded) => onProgress({ phase: "source", loaded, total: 0 })),
  };
  const others = external.map(async ({ path, data }) => ({ path, bytes: await readAll(await open(data)) }));
  const files = [main, ...(await Promise.all(others))];
  return compiledFiles(opened.name, files, env, onProgress);
}

async function compiledFiles(
  name: string,
  files: readonly File[],
  env: CompileEnv,
  onProgress: (progress: CompileProgress) => void,
): Promise<Compiled> {
  // Without a secure context there are neither hashes nor caches.
  const store = await Store.open().catch(() => undefined);
  const key = store ? await keyOf(files, env) : "";
  const loadable = (model: Uint8Array, from: readonly File[], renew: Compiled["renew"]): Compiled => ({
    model,
    // A compiled file names those that its weights are in without their folders.
    external: from.map(({ path, bytes }) => ({ path: path.split("/").pop() ?? path, data: bytes })),
    pending: pendingOf(model),
    renew,
    given: (known) => compiledFiles(name, from, { ...env, ...known }, onProgress),
  });
  const anew = async (): Promise<Compiled> => {
    const done = await compileInWorker(name, files, env, onProgress);
    await store?.keep(key, new Blob([done.model])).catch((error: unknown) => {
      console.warn(`pyonnx-wasm: the compiled model is not kept for the next time: ${messageOf(error)}`);
    });
    return loadable(done.model, done.files, async () => undefined);
  };
  const kept = await store?.find(key).catch(() => undefined);
  return kept ? loadable(kept, files, anew) : anew();
}

/** All that decides what comes out, as a key of the store. */
async function keyOf(files: readonly File[], env: CompileEnv): Promise<string> {
  const parts = await Promise.all(files.map(async ({ path, bytes }) => [path, await sha256(bytes)]));
  const decides = [VERSION, CORE, placesOf(env), howOf(env), parts];
  return `compiled/${await sha256(new TextEncoder().encode(JSON.stringify(decides)))}`;
}

const howOf = ({ optimise, shapes, sizes }: CompileEnv): How => ({ optimise, shapes, sizes });

function placesOf({ indexURL = PYODIDE, wheelURL }: CompileEnv): { index: string; wheel: string } {
  const folder = absolute(indexURL);
  return { index: folder.endsWith("/") ? folder : `${folder}/`, wheel: wheelURL ? absolute(wheelURL) : own.wheel };
}

interface Compiler {
  readonly worker: WorkerLike;
  /** Serves one model after the other. */
  queue: Promise<unknown>;
  users: number;
  linger: ReturnType<typeof setTimeout> | undefined;
}

const compilers = new Map<string, Compiler>();

/** Runs the compiler. The files travel to the worker and back. */
async function compileInWorker(
  name: string,
  files: readonly File[],
  env: CompileEnv,
  onProgress: (progress: CompileProgress) => void,
): Promise<Done> {
  const { index, wheel } = placesOf(env);
  const key = JSON.stringify([index, wheel]);
  const compiler = compilers.get(key) ?? { worker: start(), queue: Promise.resolve(), users: 0, linger: undefined };
  compilers.set(key, compiler);
  clearTimeout(compiler.linger);
  compiler.users++;
  const drop = (): void => {
    compiler.worker.terminate();
    if (compilers.get(key) === compiler) compilers.delete(key);
  };
  const turn = compiler.queue.then(() =>
    ask(compiler.worker, { name, files, script: own.compiler, index, wheel, how: howOf(env) }, onProgress),
  );
  compiler.queue = turn.catch(() => {});
  try {
    return await turn;
  } catch (error) {
    // What failed to load is not asked again from the same worker.
    if (!(error instanceof Refused)) drop();
    throw error;
  } finally {
    if (--compiler.users === 0) unref((compiler.linger = setTimeout(drop, LINGER_MS)));
  }
}

/** The compiler does not take the model; it can be given another. */
class Refused extends Error {
  override name = "CompileError";
}

function start(): WorkerLike {
  const worker = startWorker(own.worker, "pyonnx-wasm-compiler");
  worker.postMessage({ op: "serve", script: own.compile } satisfies First, []);
  worker.unref?.();
  return worker;
}

function ask(worker: WorkerLike, job: Job, onProgress: (progress: CompileProgress) => void): Promise<Done> {
  worker.ref?.();
  const done = new Promise<Done>((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<Told>) => {
      if ("phase" in data) onProgress(data);
      else if ("refused" in data) reject(new Refused(data.refused));
      else if ("error" in data) reject(new Error(data.error));
      else resolve(data);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      reject(new Error(`the compiler's worker failed: ${event.message || "its script cannot be loaded"}`));
    };
    worker.postMessage(
      job,
      job.files.map(({ bytes }) => bytes.buffer),
    );
  });
  return done.finally(() => worker.unref?.());
}
