/** Operators that the kernel runs: those that no function of the page is registered for. */
import { shownNode, type Answers, type Asked, type Callback, type Kind, type Plain } from "../player/asked.js";
import { isType } from "../player/dtypes.js";
import type { Caller } from "./rpc.js";

/** Does what a run asks by a function that is registered in the kernel. */
export async function inKernel(rpc: Caller, { callback, inputs, outputs }: Asked): Promise<Answers> {
  const given = inputs.map(({ data, type, dims }, k) => ({ name: `${k}`, dtype: type, dims, data }));
  const json = { callback: rowOf(callback), outputs: outputs.map((kind) => (kind ? pairOf(kind) : null)) };
  const { tensors } = await rpc.call("operator", json, given);
  const left = [...tensors];
  return outputs.map((kind): Plain | undefined => {
    if (!kind) return undefined;
    const { dtype, dims, data } = left.shift() ?? { dtype: "nothing", dims: [], data: new Uint8Array() };
    if (!isType(dtype)) throw new Error(`${shownNode(callback)}: the kernel gave ${dtype}`);
    return { data: data.slice(), type: dtype, dims };
  });
}

const pairOf = ({ type, rank }: Kind): [string, number] => [type, rank];

/** As a file has it; PROGRAM.md §2. */
function rowOf({ domain, op, node, present, attributes, tensors, outputs, wgsl }: Callback): unknown {
  const plain = Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, encoded(value)]));
  return { domain, op, node, present, attributes: plain, tensors, outputs: outputs.map(pairOf), wgsl };
}

function encoded(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(encoded);
  if (typeof value === "bigint") return { int: String(value) };
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  return { float: String(value).replace("Infinity", "inf").replace("NaN", "nan") };
}
