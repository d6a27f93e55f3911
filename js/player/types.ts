/** What sessions tell, as public types. */

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

/** On the way to a compiled model: bytes of the source read, steps of starting Pyodide, percent of compiling. */
export interface CompileProgress {
  readonly phase: "source" | "pyodide" | "compile";
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
