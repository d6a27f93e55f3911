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

/** The device that models run on with the backend `"webgpu"`. Sessions with the same settings share one. */
export interface WebgpuEnv {
  powerPreference?: "low-power" | "high-performance" | undefined;
  /** Ask for the browser's own software adapter. */
  forceFallbackAdapter?: boolean | undefined;
  /** Limits to keep to, by WebGPU's names: `{ maxStorageBufferBindingSize: 2 ** 27 }` shows how a model does on a smaller GPU. */
  limits?: Readonly<Record<string, number>> | undefined;
  /** The device of sessions that run in the page (`worker: false`) with these settings; a worker's device stays there. */
  readonly device: Promise<GPUDevice>;
}

export interface Env {
  logLevel: "verbose" | "info" | "warning" | "error" | "fatal";
  debug: boolean;
  wasm: WasmEnv;
  webgpu: WebgpuEnv;
  pyodide: PyodideEnv;
  readonly versions: Record<string, string>;
}

const webgpu: WebgpuEnv = {
  get device() {
    return import("./gpu.mjs").then(({ Gpu }) => Gpu.open(this)).then(({ device }) => device);
  },
};

/** Settings, read when a session is created. */
export const env: Env = { logLevel: "warning", debug: false, wasm: {}, webgpu, pyodide: {}, versions: {} };
