/** What session and run options mean here. Those that cannot mean anything are named on the console, once. */
import type * as ort from "onnxruntime-common";
import { deviceSettings, env } from "./env.js";
import type { Target } from "./engine.mjs";
import type { External } from "./host.js";
import { warnOnce, type LogOptions } from "./log.js";
import { quoted } from "./signature.js";
import type { Backend, CompileProgress, Progress, SessionOptions } from "./types.js";

const MEANT = new Set([
  ...[
    "executionProviders",
    "freeDimensionOverrides",
    "externalData",
    "preferredOutputLocation",
    "worker",
    "onProgress",
    "seed",
    "maxMemory",
    "maxOperations",
    "operators",
    "otherwise",
  ],
  ...["enableProfiling", "logId", "logSeverityLevel", "intraOpNumThreads", "graphOptimizationLevel"],
]);
/** Why options of onnxruntime have no meaning here. */
const MOOT: Readonly<Record<string, string>> = {
  interOpNumThreads: "steps run one after the other, each on all threads",
  executionMode: "steps run one after the other, each on all threads",
  enableCpuMemArena: "memory is planned when sizes are known",
  enableMemPattern: "memory is planned when sizes are known",
  optimizedModelFilePath: "compiled models are written by `pyonnx-wasm compile`",
  profileFilePrefix: "endProfiling() returns the profile",
  logVerbosityLevel: "env.logLevel says how much is said",
  enableGraphCapture: "runs of the same sizes are replayed anyway",
};
const DEFAULTS: Readonly<Record<string, unknown>> = { executionMode: "sequential", enableGraphCapture: false };

/** Checks a session's options; throws an error that names the one at fault. */
export function checkOptions(options: SessionOptions): void {
  if (typeof options !== "object" || options === null) throw new TypeError("the session's options must be an object");
  const { preferredOutputLocation: location, intraOpNumThreads: threads } = options;
  const backends = backendsOf(options);
  if (options.seed !== undefined && !Number.isSafeInteger(options.seed))
    throw new RangeError(`seed must be an integer, not ${options.seed}`);
  for (const name of ["maxMemory", "maxOperations"] as const) {
    const limit = options[name];
    if (limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0))
      throw new RangeError(`${name} must be an integer from 0 to 2^53 - 1, not ${limit}`);
  }
  for (const place of typeof location === "string" ? [location] : Object.values(location ?? {}))
    if (place !== "cpu" && place !== "cpu-pinned" && !(place === "gpu-buffer" && backends.includes("webgpu")))
      throw new Error(
        `preferredOutputLocation "${place}": outputs can be on the "cpu", and with the "webgpu" backend in a "gpu-buffer"`,
      );
  if (threads !== undefined && (!Number.isInteger(threads) || threads < 0 || threads > 64))
    throw new RangeError(`intraOpNumThreads must be an integer from 0 (automatic) to 64, not ${threads}`);
  for (const [name, value] of Object.entries(options)) {
    if (MEANT.has(name) || value === undefined || value === DEFAULTS[name]) continue;
    if (name === "extra") warnOfExtra("extra", value, options);
    else warnOnce(`the session option ${name} is passed over: ${MOOT[name] ?? "there is none of this name"}`, options);
  }
  for (const provider of options.executionProviders ?? []) warnOfProvider(provider, options);
}

/** Compiled models are optimised already: only what is compiled here can be left as it is. */
export function optimises({ graphOptimizationLevel: level }: SessionOptions): boolean {
  return level !== "disabled";
}

export function warnOfLevel(options: SessionOptions): void {
  if (!optimises(options))
    warnOnce("the session option graphOptimizationLevel is passed over: the model was compiled before", options);
}

export function warnOfRunOptions({ extra, logVerbosityLevel }: ort.InferenceSession.RunOptions): void {
  if (extra !== undefined) warnOfExtra("the run's extra", extra);
  if (logVerbosityLevel !== undefined)
    warnOnce("the run option logVerbosityLevel is passed over: env.logLevel says how much is said");
}

/** Configuration entries of onnxruntime's core, by their whole names. */
function warnOfExtra(path: string, value: unknown, options?: LogOptions): void {
  if (typeof value !== "object" || value === null)
    warnOnce(`the option ${path} is passed over: it configures onnxruntime's own core`, options);
  else for (const [name, entry] of Object.entries(value)) warnOfExtra(`${path}.${name}`, entry, options);
}

function warnOfProvider(provider: ort.InferenceSession.ExecutionProviderConfig, options: LogOptions): void {
  if (typeof provider === "string") return;
  for (const [name, value] of Object.entries(provider)) {
    if (name === "name" || value === undefined || (provider.name === "webgpu" && name === "device")) continue;
    warnOnce(`the option ${name} of the provider ${provider.name} is passed over: it has no meaning here`, options);
  }
}

/** The backends asked for that exist, in order. */
export function backendsOf({ executionProviders }: SessionOptions): Backend[] {
  const names = (executionProviders ?? ["wasm"]).map((p) => (typeof p === "string" ? p : p.name));
  const found = names.flatMap((name): Backend[] =>
    name === "webgpu" ? ["webgpu"] : name === "wasm" || name === "cpu" ? ["wasm"] : [],
  );
  if (names.length && !found.length)
    throw new Error(
      `executionProviders [${quoted(names)}]: only "webgpu" and "wasm" are available; add one to the list`,
    );
  return found.length ? found : ["wasm"];
}

export function targetOf(options: SessionOptions): Target {
  const webgpu = options.executionProviders?.find((p) => typeof p !== "string" && p.name === "webgpu");
  return {
    backends: backendsOf(options),
    gpu: deviceSettings((webgpu as ort.InferenceSession.WebGpuExecutionProviderOption | undefined)?.device),
    seed: options.seed === undefined ? undefined : BigInt(options.seed),
    limits: { maxMemory: options.maxMemory, maxOperations: options.maxOperations },
    memory64: env.wasm.memory64,
  };
}

/** A device or an adapter of the page's cannot go to a worker. */
export function inWorker(options: SessionOptions, { backends, gpu }: Target): boolean {
  if (backends.includes("webgpu") && (gpu?.device || gpu?.adapter)) return false;
  return options.worker ?? env.worker !== false;
}

/** The outputs that are to stay in a place. */
export function keptOutputs(
  { preferredOutputLocation: location }: SessionOptions,
  names: readonly string[],
  where: ort.Tensor.DataLocation,
): number[] {
  const place = (name: string): string | undefined => (typeof location === "object" ? location[name] : location);
  return names.flatMap((name, i) => (place(name) === where ? [i] : []));
}

export function externals({ externalData = [] }: SessionOptions): External[] {
  return externalData.map((file) => (typeof file === "string" ? { path: file, data: file } : file));
}

/** A callback whose own errors do not end the load. */
export function guarded(onProgress: SessionOptions["onProgress"]): (progress: Progress | CompileProgress) => void {
  return (progress) => {
    try {
      onProgress?.(progress);
    } catch (error) {
      if (typeof reportError === "function") reportError(error);
      else console.error(error);
    }
  };
}
