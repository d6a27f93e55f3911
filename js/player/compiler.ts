/** The compiler, in its worker: as JavaScript, and where that does not do Python in Pyodide, from the project's wheel. */
import type { CompileProgress } from "./types.js";
import { messageOf } from "./errors.js";
import { addressPath } from "./server.js";
import { readAll, urlSource } from "./source.js";
import type { Piece } from "./structure.js";
import { prepare, translated } from "./translated.js";

export interface Job {
  /** For messages. */
  readonly name: string;
  /** The model, then its external data, with what is at hand of them. */
  readonly files: readonly { readonly path: string; readonly size: number; readonly pieces: readonly Piece[] }[];
  /** Address of the compiler as JavaScript. */
  readonly script: string;
  /** Addresses of Pyodide's folder and of the wheel. */
  readonly index: string;
  readonly wheel: string;
  readonly how: How;
}

/** What is told to the compiler beside the files. */
export interface How {
  /** Whether the fusing passes run. */
  readonly optimise: boolean;
  /** Whether the model is lowered for GPUs as well. */
  readonly gpu: boolean;
  /** Of inputs without a declared rank. */
  readonly shapes?: Readonly<Record<string, readonly (number | string)[]>> | undefined;
  /** By the names of axes. */
  readonly sizes?: Readonly<Record<string, number>> | undefined;
}

/** A thin .ponnx file; or, as JSON, what has to be known of the inputs before there is one. */
export interface Done {
  readonly model: Uint8Array<ArrayBuffer>;
}

/** Bytes of a file that have to be at hand before it can be compiled; then it is to be asked again. */
export interface Need {
  /** Which of the job's files. */
  readonly file: number;
  readonly start: number;
  readonly end: number;
}

export type Told =
  | CompileProgress
  | Done
  | { readonly needs: readonly Need[] }
  | { readonly refused: string }
  | { readonly error: string };

/** What the worker is told: a job, or that one will come. */
export type Asked = Job | Pick<Job, "script">;

interface Pyodide {
  loadPackage(names: string[], options: { messageCallback: () => void }): Promise<unknown>;
  unpackArchive(archive: ArrayBuffer, format: "wheel"): void;
  runPython(code: string): unknown;
  readonly globals: {
    get(name: string): (source: string, target: string, how: string, tell: (share: number) => void) => string;
  };
  readonly FS: {
    mkdirTree(path: string): void;
    writeFile(path: string, data: Uint8Array, options: { canOwn: boolean }): void;
    readFile(path: string): Uint8Array<ArrayBuffer>;
    unlink(path: string): void;
    analyzePath(path: string): { readonly exists: boolean };
  };
}

const FOLDER = "/model";
const CURE = "compile the model beforehand: pyonnx-wasm compile model.onnx";
const PYTHON = `
import json
import pyonnx_wasm
from pyonnx_wasm import ir, pending

def compile_model(source, target, how, tell):
    """Compiles a file; returns what is wrong with it, or nothing."""
    try:
        compiled = pyonnx_wasm.compile(source, progress=lambda phase, share: tell(share), **json.loads(how))
        pyonnx_wasm.save(compiled, target, thin=True)
    except (ir.NeedsShape, ir.NeedsSizes) as need:
        try:
            with open(target, "wb") as file:
                file.write(pending.told(source, need))
        except ir.IRError as error:
            return str(error)
    except MemoryError:
        return "the model does not fit into Pyodide's memory"
    except Exception as error:
        kind = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
        return kind + str(error).removeprefix(f"{source}: ") or type(error).__name__
    return ""
`;

let started: Promise<Pyodide> | undefined;

/** Serves one job after the other. */
export function serve(port: MessagePort): void {
  port.onmessage = async ({ data }: MessageEvent<Asked>) => {
    if (!("files" in data)) return prepare(data.script);
    const tell = (told: Told): void => port.postMessage(told, "model" in told ? [told.model.buffer] : []);
    try {
      tell(await compiledHere(data, tell));
    } catch (error) {
      tell({ error: `${data.name}: ${messageOf(error)}` });
    }
  };
}

/** Compiles a model in this thread. */
export async function compiledHere(job: Job, tell: (told: Told) => void): Promise<Exclude<Told, CompileProgress>> {
  const share = (done: number): void => tell({ phase: "compile", loaded: Math.round(done * 100), total: 100 });
  const told = await translated(job, share, () => tell({ phase: "compiler", loaded: 0, total: 0 }));
  if (told) return told;
  // Python reads whole files.
  const needs = job.files.flatMap(({ size, pieces }, file) =>
    size > (pieces[0]?.bytes.length ?? 0) ? [{ file, start: 0, end: size }] : [],
  );
  if (needs.length) return { needs };
  return compile(await (started ??= start(job, tell)), job, share);
}

async function start({ index, wheel }: Job, tell: (progress: CompileProgress) => void): Promise<Pyodide> {
  const step = (loaded: number): void => tell({ phase: "pyodide", loaded, total: 3 });
  step(0);
  const [python, archive] = await Promise.all([startPython(index, step), fetchWheel(wheel)]);
  python.unpackArchive(archive, "wheel");
  python.runPython(PYTHON);
  step(3);
  return python;
}

async function startPython(index: string, step: (loaded: number) => void): Promise<Pyodide> {
  try {
    const { loadPyodide } = (await import(/* webpackIgnore: true */ /* @vite-ignore */ `${index}pyodide.mjs`)) as {
      loadPyodide(options: { indexURL: string }): Promise<Pyodide>;
    };
    const python = await loadPyodide({ indexURL: addressPath(index) ?? index });
    step(1);
    await python.loadPackage(["numpy"], { messageCallback: () => {} });
    // Packages that cannot be fetched are only logged.
    python.runPython("import numpy");
    step(2);
    return python;
  } catch (error) {
    const fault = messageOf(error).trim().split("\n").pop();
    throw new Error(
      `this is an ONNX model, and Pyodide, which would compile it, does not load from ${index}: ${fault}; ` +
        `env.pyodide.indexURL says where it is${addressPath("file:///") ? " (outside of pages: the path of a folder of it, with numpy)" : ""}; or ${CURE}`,
    );
  }
}

async function fetchWheel(url: string): Promise<ArrayBuffer> {
  try {
    return (await readAll(await urlSource(url))).buffer;
  } catch (error) {
    throw new Error(`the compiler ${messageOf(error)}; env.pyodide.wheelURL says where it is; or ${CURE}`);
  }
}

function compile(
  python: Pyodide,
  { name, files, how }: Job,
  share: (done: number) => void,
): Done | { readonly refused: string } {
  const { FS } = python;
  const [source, target] = [`${FOLDER}/${files[0]?.path}`, "/compiled.ponnx"];
  const written: string[] = [];
  try {
    for (const { path, pieces } of files) {
      const bytes = pieces[0]?.bytes ?? new Uint8Array();
      const place = `${FOLDER}/${path}`;
      FS.mkdirTree(place.slice(0, place.lastIndexOf("/")));
      FS.writeFile(place, bytes, { canOwn: true });
      written.push(place);
    }
    const fault = python.globals.get("compile_model")(source, target, JSON.stringify(how), share);
    if (fault) return { refused: `${name}: ${fault}` };
    written.push(target);
    return { model: FS.readFile(target).slice() };
  } finally {
    for (const path of written) if (FS.analyzePath(path).exists) FS.unlink(path);
  }
}
