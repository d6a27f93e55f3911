/** Tensors as traits hold them, for links between widgets: by name `{ type, dims, data }`, data as bytes. */
import { arrayOf } from "../../player/dtypes.js";
import type { Tensors, Type, Value } from "../ui/tensor.js";

export type Linked = Readonly<
  Record<string, { readonly type: Type; readonly dims: readonly number[]; readonly data: unknown }>
>;

/** Bytes beyond which a result is no trait: front ends send those in one message. */
const LARGEST = 4 << 20;

export function linked(tensors: Tensors): Linked | undefined {
  const all = Object.entries(tensors);
  const plain = all.every(([, { data }]) => ArrayBuffer.isView(data));
  if (!plain || all.reduce((sum, [, { data }]) => sum + data.byteLength, 0) > LARGEST) return undefined;
  const own = ({ data }: Tensors[string]): DataView => new DataView(data.slice().buffer);
  return Object.fromEntries(all.map(([name, t]) => [name, { type: t.type, dims: [...t.dims], data: own(t) }]));
}

/** The tensors for these inputs: by name, or the only one for the only input. Throws an error that says what does not fit. */
export function unlinked(given: Linked, inputs: readonly Value[]): Tensors {
  const entries = Object.entries(given);
  const found: Record<string, Tensors[string]> = {};
  for (const [name, { type, dims, data }] of entries) {
    const value =
      inputs.find((v) => v.name === name) ?? (entries.length === 1 && inputs.length === 1 ? inputs[0] : undefined);
    if (!value) throw new Error(`"${name}" is no input; the model takes ${inputs.map((v) => v.name).join(", ")}`);
    const fits = dims.length === value.shape.length && dims.every((d, k) => typeof value.shape[k] === "string" || value.shape[k] === d); // prettier-ignore
    if (type !== value.type || !fits)
      throw new Error(`${value.name} takes ${value.type}[${value.shape.join(", ")}], not ${type}[${dims.join(", ")}]`);
    found[value.name] = { type, dims, data: new (arrayOf(type))(bytes(data).slice().buffer) };
  }
  return found;
}

/** Front ends hand over bytes as views or as buffers. */
function bytes(data: unknown): Uint8Array<ArrayBuffer> {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  const { buffer, byteOffset, byteLength } = data as DataView<ArrayBuffer>;
  return new Uint8Array(buffer, byteOffset, byteLength);
}
