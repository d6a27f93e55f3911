/** What sessions take and tell, as public types. */
import type * as ort from "onnxruntime-common";
import type { Answer, OperatorFunction } from "./callbacks.js";
import type { ModelSource } from "./source.js";

/** What runs a model. */
export type Backend = "wasm" | "webgpu";

/** What a page may want to know of the adapter. */
export interface AdapterInfo {
  readonly vendor: string;
  readonly architecture: string;
  readonly description: string;
  /** The processor plays GPU. */
  readonly isFallbackAdapter: boolean;
  readonly features: readonly string[];
}

/** On the way to a session. */
export interface Progress {
  readonly phase: "model" | "init" | "ready";
  /** Bytes read so far; never falls. */
  readonly loaded: number;
  /** Bytes of the model with all its files, as its header says; 0 until that is read. */
  readonly total: number;
}

/**
 * On the way to a compiled model, what is waited for: `"source"` bytes of the model, `"compiler"` its script, `"other"` a page that
 * compiles the same model, `"pyodide"` steps of starting it, `"compile"` percent of compiling.
 */
export interface CompileProgress {
  readonly phase: "source" | "compiler" | "other" | "pyodide" | "compile";
  readonly loaded: number;
  /** 0 while it is not known. */
  readonly total: number;
}

/** One step of a profile. */
export interface StepTime {
  /** The ONNX nodes that the step came from. */
  readonly name: string;
  readonly kernel: string;
  /** Where it ran: `"wasm"`, `"webgpu"`, or `"copy"` between them. */
  readonly backend: "wasm" | "webgpu" | "copy";
  /** When it began, in milliseconds from the first step. */
  readonly start: number;
  readonly ms: number;
  /** Bytes of its buffers, or those that were copied. */
  readonly bytes: number;
}

/** What a model says of itself. */
export interface ModelMetadata {
  /** The tool that wrote it, and its version. */
  readonly producer: string;
  readonly graph: string;
  readonly domain: string;
  readonly description: string;
  readonly version: number;
  readonly custom: Readonly<Record<string, string>>;
}

export interface SessionOptions extends Omit<ort.InferenceSession.SessionOptions, "externalData"> {
  /** Backends in order of preference, `"webgpu"` and `"wasm"` (or `"cpu"`); default: wasm. The session says which one runs, and why. */
  executionProviders?: readonly ort.InferenceSession.ExecutionProviderConfig[];
  /** Fixed sizes of symbolic dims; feeds of other sizes are refused. Names that the model does not have are passed over. */
  freeDimensionOverrides?: Readonly<Record<string, number>>;
  /** Files that a thin model's weights come from; a string is both path and address. */
  externalData?: readonly (string | { readonly path: string; readonly data: ModelSource })[];
  /** `"cpu"` (default), or on webgpu `"gpu-buffer"`, for all outputs or by name: such tensors can be fed to the next run as they are. */
  preferredOutputLocation?: ort.Tensor.DataLocation | Readonly<Record<string, ort.Tensor.DataLocation>>;
  /** `false` runs in place, as `env.worker = false` does for all sessions. */
  worker?: boolean;
  /** What runs operators of one's own in this session, before what `registerOperator` gave, by "domain.Name". */
  operators?: Readonly<Record<string, OperatorFunction>>;
  /** Does what no function is registered for. @internal */
  otherwise?: Answer;
  /** Where random numbers begin: sessions of one seed draw the same ones, on every backend. Without it nobody knows. */
  seed?: number;
  /** Bytes of intermediate tensors, scratch and outputs that a run may take on the core. More is an error that names the step. */
  maxMemory?: number;
  /**
   * Elementary operations that a run may take on the core, those of loops and branches included; likewise. A call of a module of the
   * file's own is timed, at 2^19 a millisecond; without a limit it may take 4 seconds, and 8 ms for each KB of its inputs and outputs.
   */
  maxOperations?: number;
  /** Called while the model loads. */
  onProgress?: (progress: Progress | CompileProgress) => void;
}
