/** What a widget needs from outside: the model somewhere it can run, and Python. */
import type { Tensors } from "./tensor.js";

/** A model that runs somewhere. */
export interface Runnable {
  /** Which backend, for people: "wasm · one thread". */
  readonly label: string;
  /** Why not a faster one. */
  readonly reason?: string | undefined;
  run(feeds: Tensors): Promise<Tensors>;
  /** What the latest run took where it ran, in milliseconds, if that is not here: the way there and back is apart. */
  readonly inside?: (() => number | undefined) | undefined;
  /** The player's session, where the model runs in this page. */
  readonly session?: unknown;
  profile?(feeds: Tensors): Promise<Step[]>;
  release(): Promise<void>;
}

export interface Step {
  /** The ONNX nodes that the step came from. */
  readonly name: string;
  readonly kernel: string;
  readonly ms: number;
  /** Milliseconds from the run's beginning; steps follow one another if absent. */
  readonly start?: number;
  readonly bytes?: number;
  /** Where the step ran. */
  readonly backend?: string;
}

export type Report = (progress: {
  readonly loaded: number;
  readonly total?: number | undefined;
  readonly what: string;
}) => void;

export interface Host {
  /** Backends by name, the preferred one first. */
  readonly backends: readonly string[];
  /** Calls back with the seconds for which the kernel has answered nothing, and with 0 when it does again; returns what ends that. */
  onStall?(listener: (seconds: number) => void): () => void;
  /** Another order of backends than asked for, with the reason; undefined where there is none. */
  prefer?(
    backends: readonly string[],
  ): Promise<{ readonly order: readonly string[]; readonly reason: string } | undefined>;
  load(backend: string, report: Report, signal: AbortSignal): Promise<Runnable>;
  /** What Python makes of inputs or of results; `text` is for people. */
  change?(op: "before" | "after", tensors: Tensors): Promise<{ readonly tensors: Tensors; readonly text: string }>;
  /** Gives Python what its trait `value` takes. */
  send?(results: Tensors): Promise<void>;
}
