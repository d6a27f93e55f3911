/** The bridge's widget: runs the kernel's models in this page; its view is the badge. */
import { arrayOf, isType } from "../player/dtypes.js";
import { messageOf } from "../player/errors.js";
import type { InferenceSession, Tensor } from "../player/index.js";
import { browserInfo, engine, type Engine, type ModelRef, type OpenProgress } from "./engine.js";
import { onKernelChange } from "./kernel.js";
import { addProbes } from "./probe.js";
import { Rpc, type AnyModel, type Answer, type Request } from "./rpc.js";
import { renderStatus, Status, type State } from "./status.js";
import { Turns } from "./turns.js";
import { stringsOf, stringsTensor, type WireTensor } from "./wire.js";

interface Named extends ModelRef {
  readonly name: string;
}

interface Args {
  readonly model: AnyModel;
  readonly el: HTMLElement;
}

// A module of its own is loaded for every widget, so this is the state of one bridge.
const status = new Status();

class Bridge {
  readonly rpc: Rpc;
  readonly #open = new Map<string, Promise<InferenceSession>>();
  readonly #origins = new Map<string, Partial<State>>();
  /** The player's own queue cannot be taken back from, so calls wait here. */
  readonly #turns = new Turns();
  /** The model that runs, or none: the status is that of this one, whatever loads meanwhile. */
  #running = "";
  #engine: Promise<Engine> | undefined;

  constructor(model: AnyModel) {
    this.rpc = new Rpc(model, {
      onRefused: (problem) => status.set({ phase: "failed", problem }),
      onAlive: () => {
        if (status.state.phase === "connecting") status.set({ phase: "ready", problem: "" });
        if (status.state.stalled) status.set({ stalled: 0 });
      },
      onActive: (active) => status.set({ standby: !active }),
      onStall: (seconds) => status.set({ stalled: seconds }),
    });
    this.rpc.handle("open", async ({ json, progress }) => ({
      json: described(await this.#session(modelRef(json), progress)),
    }));
    this.rpc.handle("run", (request) => this.#run(request));
    this.rpc.handle("profile", (request) => this.#profile(request));
    addProbes(this.rpc);
    this.rpc.handle("close", ({ json }) => this.#close(modelRef(json)));
    void browserInfo().then((info) => {
      status.set({ info });
      this.rpc.announce(info);
    });
  }

  async stop(reason: string): Promise<void> {
    this.rpc.close(reason);
    status.set({ phase: "gone", problem: reason });
    const started = await this.#engine?.catch(() => undefined);
    for (const key of this.#open.keys()) void started?.release(JSON.parse(key) as ModelRef).catch(() => {});
    this.#open.clear();
  }

  /** One engine in the page; a start that failed is tried again by the next call. */
  #started(): Promise<Engine> {
    this.#engine ??= engine(this.rpc);
    this.#engine.catch(() => (this.#engine = undefined));
    return this.#engine;
  }

  #session(model: Named, progress: (json: unknown) => void): Promise<InferenceSession> {
    const key = keyOf(model);
    let session = this.#open.get(key);
    if (!session) {
      session = this.#load(model, progress);
      this.#open.set(key, session);
      session.catch(() => this.#open.delete(key));
    }
    return session;
  }

  async #load(model: Named, progress: (json: unknown) => void): Promise<InferenceSession> {
    if (!this.#running)
      status.set({ phase: "loading", problem: "", model: model.name, loaded: 0, total: 0, from: "", uncached: "" });
    const shown = (): boolean => !this.#running && status.state.model === model.name;
    const key = keyOf(model);
    this.#origins.delete(key);
    const tell = (report: OpenProgress): void => {
      const origin: Partial<State> = {
        ...("loaded" in report && { loaded: report.loaded, total: report.total }),
        ...("from" in report && { from: report.from, uncached: report.uncached ?? "" }),
      };
      this.#origins.set(key, { ...this.#origins.get(key), ...origin });
      if (shown() || this.#running === key) status.set(origin);
      progress(report);
    };
    try {
      const session = await (await this.#started()).open(this.rpc, model, tell);
      if (shown()) status.set({ phase: "ready", ...where(session) });
      return session;
    } catch (error) {
      if (shown()) status.set({ phase: "failed", problem: messageOf(error) });
      throw error;
    }
  }

  async #run({ json, tensors, progress, signal }: Request): Promise<Answer> {
    const { model, outputs } = json as { model: unknown; outputs: unknown };
    if (!Array.isArray(outputs) || !outputs.every((name) => typeof name === "string"))
      throw new TypeError("run needs the names of the outputs");
    const ref = modelRef(model);
    const session = await this.#session(ref, progress);
    const { player } = await this.#started();
    return this.#turns.take(async () => {
      const feeds = Object.fromEntries(tensors.map((tensor) => [tensor.name, tensorOf(player.Tensor, tensor)]));
      const origin = this.#origins.get(keyOf(ref));
      this.#running = keyOf(ref);
      status.set({ phase: "running", problem: "", model: ref.name, ...where(session), ...origin });
      const begin = performance.now();
      try {
        const results = await session.runTensors(feeds, outputs as string[], signal);
        const ms = performance.now() - begin;
        status.set({ phase: "ready", ms, runs: status.state.runs + 1 });
        const buffers = outputs.map((name) => wireTensor(name, results[name] as Tensor));
        return { json: { ...where(session), ms }, buffers };
      } catch (error) {
        status.set(signal.aborted ? { phase: "ready" } : { phase: "failed", problem: messageOf(error) });
        throw error;
      } finally {
        this.#running = "";
      }
    }, signal);
  }

  /** What each step takes, after a run that warms up: as often as the kernel says, or until a quarter of a second is full. */
  async #profile({ json, tensors, progress, signal }: Request): Promise<Answer> {
    const { model, runs } = json as { model: unknown; runs: number | null };
    const ref = modelRef(model);
    const session = await this.#session(ref, progress);
    const { player } = await this.#started();
    const feeds = Object.fromEntries(tensors.map((tensor) => [tensor.name, tensorOf(player.Tensor, tensor)]));
    return this.#turns.take(async () => {
      this.#running = keyOf(ref);
      status.set({ phase: "running", problem: "", model: ref.name, ...where(session) });
      try {
        const first = (await session.profile(feeds)).reduce((sum, { ms }) => sum + ms, 0);
        const times: number[][] = [];
        const begin = performance.now();
        let steps: Awaited<ReturnType<InferenceSession["profile"]>> = [];
        while (
          !signal.aborted &&
          (runs == null ? more(times.length, performance.now() - begin) : times.length < runs)
        ) {
          steps = await session.profile(feeds);
          times.push(steps.map(({ ms }) => ms));
          progress({ runs: times.length });
        }
        const named = steps.map(({ name, kernel, backend, bytes }) => ({ name, kernel, backend, bytes: bytes ?? 0 }));
        return { json: { ...where(session), first, times, steps: named } };
      } finally {
        this.#running = "";
        status.set({ phase: "ready" });
      }
    }, signal);
  }

