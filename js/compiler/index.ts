/** Compiles ONNX models: the compiler's own sources, translated. */
/// <reference path="./generated.d.ts" />
import { modules, registered, shaders } from "compiler-modules";
import { importModule, install } from "./modules.js";
import { NeedsCore, useCore } from "./fold.js";
import { LIBRARIES } from "./libraries.js";
import { files, normal, texts } from "./system.js";
import { dictof } from "./builtins.js";
import { callk } from "./calls.js";
import { NeedsBytes, Sparse, type Piece } from "./sparse.js";
import { Foreign, OSError, ValueError, exception } from "./errors.js";
import type { Any } from "./values.js";
import "./runtime.js";

/** What the compiler has against a model. */
export class Refused extends Error {
  override name = "CompileError";
}

let installed = false;

function start(): void {
  if (installed) return;
  installed = true;
  for (const [name, text] of Object.entries(shaders as Record<string, string>))
    texts.set(`/kernels/wgsl/${name}`, text);
  install(modules as Any, registered);
}

/** A file: its size, and of its bytes those that are at hand. */
export interface Source {
  readonly path: string;
  readonly size: number;
  readonly pieces: readonly Piece[];
}

export interface Options {
  readonly optimise: boolean;
  /** Whether the model is lowered for GPUs as well. */
  readonly gpu?: boolean;
  /** Of inputs without a declared rank. */
  readonly shapes?: Readonly<Record<string, readonly (number | string)[]>> | undefined;
  /** By the names of axes. */
  readonly sizes?: Readonly<Record<string, number>> | undefined;
  /** SHA-256 of the model, in hexadecimal digits, where it is known. */
  readonly sha256?: string;
  readonly tell?: (share: number) => void;
}

/**
 * A thin .ponnx file, in parts. Throws Refused where the model is at fault, NeedsBytes where more of a file is to be at hand and
 * NeedsCore where there are constants to compute.
 */
export function compile(
  source: readonly Source[],
  { optimise, gpu = true, shapes, sizes, sha256 = "", tell }: Options,
): Uint8Array[] {
  start();
  for (const { path, size, pieces } of source) files.set(normal(path), new Sparse(path, size, pieces));
  const main = source[0] as Source;
  LIBRARIES.hashlib.$file_digest = () => ({ $hexdigest: () => sha256 });
  try {
    const { $compile } = importModule("pyonnx_wasm.compiler");
    const progress = (_phase: string, share: Any): null => {
      tell?.(Number(share));
      return null;
    };
    const compiled = callk($compile, [main.path], {
      gpu,
      optimise,
      progress,
      shapes: shapes ? dictof(Object.entries(shapes).map(([k, v]) => [k, [...v]])) : null,
      sizes: sizes ? dictof(Object.entries(sizes)) : null,
    });
    const { $layout } = importModule("pyonnx_wasm.program.file");
    const layout = callk($layout, [compiled], { thin: true });
    return [...layout.$read(0, layout.$nbytes)];
  } catch (error) {
    const found = exception(error);
    if (found instanceof Foreign) throw found.cause ?? error;
    const { $NeedsShape, $NeedsSizes } = importModule("pyonnx_wasm.ir");
    if (found instanceof $NeedsShape || found instanceof $NeedsSizes) return [pending(main.path, found)];
    const known = found instanceof ValueError || found instanceof OSError;
    const said = new Refused(
      `${known ? "" : `${found.constructor.typeName}: `}${found.$__str__().replace(`${main.path}: `, "")}`,
    );
    if (found.stack) said.stack = found.stack;
    throw said;
  } finally {
    files.clear();
  }
}

/** What has to be known of the inputs before there is a compiled model. */
function pending(path: string, need: Any): Uint8Array {
  try {
    return importModule("pyonnx_wasm.pending").$told(path, need);
  } catch (error) {
    const found = exception(error);
    throw found instanceof ValueError ? new Refused(found.$__str__()) : (found.cause ?? error);
  }
}

export { NeedsBytes, NeedsCore, useCore };

/** Where the player looks first, for where nothing can be imported later. */
Object.assign(globalThis, {
  [Symbol.for("pyonnx-wasm compiler")]: { compile, NeedsBytes, NeedsCore, Refused, useCore },
});
