/** The compiler as JavaScript, translated from its Python. What it cannot do is left to Python itself. */
import type { Done, How, Job, Told } from "./compiler.js";
import { messageOf } from "./errors.js";
import { coreAddresses, fetchCoreFrom } from "./module.js";
import { sha256 } from "./store.js";

interface Script {
  compile(
    files: Job["files"],
    options: How & { sha256: string; tell(share: number): void },
  ): readonly Uint8Array<ArrayBuffer>[];
  hashOf(bytes: Uint8Array): string;
  /** Thrown where constants have to be computed: then it is to be given the core. */
  readonly NeedsCore: new () => Error;
  useCore(module: WebAssembly.Module): void;
  /** Thrown where the model is at fault. */
  readonly Refused: new () => Error;
}

/** Python's errors that no operator expects of a model: the fault may be the translation's. */
const DOUBTFUL = /\b(Type|Attribute|Key|Index|Name|NotImplemented|Import|Runtime|Recursion|Memory|Unicode\w*)Error: /;

/** Compiles a model; undefined where Python has to. */
export async function translated(
  { name, files, script, how }: Job,
  tell: (share: number) => void,
): Promise<Told | undefined> {
  let here: Script | undefined;
  try {
    here = (await import(/* webpackIgnore: true */ /* @vite-ignore */ script)) as Script;
    const bytes = files[0]?.bytes ?? new Uint8Array();
    const hash = globalThis.crypto?.subtle ? await sha256(bytes) : here.hashOf(bytes);
    const options = { ...how, sha256: hash, tell };
    try {
      return done(here.compile(files, options), files);
    } catch (error) {
      if (!(error instanceof here.NeedsCore)) throw error;
      here.useCore(await fetchCoreFrom(coreAddresses({})));
      return done(here.compile(files, options), files);
    }
  } catch (error) {
    if (here && error instanceof here.Refused && !DOUBTFUL.test(error.message)) {
      return { refused: `${name}: ${error.message}` };
    }
    console.warn(`pyonnx-wasm: ${name}: ${messageOf(error)}; Pyodide compiles it`);
    return undefined;
  }
}

function done(parts: readonly Uint8Array<ArrayBuffer>[], files: Job["files"]): Done {
  const model = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    model.set(part, at);
    at += part.length;
  }
  return { model, files };
}
