/** Inputs and outputs of models that are more than a tensor. */
import type { TensorType } from "./tensor.js";

/** An input or output of a model. */
export interface Face {
  readonly name: string;
  readonly type: TensorType;
  /** Of a tensor, or of those of a sequence; undefined: of any rank. */
  readonly shape: readonly (number | string)[] | undefined;
  readonly sequence: boolean;
  readonly optional: boolean;
  /** Of a sequence of maps: the rows of a matrix, an element per key. */
  readonly keys?: readonly (string | bigint)[] | undefined;
  /** Of one map: the type of its keys; `type` is that of its values. */
  readonly key?: "int64" | "string" | undefined;
}

export interface Faces {
  readonly inputs: readonly Face[];
  readonly outputs: readonly Face[];
}

export const isPlain = ({ sequence, optional, keys, key }: Face): boolean => !sequence && !optional && !keys && !key;

/** The names of the tensors that a value is made of. */
export function tensorsOf(face: Face): string[] {
  const { name, sequence, optional, key } = face;
  if (key) return [`${name}/keys`, name];
  return [...(optional ? [`${name}/present`] : []), name, ...(sequence ? [`${name}/shapes`] : [])];
}

/** What a value is, for errors and signatures. */
export function typeText({ type, sequence, optional, keys, key }: Face): string {
  if (key) return `map(${key},tensor(${type}))`;
  if (keys) return `seq(map(${typeof keys[0] === "bigint" ? "int64" : "string"},tensor(${type})))`;
  const text = sequence ? `seq(tensor(${type}))` : `tensor(${type})`;
  return optional ? `optional(${text})` : text;
}
