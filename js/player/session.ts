import type { CompileProgress } from "./compile.mjs";
import { arrayOf, type Type } from "./dtypes.js";
import { env } from "./env.js";
import type { ValueInfo } from "./format.js";
import { acquireHost, type External, type Host } from "./host.js";
import type { Feed, Output, Progress } from "./model.js";
import type { StepTime } from "./program.js";
import { checkFeeds, checkOverrides, override, quoted } from "./signature.js";
import { sniffed, wasOnnx } from "./sniff.js";
import { asBytes, type ModelSource } from "./source.js";
import { Tensor } from "./tensor.js";
import type { AdapterInfo } from "./gpu/device.js";
import type { Backend, Loaded, Target } from "./engine.mjs";

/** A value of the signature; a dim is a size or the name of a symbol. */
export interface ValueMetadata {
  readonly name: string;
  readonly isTensor: true;
  readonly type: Type;
  readonly shape: readonly (number | string)[];
}

export interface SessionOptions {
  /** Backends in order of preference, `"webgpu"` and `"wasm"` (or `"cpu"`); default: wasm. The session says which one runs, and why. */
  executionProviders?: readonly (string | { readonly name: string })[];
  /** Fixed sizes of symbolic dims; feeds of other sizes are refused. */
  freeDimensionOverrides?: Readonly<Record<string, number>>;
  /** Files that a thin model's weights come from; a string is both path and address. */
  externalData?: readonly (string | { readonly path: string; readonly data: ModelSource })[];
  /** `"cpu"` (default), or on webgpu `"gpu-buffer"`, for all outputs or by name: such tensors can be fed to the next run as they are. */
  preferredOutputLocation?: string | Readonly<Record<string, string>>;
  /** `false` runs in place, as `env.wasm.proxy = false` does for all sessions. */
  worker?: boolean;
  /** Called while the model loads. */
  onProgress?: (progress: Progress | CompileProgress) => void;
  /** Accepted for onnxruntime's sake: models are optimised when they are compiled. */
  graphOptimizationLevel?: "disabled" | "basic" | "extended" | "layout" | "all";
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  readonly [other: string]: unknown;
}

export type Feeds = Readonly<Record<string, Tensor>>;
/** Names of the outputs wanted, or an object with null or a tensor to fill for each. */
export type Fetches = readonly string[] | Readonly<Record<string, Tensor | null>>;
export type RunOptions = Readonly<Record<string, unknown>>;
export type Results = Record<string, Tensor>;

