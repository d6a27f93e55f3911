/** The player in this page: one for all widgets, its core and the compiled models fetched from the kernel once per browser. */
import * as player from "../player/index.js";
import type { Answers, Asked } from "../player/asked.js";
import { messageOf } from "../player/errors.js";
import { hasRelaxedSimd } from "../player/module.js";
import { fetchBytes, fetchModel, forget, type Blob, type Transfer } from "./cache.js";
import { inKernel } from "./operators.js";
import type { Caller } from "./rpc.js";

export { fetchModel, type Blob, type Transfer } from "./cache.js";

export interface AdapterInfo {
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  /** It is a processor that plays GPU. */
  readonly software: boolean;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
}

/** What this browser can do, as the kernel sees it. */
export interface BrowserInfo {
  readonly userAgent: string;
  readonly isSecureContext: boolean;
  readonly crossOriginIsolated: boolean;
  readonly processors: number;
  readonly relaxedSimd: boolean;
  readonly cache: boolean;
  readonly adapter: AdapterInfo | null;
  /** Why there is no WebGPU adapter. */
  readonly noAdapter: string;
}

/** A model as the kernel names it: its file, and the backends wanted for it. */
export interface ModelRef extends Blob {
  readonly providers?: readonly string[];
}

export interface Engine {
  readonly player: typeof player;
  readonly info: BrowserInfo;
  /**
   * Opens a model, or joins whoever has it open; `release` once for each call. A model is kept for the next time once it is open,
   * so `onProgress` may hear after that that it is not.
   */
  open(rpc: Caller, model: ModelRef, onProgress?: (progress: OpenProgress) => void): Promise<player.InferenceSession>;
  release(model: ModelRef): Promise<void>;
}

export type OpenProgress = Transfer | Parameters<NonNullable<player.SessionOptions["onProgress"]>>[0];

interface Opened {
  readonly session: Promise<player.InferenceSession>;
  readonly listeners: Set<(progress: OpenProgress) => void>;
  users: number;
}

const KEY = Symbol.for("pyonnx_wasm");
const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupsPerDimension",
];

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render|warp/i;

declare const BUILD: string;

/** The engine of this page, started by the first who asks. */
export function engine(rpc: Caller): Promise<Engine> {
  const page = globalThis as { [KEY]?: { build: string; engine: Promise<Engine> } };
  if (page[KEY]?.build === BUILD) return page[KEY].engine;
  const started = { build: BUILD, engine: start(rpc) };
  page[KEY] = started;
  started.engine.catch(() => {
    if (page[KEY] === started) delete page[KEY];
  });
  return started.engine;
}

async function start(rpc: Caller): Promise<Engine> {
  const file = hasRelaxedSimd() ? "core-relaxed.wasm" : "core.wasm";
  const core = rpc.call("asset", { name: file }).then(({ json }) => fetchBytes(rpc, json as Blob));
  const [binary, info] = await Promise.all([core, browserInfo()]);
  player.env.wasm.wasmBinary = binary;
  const opened = new Map<string, Opened>();
  const keyOf = ({ sha256, providers = [] }: ModelRef): string => [sha256, ...providers].join(" ");
  return {
    player,
    info,
    async open(rpc, model, onProgress = () => {}) {
      const key = keyOf(model);
      let entry = opened.get(key);
      if (!entry) {
        const listeners = new Set<(progress: OpenProgress) => void>();
        const tell = (progress: OpenProgress): void => listeners.forEach((listener) => listener(progress));
        entry = { session: openModel(rpc, model, tell), listeners, users: 0 };
        opened.set(key, entry);
      }
      const mine = entry;
      mine.users++;
      mine.listeners.add(onProgress);
      try {
        return await mine.session;
      } catch (error) {
        if (opened.get(key) === mine) opened.delete(key);
        throw error;
      }
    },
    async release(model) {
      const entry = opened.get(keyOf(model));
      if (!entry || --entry.users > 0) return;
      opened.delete(keyOf(model));
      await (await entry.session).release();
    },
  };
}

async function openModel(
  rpc: Caller,
  model: ModelRef,
  onProgress: (progress: OpenProgress) => void,
): Promise<player.InferenceSession> {
  let cached = false;
  const create = async (): Promise<player.InferenceSession> => {
    const source = await fetchModel(rpc, model, (transfer) => {
      cached = transfer.from === "cache";
      onProgress(transfer);
    });
    const executionProviders = model.providers?.length ? model.providers : ["wasm"];
    const otherwise = (asked: Asked): Promise<Answers> => inKernel(rpc, asked);
    return player.InferenceSession.create(source, { executionProviders, onProgress, otherwise });
  };
  try {
    return await create();
  } catch (error) {
    if (!cached) throw error;
    await forget(model);
    return create();
  }
}

let asked: Promise<BrowserInfo> | undefined;

export function browserInfo(): Promise<BrowserInfo> {
  return (asked ??= findInfo());
}

async function findInfo(): Promise<BrowserInfo> {
  const { adapter, noAdapter } = await findAdapter();
  return {
    userAgent: navigator.userAgent,
    isSecureContext: globalThis.isSecureContext,
    crossOriginIsolated: globalThis.crossOriginIsolated ?? false,
    processors: navigator.hardwareConcurrency || 1,
    relaxedSimd: hasRelaxedSimd(),
    cache: "caches" in globalThis,
    adapter,
    noAdapter,
  };
}

interface Adapter {
  readonly info: Record<string, unknown>;
  readonly features: Iterable<string>;
  readonly limits: Record<string, number>;
}

async function findAdapter(): Promise<{ adapter: AdapterInfo | null; noAdapter: string }> {
  const none = (noAdapter: string) => ({ adapter: null, noAdapter });
  const { gpu } = navigator as { gpu?: { requestAdapter(): Promise<Adapter | null> } };
  if (!gpu)
    return none(
      isSecureContext
        ? "this browser has no WebGPU"
        : "WebGPU needs a secure context: open the notebook through https or localhost",
    );
  try {
    const adapter = await gpu.requestAdapter();
    if (!adapter) return none("the browser offers no GPU adapter");
    const { info, features, limits } = adapter;
    const text = (key: string): string => String(info?.[key] ?? "");
    return {
      adapter: {
        vendor: text("vendor"),
        architecture: text("architecture"),
        device: text("device"),
        description: text("description"),
        software:
          info?.["isFallbackAdapter"] === true || SOFTWARE.test(["architecture", "description"].map(text).join()),
        features: [...features],
        limits: Object.fromEntries(LIMITS.map((name) => [name, limits[name] ?? 0])),
      },
      noAdapter: "",
    };
  } catch (error) {
    return none(messageOf(error));
  }
}
