/** The compiler as JavaScript, translated from its Python. What it cannot do is left to Python itself. */
import type { Done, How, Job, Told } from "./compiler.js";
import { messageOf } from "./errors.js";
import { coreAddresses, fetchFirst } from "./module.js";

interface Script {
  compile(files: Job["files"], options: How & { tell(share: number): void }): readonly Uint8Array<ArrayBuffer>[];
  /** Thrown where the compiler reads bytes that are not at hand. */
  readonly NeedsBytes: new () => Error & { readonly path: string; readonly start: number; readonly end: number };
  /** Thrown where constants have to be computed: then it is to be given the core. */
  readonly NeedsCore: new () => Error;
  useCore(module: WebAssembly.Module): void;
  /** Thrown where the model is at fault. */
  readonly Refused: new () => Error;
}

/** Python's errors that no operator expects of a model: the fault may be the translation's. */
const DOUBTFUL = /\b(Type|Attribute|Key|Index|Name|NotImplemented|Import|Runtime|Recursion|Memory|Unicode\w*)Error: /;

/** Where the script says that it was imported already, as it has to be in service workers. */
const KNOWN = Symbol.for("pyonnx-wasm compiler");

/** Service workers have no import(). */
class Missing extends Error {
  override message = 'a service worker imports the compiler beforehand: import "pyonnx-wasm/compiler.mjs"';
}

const loading = new Map<string, Promise<Script>>();

function load(script: string): Promise<Script> {
  const known = (globalThis as { [KNOWN]?: Script })[KNOWN];
  if (known) return Promise.resolve(known);
  if ("ServiceWorkerGlobalScope" in globalThis) return Promise.reject(new Missing());
  let loaded = loading.get(script);
  if (!loaded) {
    loaded = import(/* webpackIgnore: true */ /* @vite-ignore */ script) as Promise<Script>;
    loading.set(script, loaded);
    loaded.catch(() => loading.delete(script));
  }
  return loaded;
}

/** Begins to load the compiler. */
export function prepare(script: string): void {
  load(script).catch(() => {});
}

/** Compiles a model; undefined where Python has to. */
export async function translated(
  { name, files, script, how }: Job,
  tell: (share: number) => void,
  loads: () => void,
): Promise<Exclude<Told, { phase: unknown }> | undefined> {
  let here: Script | undefined;
  try {
    loads();
    here = await load(script);
    const options = { ...how, tell };
    try {
      return done(here.compile(files, options));
    } catch (error) {
      if (!(error instanceof here.NeedsCore)) throw error;
      here.useCore(await fetchFirst(coreAddresses({})));
      return done(here.compile(files, options));
    }
  } catch (error) {
    if (here && error instanceof here.NeedsBytes) {
      const { path, start, end } = error;
      return { needs: [{ file: files.findIndex((file) => file.path === path), start, end }] };
    }
    if (here && error instanceof here.Refused && !DOUBTFUL.test(error.message)) {
      return { refused: `${name}: ${error.message}` };
    }
    if (error instanceof Missing) return { refused: `${name}: ${error.message}` };
    console.warn(`pyonnx-wasm: ${name}: ${messageOf(error)}; Pyodide compiles it`);
    return undefined;
  }
}

function done(parts: readonly Uint8Array<ArrayBuffer>[]): Done {
  const model = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    model.set(part, at);
    at += part.length;
  }
  return { model };
}
