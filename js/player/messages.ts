/** What page and worker say to each other. */
import type { Answers, Asked } from "./asked.js";
import type { ThreadStart } from "./core.js";
import type { Target } from "./engine.mjs";
import type { Feed } from "./feed.js";
import type { Places } from "./places.js";
import type { Progress } from "./types.js";

/** Where the worker reads a file from: an address, or a port that the page serves. */
export interface Remote {
  readonly name: string;
  readonly port?: MessagePort;
  /** Its number, where the engine has it already. */
  readonly staged?: number;
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
      /** Address of the part for WebGPU; undefined where the script holds it. */
      readonly gpu: string | undefined;
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
      /** Whether the page, which does not know them, would have the places of the session's inputs. */
      readonly asks: boolean;
      /** Memory for its outputs. */
      readonly spares: ArrayBuffer[];
    }
  /** What a reply asked for: the core with 64-bit addresses. */
  | { readonly op: "core64"; readonly module?: WebAssembly.Module; readonly error?: string }
  /** A thread that a reply asked for works, or does not. */
  | { readonly op: "joined"; readonly thread: number; readonly error?: string | undefined }
  /** What a reply asked for. */
  | { readonly op: "answer"; readonly call: number; readonly answers?: Answers; readonly error?: string }
  /** A run that is given up. */
  | { readonly op: "cancel"; readonly call: number }
  | { readonly op: "download"; readonly tensor: number }
  /** No answer comes to it. */
  | { readonly op: "dispose"; readonly tensors: readonly number[] }
  | { readonly op: "profile"; readonly session: number; readonly feeds: readonly Feed[] }
  | { readonly op: "release"; readonly session: number }
  /** Reads a file of so many bytes before it is compiled. */
  | { readonly op: "stage"; readonly source: Remote; readonly bytes: number }
  | { readonly op: "staged"; readonly staged: number; readonly start: number; readonly end: number }
  | { readonly op: "unstage"; readonly staged: number }
  | { readonly op: "memory" };

export interface Inside {
  readonly node: string;
  readonly ms: number;
}

export interface Reply {
  readonly id: number;
  readonly result?: unknown;
  /** Memory of feeds that were to return. */
  readonly read?: readonly ArrayBuffer[];
  /** What a run asked for, or what has changed. */
  readonly places?: Places | undefined;
  readonly progress?: Progress;
  /** What the host of a session is to do; `id` is that of the request which loaded it. */
  readonly asked?: Asked & { readonly call: number };
  /** The worker needs the core with 64-bit addresses. */
  readonly wants?: "core64";
  /** The worker needs a thread, which gets the number; without `start` it needs that no more. */
  readonly thread?: { readonly number: number; readonly start?: ThreadStart };
  readonly error?: string;
  /** Class of the error. */
  readonly name?: string;
  /** A module of a file's own begins, which may take so long; null: it has ended. */
  readonly inside?: Inside | null;
  /** The core cannot be used any more. */
  readonly lost?: boolean;
}

/** What a worker hears first: it says what the worker is to be. */
export type First =
  | (Request & { readonly id: number })
  | ThreadStart
  /** A module whose `serve` takes the port. */
  | { readonly op: "serve"; readonly script: string };
