/** What a run of a model takes and gives. */
import type { Type } from "./dtypes.js";
import type { CoreRoom, Held } from "./state.js";

/** One input, contiguous and row-major, in the order of the signature; strings are two, their spans and their pool. */
export interface Feed {
  readonly data: Uint8Array;
  readonly type: Type;
  readonly dims: readonly number[];
  /** Set where `data` is the engine's alone: once it is read, its memory is given up, or returns with the run's answer. */
  readonly after?: "drop" | "return";
  /** Bytes of it that lie in their place in the core's memory already; `data` is empty then. */
  readonly placed?: number;
  /** Set for a tensor that the engine holds; `data` is empty then. */
  readonly gpu?: number | undefined;
  /** What that is in the core's memory. */
  readonly held?: Held<CoreRoom> | undefined;
  /** A buffer of the page's own device, for an engine in the page; `data` is empty then. */
  readonly buffer?: unknown;
}

export interface Output {
  readonly data: Uint8Array<ArrayBuffer>;
  /** Set for an output that the engine holds; `data` is empty then. */
  readonly gpu?: number | undefined;
  /** What that is in the core's memory. */
  readonly held?: Held<CoreRoom> | undefined;
  readonly type: Type;
  readonly dims: readonly number[];
}
