/** The engine: one core and the models in it, in the page or in its worker. */
import { Core, hasMemory64, type Threads } from "./core.js";
import { bytesOf, elements } from "./dtypes.js";
import type { ValueInfo } from "./format.js";
import { size } from "./errors.js";
import type { Faces } from "./faces.js";
import type { GpuSettings } from "./env.js";
import type { Gpu } from "./gpu/device.js";
import type { GpuFeed, GpuProgram, GpuTensor } from "./gpu/program.js";
import { loadGpu } from "./gpu-module.js";
import type { Feed, Output } from "./feed.js";
import type { LoadOptions } from "./loader.js";
import { Model } from "./model.js";
import type { Places } from "./places.js";
import type { Limits } from "./program.js";
import { Staged, type Arrived } from "./staged.js";
import { Held, type CoreRoom } from "./state.js";
import type { AdapterInfo, Backend, ModelMetadata, StepTime } from "./types.js";
import type { Source } from "./source.js";

/** Where a model is to run. */
export interface Target {
  /** In order of preference. */
  readonly backends: readonly Backend[];
  readonly gpu?: GpuSettings;
  /** Where the session's random numbers begin. */
  readonly seed?: bigint | undefined;
  /** What a run on the core may take. */
  readonly limits?: Limits | undefined;
  /** Whether it needs 64-bit addresses; undefined: its weights tell. */
  readonly memory64?: boolean | undefined;
}

/** Gives the core with 64-bit addresses, and its threads. */
export type Widen = () => Promise<{ readonly module: WebAssembly.Module; readonly threads: Threads }>;

/** Weights that leave a run on 32-bit addresses its share of the 4 GB. */
const MOST_NARROW_BYTES = 3 * 2 ** 30;

/** A loaded model as the page sees it. */
export interface Loaded {
  readonly id: number;
  readonly inputs: readonly ValueInfo[];
  readonly outputs: readonly ValueInfo[];
  readonly faces: Faces | undefined;
  readonly metadata?: ModelMetadata;
  readonly threads: number;
  readonly backend: Backend;
  /** Why the session does not run on the backend that it was to prefer. */
  readonly fallback?: string | undefined;
  readonly adapter?: AdapterInfo | undefined;
}

export class Engine {
  readonly #models = new Map<number, Model>();
  readonly #tensors = new Map<number, GpuTensor | Held<CoreRoom>>();
  readonly #staged = new Map<number, Staged>();
  #queue: Promise<unknown> = Promise.resolve();
  #next = 1;
  #nextTensor = 1;

  #wide: Promise<Core> | undefined;
  #wideBytes = (): number => 0;

  private constructor(
    readonly core: Core,
    readonly widen?: Widen,
  ) {}

  static async start(module: WebAssembly.Module, threads: Threads, widen?: Widen): Promise<Engine> {
    return new Engine(await Core.start(module, threads), widen);
  }

  /** An engine over a core that others use as well. */
  static over(core: Core): Engine {
    return new Engine(core);
  }

  /** Loads a model onto the first of the backends that can run it. */
  async load(
    source: Source,
    options: Omit<LoadOptions, "openGpu" | "staged">,
    { backends, gpu: settings, seed, limits, memory64 }: Target = { backends: ["wasm"] },
    numbers: ReadonlyMap<string, number> = new Map(),
  ): Promise<Loaded> {
    const openGpu =
      backends[0] === "webgpu" ? async (): Promise<Gpu> => (await loadGpu()).Gpu.open(settings) : undefined;
    const gpuOptional = backends.includes("wasm");
    const coreFor = (bytes: number): Promise<Core> => this.#coreFor(bytes, memory64);
    const staged = (file: string): Staged | undefined => this.#staged.get(numbers.get(file) ?? 0);
    const how = { ...options, staged, openGpu, gpuOptional, seed, limits };
    const model = await Model.load(coreFor, source, how).finally(() => {
      for (const number of numbers.values()) this.unstage(number);
    });
    await model.core.settled;
    const id = this.#next++;
    this.#models.set(id, model);
    return {
      id,
      inputs: model.header.inputs,
      outputs: model.header.outputs,
      faces: model.header.faces,
      metadata: model.header.metadata,
      threads: model.core.threads,
      backend: model.gpu ? "webgpu" : "wasm",
      fallback: model.fallback,
      adapter: model.gpu?.gpu.info,
    };
  }

  /** Reads a file into the core that has room for it, before it is compiled. `load` then takes it by its number. */
  async stage(source: Source, size: number): Promise<Arrived> {
    const staged = await Staged.read(await this.#coreFor(size, undefined), source, size);
    const id = this.#next++;
    this.#staged.set(id, staged);
    return { id, structure: staged.structure };
  }

  async staged(id: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const found = this.#staged.get(id);
    if (!found) throw new Error("the file was given back");
    return found.bytes(start, end);
  }

  unstage(id: number): void {
    this.#staged.get(id)?.release();
    this.#staged.delete(id);
  }

  /** The core that has room for so many bytes of weights; with 64-bit addresses only where they are needed. */
  async #coreFor(bytes: number, asked: boolean | undefined): Promise<Core> {
    if (asked === false ? bytes <= this.core.maxBytes : !asked && bytes <= MOST_NARROW_BYTES) return this.core;
    if (this.widen && hasMemory64() && asked !== false) return (this.#wide ??= this.#widened(this.widen));
    if (!asked && bytes <= this.core.maxBytes) return this.core;
    const why =
      asked === false
        ? "env.wasm.memory64 is false"
        : "there is no memory64 here (Chrome and Edge have it from 133 on, Firefox from 134, Node.js from 24)";
    throw new Error(
      `the model's weights take ${size(bytes)} of WebAssembly's ${size(this.core.maxBytes)}, and ${why}; ` +
        'a GPU takes them with executionProviders: ["webgpu"], `pyonnx-wasm compile --weights q4` makes them smaller',
    );
  }

  async #widened(widen: Widen): Promise<Core> {
    try {
      const { module, threads } = await widen();
      const core = await Core.start(module, threads, true);
      this.#wideBytes = () => core.memory.buffer.byteLength;
      return core;
    } catch (error) {
      this.#wide = undefined;
      throw error;
    }
  }