/** A model, ready to run. Any number of `run` calls may be under way; they are served in order. */
export class InferenceSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly ValueMetadata[];
  readonly outputMetadata: readonly ValueMetadata[];
  /** The backend that runs the model. */
  readonly backend: Backend;
  /** Why the model does not run on the backend that was preferred. */
  readonly fallback: string | undefined;
  /** The GPU that runs the model, on webgpu. */
  readonly adapter: AdapterInfo | undefined;
  /** Threads that the core runs on. */
  readonly threads: number;
  // Neither "#" nor objects with such: they cannot be read through the proxies that reactive frameworks wrap around objects.
  private readonly host: () => Host;
  private readonly id: number;
  private readonly inputs: readonly ValueInfo[];
  private readonly giveBack: () => void;
  private readonly kept: readonly number[];
  private released = false;

  private constructor(host: Host, giveBack: () => void, loaded: Loaded, options: SessionOptions) {
    const sizes = options.freeDimensionOverrides ?? {};
    this.backend = loaded.backend;
    this.fallback = loaded.fallback;
    this.adapter = loaded.adapter;
    this.host = () => host;
    this.giveBack = giveBack;
    this.id = loaded.id;
    this.threads = loaded.threads;
    this.inputs = override(loaded.inputs, sizes);
    this.inputNames = loaded.inputs.map(({ name }) => name);
    this.outputNames = loaded.outputs.map(({ name }) => name);
    this.inputMetadata = this.inputs.map(metadata);
    this.outputMetadata = override(loaded.outputs, sizes).map(metadata);
    this.kept = this.backend === "webgpu" ? keptOutputs(options, this.outputNames) : [];
  }

  /**
   * Loads a compiled model (`.ponnx`); an `.onnx` model is compiled first, by Python in a worker (see `env.pyodide`), and kept so.
   *
   * `source` is an address, a Response, Blob, ReadableStream, ArrayBuffer or typed array; bytes are read, never detached.
   * Rejects with an error that says what is wrong with file, options or device; then nothing of the session is left.
   */
  static create(source: ModelSource, options?: SessionOptions): Promise<InferenceSession>;
  static create(
    buffer: ArrayBufferLike,
    byteOffset: number,
    byteLength?: number,
    options?: SessionOptions,
  ): Promise<InferenceSession>;
  static async create(
    source: ModelSource,
    second: SessionOptions | number = {},
    third?: number | SessionOptions,
    fourth?: SessionOptions,
  ): Promise<InferenceSession> {
    if (typeof second !== "number") return InferenceSession.#create(source, second);
    const length = typeof third === "number" ? third : undefined;
    const bytes = new Uint8Array(source as ArrayBufferLike, second, length);
    return InferenceSession.#create(bytes, fourth ?? (typeof third === "object" ? third : {}));
  }

  static async #create(given: ModelSource, options: SessionOptions): Promise<InferenceSession> {
    checkOptions(options);
    const { source, onnx } = await sniffed(given);
    if (onnx) return InferenceSession.#compile(source, options);
    try {
      return await InferenceSession.#load(source, externals(options), options);
    } catch (error) {
      if (wasOnnx(source, error)) return InferenceSession.#compile(source, options);
      throw error;
    }
  }

  static async #compile(source: ModelSource, options: SessionOptions): Promise<InferenceSession> {
    const { compiled } = await import("./compile.mjs");
    const made = await compiled(source, externals(options), env.pyodide, guarded(options.onProgress));
    try {
      return await InferenceSession.#load(made.model, made.external, options);
    } catch (error) {
      const anew = await made.renew();
      if (!anew) throw error;
      return InferenceSession.#load(anew.model, anew.external, options);
    }
  }

  static async #load(
    source: ModelSource,
    external: readonly External[],
    options: SessionOptions,
  ): Promise<InferenceSession> {
    const inWorker = options.worker ?? env.wasm.proxy !== false;
    const { host, giveBack } = await acquireHost(env.wasm, inWorker, source);
    let loaded: Loaded | undefined;
    try {
      loaded = await host.load(source, external, target(options), guarded(options.onProgress));
      checkOverrides(loaded.inputs, options.freeDimensionOverrides ?? {});
      if (loaded.fallback) console.warn(`pyonnx-wasm: running on ${loaded.backend}: ${loaded.fallback}`);
      return new InferenceSession(host, giveBack, loaded, options);
    } catch (error) {
      if (loaded) await host.release(loaded.id);
      giveBack();
      throw error;
    }
  }

  /**
   * Runs the model.
   *
   * Feeds are copied before this returns, so their arrays may be reused at once; results own theirs.
   * Rejects with an error that names the input, or the node that failed.
   */
  async run(feeds: Feeds, fetches?: Fetches | RunOptions, _options?: RunOptions): Promise<Results> {
    const inputs = this.check(feeds);
    const wanted = this.wanted(fetches);
    const indexes = wanted.map(({ index }) => index);
    const keep = wanted.flatMap(({ index, into }) => (this.kept.includes(index) && !into ? [index] : []));
    const host = this.host();
    const outputs = await host.run(this.id, inputs, indexes, keep);
    return Object.fromEntries(
      wanted.map(({ name, into }, i) => [name, deliver(name, outputs[i] as Output, into, host)] as const),
    );
  }

  /** Runs the model step by step and returns each step's nodes, kernel and milliseconds. */
  async profile(feeds: Feeds): Promise<StepTime[]> {
    return this.host().profile(this.id, this.check(feeds));
  }

  /** Bytes of WebAssembly memory of the engine, which sessions share. */
  async memoryBytes(): Promise<number> {
    return this.host().memoryBytes();
  }

  /** Frees the model after the runs under way. */
  async release(): Promise<void> {
    if (this.released) return;
    this.released = true;
    try {
      if (!this.host().lost) await this.host().release(this.id);
    } finally {
      this.giveBack();
    }
  }

  /** For onnxruntime's sake; profiles come from `profile`. */
  startProfiling(): void {}

  endProfiling(): void {}

  private check(feeds: unknown): Feed[] {
    if (this.released) throw new Error("the session was released");
    return checkFeeds(this.inputs, feeds, this.host());
  }

  private wanted(fetches: Fetches | RunOptions | undefined): { name: string; index: number; into: Tensor | null }[] {
    const pick = (name: string, into: Tensor | null) => {
      const index = this.outputNames.indexOf(name);
      if (index < 0) throw new Error(`there is no output "${name}"; the outputs are ${quoted(this.outputNames)}`);
      return { name, index, into };
    };
    const all = this.outputNames.map((name) => pick(name, null));
    if (!fetches) return all;
    if (Array.isArray(fetches)) return fetches.map((name: string) => pick(name, null));
    // As in onnxruntime, an object without any output's name holds run options.
    const named = Object.entries(fetches).filter(([name]) => this.outputNames.includes(name));
    return named.length ? named.map(([name, into]) => pick(name, into instanceof Tensor ? into : null)) : all;
  }
}

