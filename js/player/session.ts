import type * as ort from "onnxruntime-common";
import { perform } from "./callbacks.js";
import { deliver, deliverStrings } from "./deliver.js";
import { env } from "./env.js";
import { gathered, spread } from "./compound.js";
import type { Loaded } from "./engine.mjs";
import { isPlain, tensorsOf, typeText, type Face, type Faces } from "./faces.js";
import type { ValueInfo } from "./format.js";
import { endedAlready, unlessEnded } from "./ending.js";
import { acquireHost, type External, type Host } from "./host.js";
import { inform, warn } from "./log.js";
import type { Feed as Input, Output } from "./feed.js";
import * as opts from "./options.js";
import { checkFeeds, checkOverrides, override, quoted } from "./signature.js";
import { sniffed, wasRaw } from "./sniff.js";
import { type ModelSource } from "./source.js";
import { placesOf } from "./strings.js";
import { Tensor, TensorImpl, type TensorType } from "./tensor.js";
import { traceEvents, type TraceEvent } from "./trace.js";
import type { AdapterInfo, Backend, ModelMetadata, SessionOptions, StepTime } from "./types.js";

/** A value of the signature; a dim is a size or the name of a symbol. */
export type ValueMetadata = ort.InferenceSession.ValueMetadata;
/** A map of the standard: what a sequence of maps gives for each row. */
export type MapResult = Map<string, number> | Map<bigint, number>;
/** What an output gives: a tensor, for a sequence its tensors or maps, for an optional without a value null. */
export type Result = Tensor | Tensor[] | MapResult[] | null;
/** What a map takes; numbers and bigints stand for each other where they are whole. */
export type MapFeed =
  ReadonlyMap<string | number | bigint, string | number | bigint> | Readonly<Record<string, string | number | bigint>>;
/** What an input takes: a tensor, for a sequence an array of them, for an optional null as well, a map. */
export type Feed = ort.Tensor | readonly ort.Tensor[] | MapFeed | null;
export type Feeds = Readonly<Record<string, Feed>>;
/** Names of the outputs wanted, or an object with null or a tensor to fill for each. */
export type Fetches = ort.InferenceSession.FetchesType;
export type RunOptions = ort.InferenceSession.RunOptions;
/** Of a model whose outputs are all tensors, unless it is told otherwise: `session.run<{ scores: MapResult[] }>(feeds)`. */
export type Results = Record<string, Tensor>;

const registered = new Map<string, Parameters<typeof registerBackend>>();

/** Adds a backend of one's own: sessions whose first execution provider has its name are its. */
export const registerBackend = (name: string, backend: ort.Backend, priority: number): void => {
  if (typeof backend?.init !== "function" || typeof backend.createInferenceSessionHandler !== "function")
    throw new TypeError("a backend has the methods init and createInferenceSessionHandler");
  const before = registered.get(name);
  if (before?.[2] === priority && before[1] !== backend)
    throw new Error(`there is a backend "${name}" of priority ${priority} already`);
  if (!before || before[2] <= priority) registered.set(name, [name, backend, priority]);
};