  async #close(model: Named): Promise<void> {
    if (!this.#open.delete(keyOf(model))) return;
    const { release } = await this.#started();
    await this.#turns.take(() => release(model));
  }
}

/** Five to a hundred runs, a quarter of a second or a little more. */
function more(runs: number, ms: number): boolean {
  return !runs || (ms < 2000 && runs < 100 && (runs < 5 || ms < 250));
}

/** What identifies a model, as text. */
function keyOf({ sha256, bytes, providers = [] }: ModelRef): string {
  return JSON.stringify({ sha256, bytes, providers });
}

function modelRef(json: unknown): Named {
  const { sha256, bytes, providers = [], name } = (json ?? {}) as Record<string, unknown>;
  const named = typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256) && Number.isSafeInteger(bytes);
  if (!named || !Array.isArray(providers) || !providers.every((p) => typeof p === "string"))
    throw new TypeError("a model is named by sha256, bytes and providers");
  return { sha256, bytes: bytes as number, providers, name: String(name ?? "model") };
}

function where({ backend, fallback = "", threads }: InferenceSession): Pick<State, "backend" | "fallback" | "threads"> {
  return { backend, fallback, threads };
}

function described(session: InferenceSession): unknown {
  return { ...where(session), inputs: session.inputMetadata, outputs: session.outputMetadata };
}

function tensorOf(tensor: typeof Tensor, given: WireTensor): Tensor {
  const { dtype, dims, data } = given;
  if (dtype === "string") return new tensor(dtype, stringsOf(given), dims);
  if (!isType(dtype)) throw new TypeError(`dtype ${String(dtype)}`);
  const array = arrayOf(dtype);
  const { buffer, byteOffset, byteLength } = data.byteOffset % array.BYTES_PER_ELEMENT ? data.slice() : data;
  return new tensor(dtype as Tensor.Type, new array(buffer, byteOffset, byteLength / array.BYTES_PER_ELEMENT), dims);
}

function wireTensor(name: string, { type, dims, data }: Tensor): WireTensor {
  if (type === "string") return stringsTensor(name, data as string[], dims);
  if (!isType(type) || !ArrayBuffer.isView(data)) throw new TypeError(`output "${name}": ${type} does not travel`);
  return { name, dtype: type, dims, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
}

function initialize({ model }: Args): () => void {
  const bridge = new Bridge(model);
  const lost = (): void => void bridge.stop("the kernel was restarted or shut down; run the notebook again");
  // Said of a model when its connection is cut; it was there when the model was made.
  model.on("comm_live_update", lost);
  model.on("destroy", lost);
  const stop = onKernelChange(model, lost);
  return () => {
    stop();
    model.off("comm_live_update", lost);
    model.off("destroy", lost);
    void bridge.stop("the widget was closed");
  };
}

function render({ el }: Args): () => void {
  return renderStatus(el, status);
}

export default { initialize, render };