  /** Runs a model; outputs in `keep` stay on the GPU. Calls are served one after the other. A run ends early where the signal says so. */
  run(
    id: number,
    feeds: readonly Feed[],
    wanted: readonly number[],
    keep: readonly number[] = [],
    signal?: AbortSignal,
    spares: ArrayBuffer[] = [],
  ): Promise<Output[]> {
    return this.#queued(async () => {
      signal?.throwIfAborted();
      const model = this.#model(id);
      if (!model.gpu) {
        const outputs = await model.run(await this.#local(feeds), wanted, keep, signal, spares);
        return outputs.map(({ held, ...output }) => (held ? { ...output, gpu: this.#keep(held) } : output));
      }
      const results = await model.gpu.run(this.#gpuFeeds(feeds, model.gpu), wanted, new Set(keep), signal);
      return results.map((result): Output => {
        if ("data" in result) return result;
        const { type, dims } = result;
        return { data: new Uint8Array(), type, dims, gpu: this.#keep(result) };
      });
    });
  }

  /** Where the feeds of a session's next run may be written ahead of it; undefined where that is not asked for and has not changed. */
  places(id: number, asked: boolean): Places | undefined {
    const places = this.#models.get(id)?.places(asked);
    return places && { session: id, ...places };
  }

  profile(id: number, feeds: readonly Feed[]): Promise<StepTime[]> {
    return this.#queued(async () => {
      const model = this.#model(id);
      return model.gpu
        ? model.gpu.profile(this.#gpuFeeds(feeds, model.gpu))
        : model.profile(
            (await this.#local(feeds)).map((feed) =>
              feed.held ? { ...feed, data: feed.held.room.copy(feed.held.rows) } : feed,
            ),
          );
    });
  }

  #keep(tensor: GpuTensor | Held<CoreRoom>): number {
    this.#tensors.set(this.#nextTensor, tensor);
    return this.#nextTensor++;
  }

  /** The bytes of a tensor that the engine holds. */
  download(tensor: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.#queued(() => this.#bytes(this.#tensor(tensor)));
  }

  async #bytes(tensor: GpuTensor | Held<CoreRoom>): Promise<Uint8Array<ArrayBuffer>> {
    return tensor instanceof Held ? tensor.room.copy(tensor.rows) : tensor.owner.read(tensor);
  }

  /** The buffer of a tensor that stayed on the GPU. */
  bufferOf(tensor: number): GPUBuffer | undefined {
    const found = this.#tensor(tensor);
    if (found instanceof Held) return undefined;
    return found.held?.room.plain(found.held.rows) ?? found.buffer;
  }

  /** Gives the memory of tensors back, after the calls that came before. */
  dispose(tensors: readonly number[]): Promise<void> {
    return this.#queued(async () => {
      for (const tensor of tensors) {
        const found = this.#tensors.get(tensor);
        this.#tensors.delete(tensor);
        if (found instanceof Held) found.release();
        else found?.owner.dispose(found);
      }
    });
  }

  #tensor(tensor: number): GpuTensor | Held<CoreRoom> {
    const found = this.#tensors.get(tensor);
    if (!found) throw new Error("the tensor was disposed");
    return found;
  }

  #gpuFeeds(feeds: readonly Feed[], reader: GpuProgram): GpuFeed[] {
    return feeds.map(({ data, type, dims, gpu, buffer: own }) => {
      if (own) return { data: own as GPUBuffer, bytes: bytesOf(type, elements(dims)), type, dims };
      if (gpu === undefined) return { data, bytes: data.length, type, dims };
      const found = this.#tensor(gpu);
      if (found instanceof Held) {
        const own = found.room.copy(found.rows);
        return { data: own, bytes: own.length, type, dims };
      }
      const { buffer, bytes, owner, held } = found;
      if (owner.gpu.lost) throw owner.gpu.lost;
      if (owner.gpu !== reader.gpu)
        throw new Error("a feed is on another GPU device; pass a tensor of its data: await getData()");
      return { data: buffer, bytes, type, dims, held };
    });
  }

  async #local(feeds: readonly Feed[]): Promise<readonly Feed[]> {
    if (feeds.every(({ gpu }) => gpu === undefined)) return feeds;
    return Promise.all(
      feeds.map(async (feed) => {
        if (feed.gpu === undefined) return feed;
        const found = this.#tensor(feed.gpu);
        return found instanceof Held ? { ...feed, held: found } : { ...feed, data: await this.#bytes(found) };
      }),
    );
  }

  /** The core and the GPU's buffers serve one call at a time. */
  #queued<T>(fn: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(fn);
    this.#queue = result.catch(() => {});
    return result;
  }

  release(id: number): Promise<void> {
    return this.#queued(async () => {
      const model = this.#model(id);
      this.#models.delete(id);
      model.free();
    });
  }

  memoryBytes(): number {
    return this.core.memory.buffer.byteLength + this.#wideBytes();
  }

  stop(): void {
    for (const tensor of this.#tensors.values()) if (!(tensor instanceof Held)) tensor.owner.dispose(tensor);
    this.#tensors.clear();
    this.core.stop();
    void this.#wide?.then((core) => core.stop());
  }

  #model(id: number): Model {
    const model = this.#models.get(id);
    if (!model) throw new Error("the session was released");
    return model;
  }
}
