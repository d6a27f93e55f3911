/** What a run asks of its host between steps of the core. */
import type { Type } from "./dtypes.js";

/** An operator's node, as the compiled file names it. */
export interface Callback {
  readonly domain: string;
  readonly op: string;
  readonly node: string;
  /** Which of the operator's inputs are given. */
  readonly present: readonly boolean[];
  readonly attributes: Readonly<Record<string, unknown>>;
}

/** Bytes of a tensor. */
export interface Plain {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** One call: the inputs that are given, type and rank of each output; undefined: nobody wants it. */
export interface Asked {
  readonly callback: Callback;
  readonly inputs: readonly Plain[];
  readonly outputs: readonly ({ readonly type: Type; readonly rank: number } | undefined)[];
}

export type Answers = readonly (Plain | undefined)[];

export function shownNode({ domain, op, node }: Callback): string {
  return `node ${node} (${domain || "ai.onnx"}.${op})`;
}

export function missing(callback: Callback): Error {
  const domain = callback.domain ? `, { domain: "${callback.domain}" }` : "";
  return new Error(
    `${shownNode(callback)}: no function is registered here to run it; register one before the model runs: ` +
      `registerOperator("${callback.op}", (inputs, attributes) => ...${domain})`,
  );
}
