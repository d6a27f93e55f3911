/** What the viewer asks about a model, wherever the answers come from. */
import type { Description, Size } from "./model.js";

export interface Statistics {
  readonly count: number;
  readonly nan: number;
  readonly inf: number;
  readonly zero: number;
  readonly head: readonly (number | string)[];
  readonly min: number | null;
  readonly max: number | null;
  readonly mean: number | null;
  readonly std: number | null;
  readonly histogram: readonly number[];
}

export interface Shapes {
  readonly values: Readonly<Record<string, readonly [string, readonly Size[], (readonly Size[])?]>>;
  readonly failures: Readonly<Record<string, string>>;
}

export interface RunRequest {
  readonly sizes: Readonly<Record<string, number>>;
  readonly inputs: Readonly<Record<string, { readonly fill: string } | { readonly file: string }>>;
}

export interface RunResult {
  readonly outputs: readonly {
    readonly name: string;
    readonly dtype: string;
    readonly shape: readonly number[];
    readonly statistics: Statistics;
  }[];
  readonly steps: readonly (readonly [string, number])[];
  readonly compile_ms: number;
  readonly first_ms: number;
  readonly ms: number;
  readonly runs: number;
  readonly arena_bytes: number | null;
}

/** The last two axes of a tensor at one index of the others, by even steps where it is large. */
export interface Plane {
  readonly rows: number;
  readonly columns: number;
  readonly planes: number;
  readonly height: number;
  readonly width: number;
  /** float32, in base64. */
  readonly values: string;
}

export interface Documentation {
  readonly doc: string;
  readonly since: number;
  readonly inputs: readonly (readonly [name: string, type: string, text: string])[];
  readonly outputs: readonly (readonly [name: string, type: string, text: string])[];
  readonly attributes: readonly (readonly [name: string, value: string, text: string])[];
  readonly more: string;
  readonly supported: boolean;
}

export type Progress = (read: number, total: number | null) => void;

export interface Knowledge {
  readonly path: string;
  /** Whether shapes, statistics and runs are to be had at once, after asking for the graph. */
  readonly server: boolean;
  /** Starts what can tell more than the graph; absent where nothing can, or where it is there already. */
  readonly more?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** The graph; the file is never held whole. */
  graph(signal: AbortSignal, progress: Progress): Promise<Description>;
  shapes(signal: AbortSignal): Promise<Shapes>;
  weight(name: string, signal: AbortSignal): Promise<Statistics>;
  plane(name: string, index: number, signal: AbortSignal): Promise<Plane>;
  npy(name: string, signal: AbortSignal): Promise<Blob>;
  digests(signal: AbortSignal): Promise<Readonly<Record<string, string>>>;
  operator(domain: string, name: string, opset: number, signal: AbortSignal): Promise<Documentation>;
  run(request: RunRequest, signal: AbortSignal): Promise<RunResult>;
}

/** One question to Python: a method of pyonnx_wasm.lab.worker and its arguments. */
export type Ask = (method: string, given: Readonly<Record<string, unknown>>, signal: AbortSignal) => Promise<unknown>;

/** Knowledge by questions to Python; `file` holds the arguments that name the model. */
export function asking(ask: Ask, file: Readonly<Record<string, unknown>>) {
  return {
    shapes: async (signal: AbortSignal) => (await ask("shapes", file, signal)) as Shapes,
    weight: async (name: string, signal: AbortSignal) => (await ask("weight", { ...file, name }, signal)) as Statistics,
    plane: async (name: string, index: number, signal: AbortSignal) =>
      (await ask("plane", { ...file, name, index }, signal)) as Plane,
    npy: async (name: string, signal: AbortSignal) => {
      const text = (await ask("npy", { ...file, name }, signal)) as string;
      return new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))]);
    },
    digests: async (signal: AbortSignal) => (await ask("digests", file, signal)) as Readonly<Record<string, string>>,
    operator: async (domain: string, name: string, opset: number, signal: AbortSignal) =>
      (await ask("operator", { domain, name, opset }, signal)) as Documentation,
    run: async (request: RunRequest, signal: AbortSignal) =>
      (await ask("run", { ...file, ...request, threads: 1 }, signal)) as RunResult,
  };
}
