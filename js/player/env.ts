/** Settings, under onnxruntime's names: read when a session is created. */
import type { Env as CommonEnv } from "onnxruntime-common";
import { files } from "./files.js";
import { loadGpu } from "./gpu-module.js";

type Optional<T> = { [K in keyof T]: T[K] | undefined };
type Device = Awaited<CommonEnv.WebGpuFlags["device"]>;

/**
 * `numThreads`: threads in a cross-origin isolated context; by default half the processors, at most 4. `wasmPaths`: the folder of the
 * player's files, or the address of the core; onnxruntime's own files are passed over. `wasmBinary`: the core's bytes; another module's
 * are passed over. `simd`: `false`
 * or `"fixed"` keeps to the core without relaxed SIMD. `initTimeout`: milliseconds after which a core that does not start is an error.
 * `proxy` has no meaning: sessions run in a worker unless `env.worker` is false.
 */
export interface WasmEnv extends Optional<CommonEnv.WebAssemblyFlags> {
  /**
   * Whether models run in memory with 64-bit addresses, up to 16 GB: `undefined` (default) where their weights need it, `true` always,
   * for runs that need more than 4 GB, `false` never.
   */
  memory64?: boolean | undefined;
}

/** Where ONNX models are compiled that were not compiled beforehand. */
export interface PyodideEnv {
  /** Folder of a Pyodide distribution with numpy. Default: the version that is tested, from jsDelivr. */
  indexURL?: string | undefined;
  /** Address of the Python package's wheel, if it is not beside this module. */
  wheelURL?: string | URL | undefined;
}

/** The device that models run on with the backend `"webgpu"`. Sessions with the same settings share one. */
export interface WebgpuEnv extends Optional<Omit<CommonEnv.WebGpuFlags, "adapter" | "device">> {
  /** Limits to keep to, by WebGPU's names: `{ maxStorageBufferBindingSize: 2 ** 27 }` shows how a model does on a smaller GPU. */
  limits?: Readonly<Record<string, number>> | undefined;
  /** The adapter to ask for a device. Sessions then run in the page: an adapter cannot leave it. */
  adapter: CommonEnv.WebGpuFlags["adapter"];
  /**
   * The device of sessions that run in the page with these settings; a worker's device stays there. One that is set is what sessions
   * run on, in the page.
   */
  get device(): Promise<Device>;
  set device(device: Device);
}

export interface Env {
  logLevel?: CommonEnv["logLevel"] | undefined;
  debug?: boolean | undefined;
  trace?: boolean | undefined;
  readonly webgl: CommonEnv["webgl"];
  [name: string]: unknown;
  readonly wasm: WasmEnv;
  readonly webgpu: WebgpuEnv;
  readonly pyodide: PyodideEnv;
  /** `false` runs sessions in place, which blocks the page meanwhile. */
  worker?: boolean | undefined;
  readonly versions: CommonEnv["versions"] & { readonly "pyonnx-wasm": string };
}

// onnxruntime's names.
export declare namespace Env {
  type WasmPathPrefix = CommonEnv.WasmPathPrefix;
  type WasmFilePaths = CommonEnv.WasmFilePaths;
  type WasmPrefixOrFilePaths = CommonEnv.WasmPrefixOrFilePaths;
  type WebAssemblyFlags = CommonEnv.WebAssemblyFlags;
  type WebGLFlags = CommonEnv.WebGLFlags;
  type WebGpuProfilingDataV1TensorMetadata = CommonEnv.WebGpuProfilingDataV1TensorMetadata;
  type WebGpuProfilingDataV1 = CommonEnv.WebGpuProfilingDataV1;
  type WebGpuProfilingData = CommonEnv.WebGpuProfilingData;
  type WebGpuFlags = CommonEnv.WebGpuFlags;
}

declare const VERSION: string;
/** The version of onnxruntime-common whose surface this is. */
const API = "1.30.0";

let given: unknown;

const webgpu = {
  profiling: {},
  adapter: undefined,
  get device() {
    if (given) return Promise.resolve(given);
    return loadGpu().then(async ({ Gpu }) => (await Gpu.open(deviceSettings())).device);
  },
  set device(device: unknown) {
    given = device;
  },
} as unknown as WebgpuEnv;

/** What of `env.webgpu` decides which device is asked for. */
export interface GpuSettings extends Pick<WebgpuEnv, "powerPreference" | "forceFallbackAdapter" | "limits"> {
  /** What cannot leave the page. */
  readonly adapter?: unknown;
  readonly device?: unknown;
}

export function deviceSettings(device?: unknown): GpuSettings {
  const { powerPreference, forceFallbackAdapter, limits, adapter } = webgpu;
  const own = device ?? given;
  return { powerPreference, forceFallbackAdapter, limits, ...(own ? { device: own } : adapter ? { adapter } : {}) };
}

/** The folder that the core lies in, unless settings say otherwise. */
export const ownFolder = (): string => files.core.replace(/[^/]*$/, "");

let paths: WasmEnv["wasmPaths"];

const wasm: WasmEnv = {
  // Never nothing: what asks for onnxruntime's files where no place is set (transformers.js does) leaves them where they are.
  get wasmPaths() {
    return paths ?? ownFolder();
  },
  set wasmPaths(given) {
    paths = given;
  },
} as WasmEnv;

const LEVELS = ["verbose", "info", "warning", "error", "fatal"];
let logLevel: NonNullable<CommonEnv["logLevel"]> = "warning";

/** Settings, read when a session is created. */
export const env: Env = {
  get logLevel() {
    return logLevel;
  },
  set logLevel(level) {
    if (level === undefined) return;
    if (!LEVELS.includes(level)) throw new Error(`env.logLevel is one of ${LEVELS.join(", ")}, not ${String(level)}`);
    logLevel = level;
  },
  debug: false,
  wasm,
  webgl: {} as CommonEnv["webgl"],
  webgpu,
  pyodide: {},
  worker: undefined,
  // Code that came from onnxruntime-web makes addresses of its version.
  versions: { common: API, web: API, "pyonnx-wasm": VERSION },
};
