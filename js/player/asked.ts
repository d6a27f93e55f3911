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
  /** The attributes that are tensors, which follow the inputs. */
  readonly tensors: readonly string[];
  /** Of each output, where the last input holds the sizes of all of them, -1 for those that are data. */
  readonly outputs: readonly Kind[];
  readonly wasm: WasmInfo | undefined;
  /** A GPU runs it in place of this step. */
  readonly wgsl: boolean;
}

/** The function of a module that runs an operator; PROGRAM.md §10. */
export interface WasmInfo {
  /** By number, of the file's modules. */
  readonly module: number;
  readonly name: string;
  /** In the order in which it takes them. */
  readonly attributes: readonly string[];
}

export interface Kind {
  readonly type: Type;
  readonly rank: number;
}

/** Bytes of a tensor. */
export interface Plain {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** One call: the inputs that are given, type and rank of each output; undefined: nobody wants it. */
export interface Asked {
  /** Of the callback, among those of its Program. */
  readonly number: number;
  readonly callback: Callback;
  readonly inputs: readonly Plain[];
  readonly outputs: readonly (Kind | undefined)[];
}

export type Answers = readonly (Plain | undefined)[];

/** What is asked, as the operator takes it. */
export interface Arguments {
  readonly inputs: readonly (Plain | undefined)[];
  /** Attributes that are tensors. */
  readonly tensors: ReadonlyMap<string, Plain>;
  /** Of the outputs, undefined where unknown; -1: that size is data. */
  readonly shapes: readonly (readonly number[] | undefined)[];
}

export function shownNode({ domain, op, node }: Callback): string {
  return `node ${node} (${domain || "ai.onnx"}.${op})`;
}

export function missing(callback: Callback): Error {
  const domain = callback.domain ? `, { domain: "${callback.domain}" }` : "";
  const wgsl = callback.wgsl ? ", and its WGSL runs on webgpu alone" : "";
  return new Error(
    `${shownNode(callback)}: no function is registered here to run it${wgsl}; register one before the model runs: ` +
      `registerOperator("${callback.op}", (inputs, attributes) => ...${domain})`,
  );
}

/** What a step gives, by what it is. */
export function argumentsOf({ callback, inputs, outputs }: Asked): Arguments {
  const { present, tensors, outputs: told } = callback;
  const count = present.filter(Boolean).length;
  const fail = (text: string): never => {
    throw new Error(`${shownNode(callback)}: the file is damaged: ${text}`);
  };
  if (inputs.length !== count + tensors.length + (told.length ? 1 : 0)) fail(`the step has ${inputs.length} inputs`);
  let at = 0;
  const given = present.map((there) => (there ? inputs[at++] : undefined));
  const named = new Map(tensors.map((name) => [name, inputs[at++] as Plain]));
  if (!told.length) return { inputs: given, tensors: named, shapes: outputs.map(() => undefined) };
  const { data, type } = inputs[at] as Plain;
  const sizes = type === "int64" ? Array.from(new BigInt64Array(data.slice().buffer), Number) : [];
  const same = told.every(({ type, rank }, k) => !outputs[k] || (outputs[k].type === type && outputs[k].rank === rank));
  if (told.length !== outputs.length || !same || sizes.length !== told.reduce((n, { rank }) => n + rank, 0))
    fail("the step's outputs are others");
  const shapes = told.map(({ rank }) => sizes.splice(0, rank));
  return { inputs: given, tensors: named, shapes };
}

/** What is wrong with the dims of an output where others were declared; empty for nothing. */
export function unfit(told: readonly number[] | undefined, dims: readonly number[]): string {
  if (!told || told.every((want, i) => want === -1 || want === dims[i])) return "";
  const declared = told.map((n) => (n < 0 ? "?" : n)).join(", ");
  return `has the shape [${dims.join(", ")}], declared is [${declared}]`;
}