/** A model, ready to run. Any number of `run` calls may be under way; they are served in order. */
export class InferenceSession implements ort.InferenceSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  /** Of a sequence or an optional, `isTensor` is false, and `shape` that of its tensors. */
  readonly inputMetadata: readonly ort.InferenceSession.TensorValueMetadata[];
  readonly outputMetadata: readonly ort.InferenceSession.TensorValueMetadata[];
  // Neither "#" nor objects with such: they cannot be read through the proxies that reactive frameworks wrap around objects.
  /** @internal */
  private readonly host: () => Host;
  /** @internal */
  private readonly loaded: () => Loaded;
  /** @internal */
  private readonly id: number;
  /** @internal */
  private readonly inputs: readonly ValueInfo[];
  /** @internal */
  private readonly faces: Faces | undefined;
  /** The outputs as tensors. @internal */
  private readonly tensors: readonly ValueInfo[];
  /** @internal */
  private readonly giveBack: () => void;
  /** Where the Program's outputs begin that each output is. @internal */
  private readonly places: readonly number[];
  /** @internal */
  private readonly kept: readonly number[];
  /** @internal */
  private released = false;
  /** Steps so far, while profiling. @internal */
  private profiled: StepTime[] | undefined;

  private constructor(host: Host, giveBack: () => void, loaded: Loaded, options: SessionOptions) {
    const sizes = options.freeDimensionOverrides ?? {};
    this.loaded = () => loaded;
    this.host = () => host;
    this.giveBack = giveBack;
    this.id = loaded.id;
    this.inputs = override(loaded.inputs, sizes);
    this.faces = loaded.faces;
    this.inputNames = (loaded.faces ?? loaded).inputs.map(({ name }) => name);
    this.outputNames = (loaded.faces ?? loaded).outputs.map(({ name }) => name);
    this.tensors = loaded.outputs;
    this.places = placesOf(loaded.outputs);
    this.inputMetadata = described(this.inputs, loaded.faces?.inputs);
    this.outputMetadata = described(override(loaded.outputs, sizes), loaded.faces?.outputs);
    const place = this.backend === "webgpu" ? "gpu-buffer" : "cpu-pinned";
    this.kept = opts.keptOutputs(options, this.outputNames, place).flatMap((k) => this.keepable(k));
    if (options.enableProfiling) this.startProfiling();
  }

  /** What the model says of itself; undefined until a model that is compiled for its inputs has run. */
  get metadata(): ModelMetadata | undefined {
    return this.loaded().metadata;
  }

  /** The backend that runs the model. */
  get backend(): Backend {
    return this.loaded().backend;
  }

  /** Why the model does not run on the backend that was preferred. */
  get fallback(): string | undefined {
    return this.loaded().fallback;
  }

  /** The GPU that runs the model, on webgpu. */
  get adapter(): AdapterInfo | undefined {
    return this.loaded().adapter;
  }

  /** Threads that the core runs on; 0 before the first run of a model whose inputs' ranks are not declared. */
  get threads(): number {
    return this.loaded().threads;
  }

  /**
   * Loads a compiled model (`.ponnx`); an `.onnx` or `.gguf` model is compiled first, in a worker, and kept so.
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
    const [first] = options?.executionProviders ?? [];
    const provider = typeof first === "object" ? first.name : first;
    const backend = provider === undefined ? undefined : registered.get(provider);
    if (backend) {
      const common = await import("./common.mjs");
      common.registerBackend(...backend);
      return (await common.InferenceSession.create(given as string, options as object)) as InferenceSession;
    }
    opts.checkOptions(options);
    const { source, raw } = await sniffed(given);
    if (raw) return InferenceSession.#compile(source, options);
    try {
      const session = await InferenceSession.#load(source, opts.externals(options), options);
      opts.warnOfLevel(options);
      return session;
    } catch (error) {
      if (wasRaw(source, error)) return InferenceSession.#compile(source, options);
      throw error;
    }
  }

  static async #compile(source: ModelSource, options: SessionOptions): Promise<InferenceSession> {
    // The core starts while the compiler works.
    const engine = InferenceSession.#engine(new Uint8Array(), options);
    engine.catch(() => {});
    const { compiled, Variants } = await import("./compile.mjs");
    const compiling = compiled(
      source,
      opts.externals(options),
      { ...env.pyodide, optimise: opts.optimises(options), gpu: opts.backendsOf(options).includes("webgpu") },
      opts.guarded(options.onProgress),
      opts.backendsOf(options)[0] === "wasm" ? async () => (await engine).host : undefined,
    );
    compiling.catch(() => engine.then(({ giveBack }) => giveBack()));
    const made = await compiling;
    if (made.pending) {
      const { host, giveBack, load } = await engine;
      const variants = new Variants(host, made, (one) => load(one.model, one.external));
      return new InferenceSession(variants, giveBack, variants.loaded, options);
    }
    try {
      return await InferenceSession.#load(made.model, made.external, options, engine);
    } catch (error) {
      const anew = await made.renew();
      if (!anew) throw error;
      return InferenceSession.#load(anew.model, anew.external, options);
    }
  }

  /** An engine, and how models are loaded into it. */
  static async #engine(source: ModelSource, options: SessionOptions) {
    const target = opts.targetOf(options);
    const { intraOpNumThreads } = options;
    const wasm = intraOpNumThreads === undefined ? env.wasm : { ...env.wasm, numThreads: intraOpNumThreads };
    const { host, giveBack } = await acquireHost(wasm, opts.inWorker(options, target), source);
    const load = async (model: ModelSource, external: readonly External[]): Promise<Loaded> => {
      const loaded = await host.load(model, external, target, opts.guarded(options.onProgress), (asked) =>
        perform(asked, options.operators, options.otherwise),
      );
      if (loaded.fallback) warn(`running on ${loaded.backend}: ${loaded.fallback}`, options);
      inform(`session on ${loaded.backend}, threads: ${loaded.threads}`, options);
      return loaded;
    };
    return { host, giveBack, load };
  }

  static async #load(
    source: ModelSource,
    external: readonly External[],
    options: SessionOptions,
    engine = InferenceSession.#engine(source, options),
  ): Promise<InferenceSession> {
    const { host, giveBack, load } = await engine;
    let loaded: Loaded | undefined;
    try {
      loaded = await load(source, external);
      checkOverrides(loaded.inputs, options.freeDimensionOverrides ?? {});
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
  async run<R extends Record<string, Result> = Results>(feeds: Feeds, options?: RunOptions): Promise<R>;
  async run<R extends Record<string, Result> = Results>(
    feeds: Feeds,
    fetches: Fetches,
    options?: RunOptions,
  ): Promise<R>;
  async run<R extends Record<string, Result> = Results>(
    feeds: Feeds,
    second?: Fetches | RunOptions,
    third?: RunOptions,
  ): Promise<R> {
    const { wanted, options } = this.wanted(second, third);
    opts.warnOfRunOptions(options);
    try {
      endedAlready(options);
      const flat = this.faces ? (spread(this.faces.inputs, feeds) as Feeds) : feeds;
      const results = await unlessEnded((signal) => this.runChecked(flat, wanted, signal), options);
      return (this.faces ? gathered(this.faces.outputs, results) : results) as R;
    } catch (error) {
      if (error instanceof Error) error.message = tagged(error.message, options);
      throw error;
    }
  }

  /** @internal */
  private async runChecked(feeds: Feeds, wanted: readonly Wanted[], signal?: AbortSignal): Promise<Results> {
    const arriving = this.arriving(feeds);
    const inputs = this.check(arriving.length ? await this.arrived(feeds, arriving) : feeds);
    const indexes = wanted.flatMap(({ index, type }) => (type === "string" ? [index, index + 1] : [index]));
    const keep = wanted.flatMap(({ index, into }) => (this.kept.includes(index) && !into ? [index] : []));
    const host = this.host();
    if (this.profiled || (this.backend === "webgpu" && env.webgpu.profiling?.mode === "default"))
      void this.note(host.profile(this.id, inputs));
    const outputs = await host.run(this.id, inputs, indexes, keep, signal);
    const onGpu = this.backend === "webgpu";
    const results = wanted.map(async ({ name, type, into }) => {
      const first = outputs.shift() as Output;
      if (type !== "string") return [name, await deliver(name, first, into, host, onGpu)] as const;
      return [name, deliverStrings(name, first, outputs.shift() as Output, into)] as const;
    });
    return Object.fromEntries(await Promise.all(results));
  }

  /** Names of feeds whose data is in other hands and has to come here first. @internal */
  private arriving(feeds: unknown): string[] {
    if (typeof feeds !== "object" || feeds === null) return [];
    const readsBuffers = this.backend === "webgpu" && this.host().inPlace;
    return Object.entries(feeds).flatMap(([name, value]) => {
      if (typeof value !== "object" || value === null || !("location" in value)) return [];
      const { location } = value as Tensor;
      const here = location === "cpu" || location === "cpu-pinned" || location === "none";
      const engines = value instanceof TensorImpl && value.onGpu !== undefined;
      return here || engines || (location === "gpu-buffer" && readsBuffers) ? [] : [name];
    });
  }

  /** @internal */
  private async arrived(feeds: Feeds, names: readonly string[]): Promise<Feeds> {
    const got = names.map(async (name) => {
      const tensor = feeds[name] as Tensor;
      try {
        const data = await (tensor instanceof TensorImpl ? tensor.current() : tensor.getData());
        return [name, new Tensor(tensor.type, data as Float32Array, tensor.dims)] as const;
      } catch (error) {
        throw new Error(
          `input "${name}": the feed is a ${tensor.location} of the page, which the session does not reach: ` +
            `${(error as Error).message}; sessions with { worker: false } on the page's device (env.webgpu.device) do`,
        );
      }
    });
    return { ...feeds, ...Object.fromEntries(await Promise.all(got)) };
  }

  /** Runs the model step by step and returns each step's nodes, kernel and milliseconds. */
  async profile(feeds: Feeds): Promise<StepTime[]> {
    return this.host().profile(this.id, this.check(this.faces ? spread(this.faces.inputs, feeds) : feeds));
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

  /** From now on every run is made twice, the second time step by step. */
  startProfiling(): void {
    this.profiled ??= [];
  }

  /**
   * Ends it and returns what the steps took, as trace events: `JSON.stringify` makes a file that Perfetto opens. On webgpu
   * `env.webgpu.profiling.ondata` hears of each step as it ends.
   */
  endProfiling(): { traceEvents: TraceEvent[]; displayTimeUnit: "ms" } {
    const steps = this.profiled ?? [];
    this.profiled = undefined;
    return traceEvents(steps);
  }

  /** @internal */
  private async note(running: Promise<StepTime[]>): Promise<void> {
    const steps = await running.catch(() => []);
    const last = this.profiled?.at(-1);
    const begin = last ? last.start + last.ms : 0;
    const { mode, ondata = printed } = env.webgpu.profiling ?? {};
    for (const step of steps) {
      this.profiled?.push({ ...step, start: begin + step.start });
      if (mode === "default" && step.backend === "webgpu") ondata(profilingData(step));
    }
  }

  /** @internal */
  private check(feeds: unknown): Input[] {
    if (this.released) throw new Error("the session was released");
    return checkFeeds(this.inputs, feeds, this.host().home);
  }

  /** Of an output that is to stay on the GPU, the tensor; a sequence or an optional comes here. @internal */
  private keepable(output: number): number[] {
    const face = this.faces?.outputs[output];
    if (face && !isPlain(face)) return [];
    return [this.places[this.tensors.findIndex(({ name }) => name === this.outputNames[output])]!];
  }

  /** @internal */
  private tensor(name: string, into: TensorImpl | null): Wanted {
    const output = this.tensors.findIndex((value) => value.name === name);
    const value = this.tensors[output];
    if (!value) throw new RangeError(`there is no output "${name}"`);
    return { name, type: value.type, index: this.places[output]!, into };
  }

  /** Runs the model with sequences and optionals as the tensors that they are made of. @internal */
  async runTensors(feeds: Feeds, names: readonly string[], signal?: AbortSignal): Promise<Results> {
    return this.runChecked(
      feeds,
      names.map((name) => this.tensor(name, null)),
      signal,
    );
  }

  /** The outputs asked for, and the run's options. @internal */
  private wanted(
    second: Fetches | RunOptions | undefined,
    third: RunOptions | undefined,
  ): { wanted: Wanted[]; options: RunOptions } {
    const pick = (name: string, into: TensorImpl | null): Wanted[] => {
      if (!this.outputNames.includes(name))
        throw new RangeError(`there is no output "${name}"; the outputs are ${quoted(this.outputNames)}`);
      const face = this.faces?.outputs.find((output) => output.name === name);
      const parts = face ? tensorsOf(face) : [name];
      return parts.map((part) => this.tensor(part, parts.length > 1 ? null : into));
    };
    const all = this.outputNames.flatMap((name) => pick(name, null));
    if (second === undefined) return { wanted: all, options: third ?? {} };
    if (typeof second !== "object" || second === null || second instanceof TensorImpl)
      throw new TypeError("fetches must be names of outputs, or an object of tensors or nulls by output name");
    if (Array.isArray(second)) {
      if (!second.length) throw new TypeError("fetches must not be empty: leave them out for all outputs");
      return { wanted: second.flatMap((name: string) => pick(name, null)), options: third ?? {} };
    }
    // As in onnxruntime, an object without any output's name holds run options.
    const given = Object.entries(second).filter(([name, into]) => this.outputNames.includes(name) && isFetch(into));
    if (!given.length) return { wanted: all, options: second as RunOptions };
    const wanted = given.flatMap(([name, into]) => pick(name, into instanceof TensorImpl ? into : null));
    return { wanted, options: third ?? {} };
  }
}

// onnxruntime's names.
export declare namespace InferenceSession {
  type OnnxValueMapType = ort.InferenceSession.OnnxValueMapType;
  type NullableOnnxValueMapType = ort.InferenceSession.NullableOnnxValueMapType;
  type FeedsType = ort.InferenceSession.FeedsType;
  type FetchesType = ort.InferenceSession.FetchesType;
  type ReturnType = ort.InferenceSession.ReturnType;
  type SessionOptions = ort.InferenceSession.SessionOptions;
  type ExecutionProviderOptionMap = ort.InferenceSession.ExecutionProviderOptionMap;
  type ExecutionProviderName = ort.InferenceSession.ExecutionProviderName;
  type ExecutionProviderConfig = ort.InferenceSession.ExecutionProviderConfig;
  type ExecutionProviderOption = ort.InferenceSession.ExecutionProviderOption;
  type CpuExecutionProviderOption = ort.InferenceSession.CpuExecutionProviderOption;
  type CudaExecutionProviderOption = ort.InferenceSession.CudaExecutionProviderOption;
  type DmlExecutionProviderOption = ort.InferenceSession.DmlExecutionProviderOption;
  type TensorRtExecutionProviderOption = ort.InferenceSession.TensorRtExecutionProviderOption;
  type WebAssemblyExecutionProviderOption = ort.InferenceSession.WebAssemblyExecutionProviderOption;
  type WebGLExecutionProviderOption = ort.InferenceSession.WebGLExecutionProviderOption;
  type XnnpackExecutionProviderOption = ort.InferenceSession.XnnpackExecutionProviderOption;
  type WebGpuExecutionProviderOption = ort.InferenceSession.WebGpuExecutionProviderOption;
  type WebNNExecutionProviderName = ort.InferenceSession.WebNNExecutionProviderName;
  type WebNNContextOptions = ort.InferenceSession.WebNNContextOptions;
  type WebNNOptionsWithoutMLContext = ort.InferenceSession.WebNNOptionsWithoutMLContext;
  type WebNNOptionsWithMLContext = ort.InferenceSession.WebNNOptionsWithMLContext;
  type WebNNOptionsWebGpu = ort.InferenceSession.WebNNOptionsWebGpu;
  type WebNNExecutionProviderOption = ort.InferenceSession.WebNNExecutionProviderOption;
  type QnnExecutionProviderOption = ort.InferenceSession.QnnExecutionProviderOption;
  type CoreMLExecutionProviderOption = ort.InferenceSession.CoreMLExecutionProviderOption;
  type NnapiExecutionProviderOption = ort.InferenceSession.NnapiExecutionProviderOption;
  type RunOptions = ort.InferenceSession.RunOptions;
  type ValueMetadataBase = ort.InferenceSession.ValueMetadataBase;
  type NonTensorValueMetadata = ort.InferenceSession.NonTensorValueMetadata;
  type TensorValueMetadata = ort.InferenceSession.TensorValueMetadata;
  type ValueMetadata = ort.InferenceSession.ValueMetadata;
}

interface Wanted {
  readonly name: string;
  readonly type: TensorType;
  /** Which of the Program's outputs it is, the first of two for strings. */
  readonly index: number;
  readonly into: TensorImpl | null;
}

function isFetch(value: unknown): boolean {
  return value === null || value instanceof TensorImpl;
}

function tagged(message: string, { tag }: RunOptions): string {
  return tag ? `[${tag}] ${message}` : message;
}

function profilingData({ kernel, name, start, ms }: StepTime): ort.Env.WebGpuProfilingData {
  const times = { startTime: start * 1e6, endTime: (start + ms) * 1e6 };
  const names = { kernelId: 0, kernelType: kernel, kernelName: name, programName: kernel };
  return { version: 1, inputsMetadata: [], outputsMetadata: [], ...names, ...times };
}

function printed({ kernelName, kernelType, startTime, endTime }: ort.Env.WebGpuProfilingData): void {
  console.log(`[profiling] kernel "${kernelType}|${kernelName}" execution time: ${endTime - startTime} ns`);
}

function metadata({ name, type, shape }: ValueInfo): ort.InferenceSession.TensorValueMetadata {
  return { name, isTensor: true, type: type as Tensor.Type, shape };
}

function described(values: readonly ValueInfo[], faces: readonly Face[] | undefined) {
  if (!faces) return values.map(metadata);
  return faces.map((face) => {
    const value = values.find(({ name }) => name === face.name) as ValueInfo;
    if (isPlain(face)) return metadata(value);
    const { name, shape } = face;
    const told = { name, isTensor: false, type: typeText(face), shape: shape ?? [] };
    return told as unknown as ort.InferenceSession.TensorValueMetadata;
  });
}
