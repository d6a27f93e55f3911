/** The engine: one core and the models in it, in the page or in its worker. */
import { Core, type Threads } from "./core.js";
import { bytesOf, elements } from "./dtypes.js";
import type { ValueInfo } from "./format.js";
import type { Faces } from "./faces.js";
import type { GpuSettings } from "./env.js";
import type { Gpu } from "./gpu/device.js";
import type { GpuFeed, GpuProgram, GpuTensor } from "./gpu/program.js";
import { loadGpu } from "./gpu-module.js";
import { Model, type Feed, type LoadOptions, type Output } from "./model.js";
import type { Limits } from "./program.js";
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
}

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
  #queue: Promise<unknown> = Promise.resolve();
  #next = 1;
  #nextTensor = 1;

  private constructor(readonly core: Core) {}

  static async start(module: WebAssembly.Module, threads: Threads): Promise<Engine> {
    return new Engine(await Core.start(module, threads));
  }

  /** An engine over a core that others use as well. */
  static over(core: Core): Engine {
    return new Engine(core);
  }

  /** Loads a model onto the first of the backends that can run it. */
  async load(
    source: Source,
    options: Omit<LoadOptions, "openGpu">,
    { backends, gpu: settings, seed, limits }: Target = { backends: ["wasm"] },
  ): Promise<Loaded> {
    const openGpu =
      backends[0] === "webgpu" ? async (): Promise<Gpu> => (await loadGpu()).Gpu.open(settings) : undefined;
    const gpuOptional = backends.includes("wasm");
    const model = await Model.load(this.core, source, { ...options, openGpu, gpuOptional, seed, limits });
    await this.core.settled;
    const id = this.#next++;
    this.#models.set(id, model);
    return {
      id,
      inputs: model.header.inputs,
      outputs: model.header.outputs,
      faces: model.header.faces,
      metadata: model.header.metadata,
      threads: this.core.threads,
      backend: model.gpu ? "webgpu" : "wasm",
      fallback: model.fallback,
      adapter: model.gpu?.gpu.info,
    };
  }

  /** Runs a model; outputs in `keep` stay on the GPU. Calls are served one after the other. */
  run(id: number, feeds: readonly Feed[], wanted: readonly number[], keep: readonly number[] = []): Promise<Output[]> {
    return this.#queued(async () => {
      const model = this.#model(id);
      if (!model.gpu) {
        const outputs = await model.run(await this.#local(feeds), wanted, keep);
        return outputs.map(({ held, ...output }) => (held ? { ...output, gpu: this.#keep(held) } : output));
      }
      const results = await model.gpu.run(this.#gpuFeeds(feeds, model.gpu), wanted, new Set(keep));
      return results.map((result): Output => {
        if ("data" in result) return result;
        const { type, dims } = result;
        return { data: new Uint8Array(), type, dims, gpu: this.#keep(result) };
      });
    });
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

  /** Gives a tensor's memory back, after the calls that came before. */
  dispose(tensor: number): Promise<void> {
    return this.#queued(async () => {
      const found = this.#tensors.get(tensor);
      this.#tensors.delete(tensor);
      if (found instanceof Held) found.release();
      else found?.owner.dispose(found);
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
    return this.core.memory.buffer.byteLength;
  }

  stop(): void {
    for (const tensor of this.#tensors.values()) if (!(tensor instanceof Held)) tensor.owner.dispose(tensor);
    this.#tensors.clear();
    this.core.stop();
  }

  #model(id: number): Model {
    const model = this.#models.get(id);
    if (!model) throw new Error("the session was released");
    return model;
  }
}
