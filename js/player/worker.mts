/** The engine: one core and the models in it. As a worker's script it serves the page; in place the page imports it. */
import { Core } from "./core.js";
import type { ValueInfo } from "./format.js";
import { CoreLost, messageOf } from "./errors.js";
import { Model, type Feed, type LoadOptions, type Output, type Progress } from "./model.js";
import type { StepTime } from "./program.js";
import { portSource, urlSource, type Source } from "./source.js";

/** A loaded model as the page sees it. */
export interface Loaded {
  readonly id: number;
  readonly inputs: readonly ValueInfo[];
  readonly outputs: readonly ValueInfo[];
  readonly threads: number;
}

export class Engine {
  readonly #models = new Map<number, Model>();
  #next = 1;

  private constructor(readonly core: Core) {}

  static async start(module: WebAssembly.Module, threads: number, alarms?: readonly MessagePort[]): Promise<Engine> {
    return new Engine(await Core.start(module, threads, alarms));
  }

  async load(source: Source, options: LoadOptions): Promise<Loaded> {
    const model = await Model.load(this.core, source, options);
    const id = this.#next++;
    this.#models.set(id, model);
    return { id, inputs: model.header.inputs, outputs: model.header.outputs, threads: this.core.threads };
  }

  run(id: number, feeds: readonly Feed[], wanted: readonly number[]): Output[] {
    return this.#model(id).run(feeds, wanted);
  }

  profile(id: number, feeds: readonly Feed[]): StepTime[] {
    return this.#model(id).profile(feeds);
  }

  release(id: number): void {
    const model = this.#model(id);
    this.#models.delete(id);
    model.free();
  }

  memoryBytes(): number {
    return this.core.memory.buffer.byteLength;
  }

  stop(): void {
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
  | { readonly op: "load"; readonly source: Remote; readonly external: readonly (Remote & { readonly path: string })[] }
  | {
      readonly op: "run";
      readonly session: number;
      readonly feeds: readonly Feed[];
      readonly wanted: readonly number[];
    }
  | { readonly op: "profile"; readonly session: number; readonly feeds: readonly Feed[] }
  | { readonly op: "release"; readonly session: number }
  | { readonly op: "memory" };

export interface Reply {
  readonly id: number;
  readonly result?: unknown;
  readonly progress?: Progress;
  readonly error?: string;
  /** The core cannot be used any more. */
  readonly lost?: boolean;
}

/** Name that the page gives the worker; tells this script that it is one. */
export const WORKER_NAME = "pyonnx-wasm";

if (typeof document === "undefined" && self.name === WORKER_NAME) serve(self as unknown as MessagePort);

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
      port.postMessage({ id, error: messageOf(error), lost: error instanceof CoreLost } satisfies Reply);
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
      const result = await engine.load(await (begun ?? remote(request.source)), { external, onProgress });
      return { result, transfer: [] };
    }
    case "run": {
      const result = engine.run(request.session, request.feeds, request.wanted);
      return { result, transfer: result.map(({ data }) => data.buffer) };
    }
    case "profile":
      return { result: engine.profile(request.session, request.feeds), transfer: [] };
    case "release":
      return { result: engine.release(request.session), transfer: [] };
    case "memory":
      return { result: engine.memoryBytes(), transfer: [] };
  }
}

async function remote({ port, name, url }: Remote): Promise<Source> {
  return port ? portSource(port, name, url) : urlSource(name);
}
