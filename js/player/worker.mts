/** The engine: one core and the models in it. As a worker's script it serves the page; in place the page imports it. */
import { Core } from "./core.js";
import type { ValueInfo } from "./format.js";
import { CoreLost, messageOf } from "./errors.js";
import type { AdapterInfo, Gpu, GpuSettings } from "./gpu/device.js";
import type { GpuFeed, GpuProgram, GpuTensor } from "./gpu/program.js";
import { Model, type Feed, type LoadOptions, type Output, type Progress } from "./model.js";
import type { StepTime } from "./program.js";
import { portSource, urlSource, type Source } from "./source.js";

export type Backend = "wasm" | "webgpu";

/** Where a model is to run. */
export interface Target {
  /** In order of preference. */
  readonly backends: readonly Backend[];
  readonly gpu?: GpuSettings;
}

/** A loaded model as the page sees it. */
export interface Loaded {
  readonly id: number;
  readonly inputs: readonly ValueInfo[];
  readonly outputs: readonly ValueInfo[];
  readonly threads: number;
  readonly backend: Backend;
  /** Why the session does not run on the backend that it was to prefer. */
  readonly fallback?: string | undefined;
  readonly adapter?: AdapterInfo | undefined;
}

export class Engine {
  readonly #models = new Map<number, Model>();
  readonly #tensors = new Map<number, GpuTensor>();
  #queue: Promise<unknown> = Promise.resolve();
  #next = 1;
  #nextTensor = 1;

  private constructor(readonly core: Core) {}

  static async start(module: WebAssembly.Module, threads: number, alarms?: readonly MessagePort[]): Promise<Engine> {
    return new Engine(await Core.start(module, threads, alarms));
  }

  /** An engine over a core that others use as well. */
  static over(core: Core): Engine {
    return new Engine(core);
  }

  /** Loads a model onto the first of the backends that can run it. */
  async load(
    source: Source,
    options: Omit<LoadOptions, "gpu">,
    { backends, gpu: settings }: Target = { backends: ["wasm"] },
  ): Promise<Loaded> {
    let gpu: Gpu | undefined;
    let fallback: string | undefined;
    if (backends[0] === "webgpu") {
      try {
        gpu = await (await import("./gpu.mjs")).Gpu.open(settings);
      } catch (error) {
        if (!backends.includes("wasm")) throw error;
        fallback = messageOf(error);
      }
    }
    const gpuOptional = backends.includes("wasm");
    const model = await Model.load(this.core, source, { ...options, gpu, gpuOptional });
    fallback ??= model.fallback;
    const id = this.#next++;
    this.#models.set(id, model);
    return {
      id,
      inputs: model.header.inputs,
      outputs: model.header.outputs,
      threads: this.core.threads,
      backend: model.gpu ? "webgpu" : "wasm",
      fallback,
      adapter: model.gpu?.gpu.info,
    };
  }

  /** Runs a model; outputs in `keep` stay on the GPU. Calls are served one after the other. */
  run(id: number, feeds: readonly Feed[], wanted: readonly number[], keep: readonly number[] = []): Promise<Output[]> {
    return this.#queued(async () => {
      const model = this.#model(id);
      if (!model.gpu) return model.run(await this.#local(feeds), wanted);
      const results = await model.gpu.run(this.#gpuFeeds(feeds, model.gpu), wanted, new Set(keep));
      return results.map((result): Output => {
        if ("data" in result) return result;
        const { type, dims } = result;
        const tensor = this.#nextTensor++;
        this.#tensors.set(tensor, result);
        return { data: new Uint8Array(), type, dims, gpu: tensor };
      });
    });
  }

