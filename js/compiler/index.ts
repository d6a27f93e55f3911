/** Compiles ONNX models: the compiler's own sources, translated. */
/// <reference path="./generated.d.ts" />
import { modules, shaders } from "compiler-modules";
import { importModule, install } from "./modules.js";
import { NeedsCore, useCore } from "./fold.js";
import { LIBRARIES } from "./libraries.js";
import { files, normal, texts } from "./system.js";
import { dictof } from "./builtins.js";
import { callk } from "./calls.js";
import { sha256 } from "./hashes.js";
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
  install(modules as Any);
}

export interface Source {
  readonly path: string;
  readonly bytes: Uint8Array;
}

export interface Options {
  readonly optimise: boolean;
  /** Of inputs without a declared rank. */
  readonly shapes?: Readonly<Record<string, readonly (number | string)[]>> | undefined;
  /** By the names of axes. */
  readonly sizes?: Readonly<Record<string, number>> | undefined;
  /** SHA-256 of the model, in hexadecimal digits. */
  readonly sha256: string;
  readonly tell?: (share: number) => void;
}

/** A thin .ponnx file, in parts. Throws Refused where the model is at fault. */
export function compile(
  source: readonly Source[],
  { optimise, shapes, sizes, sha256: hash, tell }: Options,
): Uint8Array[] {
  start();
  for (const { path, bytes } of source) files.set(normal(path), bytes);
  const main = source[0] as Source;
  LIBRARIES.hashlib.$file_digest = () => ({ $hexdigest: () => hash });
  try {
    const { $compile } = importModule("pyonnx_wasm.compiler");
    const progress = (_phase: string, share: Any): null => {
      tell?.(Number(share));
      return null;
    };
    const compiled = callk($compile, [main.path], {
      gpu: true,
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

/** SHA-256 in hexadecimal digits, where the page has no other way. */
export function hashOf(bytes: Uint8Array): string {
  return Array.from(sha256(bytes), (b) => b.toString(16).padStart(2, "0")).join("");
}

export { NeedsCore, useCore };