function metadata({ name, type, shape }: ValueInfo): ValueMetadata {
  return { name, isTensor: true, type, shape };
}

function checkOptions(options: SessionOptions): void {
  if (typeof options !== "object" || options === null) throw new TypeError("the session's options must be an object");
  const { preferredOutputLocation: location } = options;
  const backends = backendsOf(options);
  for (const place of typeof location === "string" ? [location] : Object.values(location ?? {}))
    if (place !== "cpu" && place !== "cpu-pinned" && !(place === "gpu-buffer" && backends.includes("webgpu")))
      throw new Error(
        `preferredOutputLocation "${place}": outputs can be on the "cpu", and with the "webgpu" backend in a "gpu-buffer"`,
      );
}

/** The backends asked for that exist, in order. */
function backendsOf({ executionProviders }: SessionOptions): Backend[] {
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

function target(options: SessionOptions): Target {
  const { powerPreference, forceFallbackAdapter, limits } = env.webgpu;
  return { backends: backendsOf(options), gpu: { powerPreference, forceFallbackAdapter, limits } };
}

function keptOutputs({ preferredOutputLocation: location }: SessionOptions, names: readonly string[]): number[] {
  const place = (name: string): string | undefined => (typeof location === "object" ? location[name] : location);
  return names.flatMap((name, i) => (place(name) === "gpu-buffer" ? [i] : []));
}

function externals({ externalData = [] }: SessionOptions): External[] {
  return externalData.map((file) => (typeof file === "string" ? { path: file, data: file } : file));
}

/** A callback whose own errors do not end the load. */
function guarded(onProgress: SessionOptions["onProgress"]): (progress: Progress | CompileProgress) => void {
  return (progress) => {
    try {
      onProgress?.(progress);
    } catch (error) {
      reportError(error);
    }
  };
}

function deliver(name: string, { data, type, dims, gpu }: Output, into: Tensor | null, host: Host): Tensor {
  if (gpu !== undefined) {
    const [download, dispose] = [() => host.download(gpu), () => host.dispose(gpu)];
    return Tensor.onGpu(type, dims, { id: gpu, home: host, download, dispose });
  }
  if (!into) return new Tensor(type, new (arrayOf(type))(data.buffer), dims);
  const target = asBytes(into.data);
  if (into.type !== type || !target || target.length !== data.length)
    throw new Error(
      `output "${name}": the tensor given is ${into.type} [${into.dims}], the result is ${type} [${dims}]`,
    );
  target.set(data);
  into.dims = dims;
  return into;
}