  profile(id: number, feeds: readonly Feed[]): Promise<StepTime[]> {
    return this.#queued(async () => {
      const model = this.#model(id);
      return model.gpu ? model.gpu.profile(this.#gpuFeeds(feeds, model.gpu)) : model.profile(await this.#local(feeds));
    });
  }

  /** The bytes of a tensor that stayed on the GPU. */
  download(tensor: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.#queued(async () => {
      const { owner, buffer, bytes } = this.#tensor(tensor);
      return (await owner.gpu.read([{ buffer, bytes }]))[0] as Uint8Array<ArrayBuffer>;
    });
  }

  /** Gives a tensor's GPU memory back, after the calls that came before. */
  dispose(tensor: number): Promise<void> {
    return this.#queued(async () => {
      const found = this.#tensors.get(tensor);
      this.#tensors.delete(tensor);
      found?.owner.dispose(found);
    });
  }

  #tensor(tensor: number): GpuTensor {
    const found = this.#tensors.get(tensor);
    if (!found) throw new Error("the tensor on the GPU was disposed");
    return found;
  }

  #gpuFeeds(feeds: readonly Feed[], reader: GpuProgram): GpuFeed[] {
    return feeds.map(({ data, type, dims, gpu }) => {
      if (gpu === undefined) return { data, bytes: data.length, type, dims };
      const { buffer, bytes, owner } = this.#tensor(gpu);
      if (owner.gpu.lost) throw owner.gpu.lost;
      if (owner.gpu !== reader.gpu)
        throw new Error("a feed is on another GPU device; pass a tensor of its data: await getData()");
      return { data: buffer, bytes, type, dims };
    });
  }

  async #local(feeds: readonly Feed[]): Promise<readonly Feed[]> {
    if (feeds.every(({ gpu }) => gpu === undefined)) return feeds;
    return Promise.all(
      feeds.map(async (feed) => {
        if (feed.gpu === undefined) return feed;
        const { owner, buffer, bytes } = this.#tensor(feed.gpu);
        return { ...feed, data: (await owner.gpu.read([{ buffer, bytes }]))[0] as Uint8Array };
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
    for (const tensor of this.#tensors.values()) tensor.owner.dispose(tensor);
    this.#tensors.clear();
    this.core.stop();
  }

  #model(id: number): Model {
    const model = this.#models.get(id);
    if (!model) throw new Error("the session was released");
    return model;
  }
}

/** Where the worker reads a file from: an address, or a port that the page serves. */
export interface Remote {
  readonly name: string;
  readonly port?: MessagePort;
  /** Address that the port's bytes came from, if there is one. */
  readonly url?: string;
}

export type Request =
  /** Sent ahead of "start": begins to fetch what "load" will ask for. */
  | { readonly op: "open"; readonly name: string }
  | {
      readonly op: "start";
      readonly module: WebAssembly.Module;
      readonly threads: number;
      readonly alarms: readonly MessagePort[];
    }
  | {
      readonly op: "load";
      readonly source: Remote;
      readonly external: readonly (Remote & { readonly path: string })[];
      readonly target: Target;
    }
  | {
      readonly op: "run";
      readonly session: number;
      readonly feeds: readonly Feed[];
      readonly wanted: readonly number[];
      /** Outputs that stay on the GPU. */
      readonly keep: readonly number[];
    }
  | { readonly op: "download" | "dispose"; readonly tensor: number }
  | { readonly op: "profile"; readonly session: number; readonly feeds: readonly Feed[] }
  | { readonly op: "release"; readonly session: number }
  | { readonly op: "memory" };

export interface Reply {
  readonly id: number;
  readonly result?: unknown;
  readonly progress?: Progress;
  readonly error?: string;
  /** Class of the error. */
  readonly name?: string;
  /** The core cannot be used any more. */
  readonly lost?: boolean;
}

/** Name that the page gives the worker; tells this script that it is one. */
export const WORKER_NAME = "pyonnx-wasm";

if (typeof document === "undefined" && (globalThis as { name?: string }).name === WORKER_NAME)
  serve(self as unknown as MessagePort);

function serve(port: MessagePort): void {
  let engine: Engine | undefined;
  const early = new Map<string, Promise<Source>>();
  port.onmessage = async ({ data }: MessageEvent<Request & { id: number }>) => {
    const { id } = data;
    try {
      if (data.op === "open") {
        const source = urlSource(data.name);
        source.catch(() => {});
        early.set(data.name, source);
        return;
      }
      if (data.op === "start") {
        engine = await Engine.start(data.module, data.threads, data.alarms);
        port.postMessage({ id } satisfies Reply);
        return;
      }
      if (!engine) throw new Error("the engine has not started");
      const { result, transfer } = await handle(engine, data, early, (progress) => port.postMessage({ id, progress }));
      port.postMessage({ id, result } satisfies Reply, transfer);
    } catch (error) {
      const name = error instanceof Error ? error.name : "Error";
      port.postMessage({ id, error: messageOf(error), name, lost: error instanceof CoreLost } satisfies Reply);
    }
  };
}

async function handle(
  engine: Engine,
  request: Exclude<Request, { op: "start" | "open" }>,
  early: Map<string, Promise<Source>>,
  onProgress: (progress: Progress) => void,
): Promise<{ result: unknown; transfer: Transferable[] }> {
  switch (request.op) {
    case "load": {
      const external = (file: string): Promise<Source> | undefined => {
        const found = request.external.find(({ path }) => path === file);
        return found && remote(found);
      };
      const { name } = request.source;
      const begun = early.get(name);
      early.delete(name);
      const result = await engine.load(
        await (begun ?? remote(request.source)),
        { external, onProgress },
        request.target,
      );
      return { result, transfer: [] };
    }
    case "run": {
      const result = await engine.run(request.session, request.feeds, request.wanted, request.keep);
      return { result, transfer: result.map(({ data }) => data.buffer) };
    }
    case "profile":
      return { result: await engine.profile(request.session, request.feeds), transfer: [] };
    case "download": {
      const result = await engine.download(request.tensor);
      return { result, transfer: [result.buffer] };
    }
    case "dispose":
      return { result: await engine.dispose(request.tensor), transfer: [] };
    case "release":
      return { result: await engine.release(request.session), transfer: [] };
    case "memory":
      return { result: engine.memoryBytes(), transfer: [] };
  }
}

async function remote({ port, name, url }: Remote): Promise<Source> {
  return port ? portSource(port, name, url) : urlSource(name);
}
