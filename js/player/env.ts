export interface WasmEnv {
  /** Threads in a cross-origin isolated context; otherwise one thread runs. Default: half the cores, at most 4. */
  numThreads?: number | undefined;
  /** Folder (or exact address) of the core, if it is not beside this module. */
  wasmPaths?: string | { wasm?: string | URL } | undefined;
  /** The core's bytes, instead of fetching them. */
  wasmBinary?: ArrayBuffer | Uint8Array | undefined;
  /** Run in a worker (default), so that the page never blocks; `false` runs in place. */
  proxy?: boolean | undefined;
  /** `false` or `"fixed"` keeps to the core without relaxed SIMD. */
  simd?: boolean | "fixed" | "relaxed" | undefined;
}

/** Where ONNX models are compiled that were not compiled beforehand. */
export interface PyodideEnv {
  /** Folder of a Pyodide distribution with numpy. Default: the version that is tested, from jsDelivr. */
  indexURL?: string | undefined;
  /** Address of the Python package's wheel, if it is not beside this module. */
  wheelURL?: string | URL | undefined;
}

export interface Env {
  logLevel: "verbose" | "info" | "warning" | "error" | "fatal";
  debug: boolean;
  wasm: WasmEnv;
  webgpu: Record<string, unknown>;
  pyodide: PyodideEnv;
  readonly versions: Record<string, string>;
}

/** Settings, read when a session is created. */
export const env: Env = { logLevel: "warning", debug: false, wasm: {}, webgpu: {}, pyodide: {}, versions: {} };
