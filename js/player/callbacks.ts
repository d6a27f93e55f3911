/** The functions that are registered to run operators between steps of the core. */
import {
  argumentsOf,
  missing,
  shownNode,
  unfit,
  type Answers,
  type Asked,
  type Callback,
  type Kind,
  type Plain,
} from "./asked.js";
import { arrayOf, bytesOf, elements } from "./dtypes.js";
import { messageOf } from "./errors.js";
import { built } from "./pictures.js";
import { asBytes } from "./source.js";
import { TensorImpl, type Tensor } from "./tensor.js";

/**
 * Runs an operator: takes its inputs in order, undefined where one is left out, and its attributes, of which tensors are such; gives its
 * output, or an array of several. It runs where the session was created, not in the engine's worker, and may be asynchronous.
 */
export type OperatorFunction = (
  inputs: readonly (Tensor | undefined)[],
  attributes: Readonly<Record<string, unknown>>,
) => OperatorOutput | readonly OperatorOutput[] | Promise<OperatorOutput | readonly OperatorOutput[]>;

/** A tensor, or what has its type, data and dims. */
export type OperatorOutput = Pick<Tensor, "type" | "data" | "dims">;

/** Does what a run asks of the host. */
export type Answer = (asked: Asked) => Promise<Answers>;

const KEY = Symbol.for("pyonnx_wasm.operators");

/** Of all copies of this module that the page has: `"domain.Name"` to function. */
const functions = ((globalThis as { [KEY]?: Map<string, OperatorFunction> })[KEY] ??= new Map());
for (const [name, run] of Object.entries(built)) if (!functions.has(name)) functions.set(name, run);

/** Registers what runs an operator of one's own in all sessions; `domain` is "" for ai.onnx. */
export function registerOperator(name: string, run: OperatorFunction, { domain = "" } = {}): void {
  if (typeof run !== "function") throw new TypeError(`registerOperator("${name}"): the second argument is no function`);
  functions.set(keyOf(domain, name), run);
}

function keyOf(domain: string, name: string): string {
  return domain && domain !== "ai.onnx" ? `${domain}.${name}` : name;
}

/** Runs what is asked with a function of the session's own, or one that is registered, or else as `otherwise` does. */
export async function perform(
  asked: Asked,
  own: Readonly<Record<string, OperatorFunction>> = {},
  otherwise?: Answer,
): Promise<Answers> {
  const { callback, outputs } = asked;
  const key = keyOf(callback.domain, callback.op);
  const run = own[key] ?? functions.get(key);
  if (!run && otherwise) return otherwise(asked);
  if (!run) throw missing(callback);
  const { inputs, tensors, shapes } = argumentsOf(asked);
  const named = Object.fromEntries([...tensors].map(([name, tensor]) => [name, tensorOf(tensor)]));
  let result: OperatorOutput | readonly OperatorOutput[];
  try {
    result = await run(
      inputs.map((given) => given && tensorOf(given)),
      { ...callback.attributes, ...named },
    );
  } catch (error) {
    throw Object.assign(new Error(`${shownNode(callback)}: ${messageOf(error)}`), { cause: error });
  }
  const results = Array.isArray(result) ? (result as readonly OperatorOutput[]) : [result as OperatorOutput];
  return outputs.map((want, k) => want && plain(callback, k, results[k], want, shapes[k]));
}

function tensorOf({ data, type, dims }: Plain): Tensor {
  return new TensorImpl(type, new (arrayOf(type))(data.slice().buffer), dims) as unknown as Tensor;
}

function plain(
  callback: Callback,
  k: number,
  got: OperatorOutput | undefined,
  want: Kind,
  told: readonly number[] | undefined,
): Plain {
  const fail = (text: string): never => {
    throw new Error(`${shownNode(callback)}: output ${k} of its function ${text}`);
  };
  const data = ArrayBuffer.isView(got?.data) ? asBytes(got.data) : undefined;
  const dims = Array.isArray(got?.dims) ? [...got.dims] : [];
  if (!got || !data || (got.type as string) !== want.type || dims.length !== want.rank)
    return fail(`is ${got?.type ?? "nothing"} of rank ${dims.length}, not ${want.type} of rank ${want.rank}`);
  if (data.length !== bytesOf(want.type, elements(dims)))
    fail(`has dims [${dims.join(", ")}] that do not suit its data`);
  const misfit = unfit(told, dims);
  if (misfit) fail(misfit);
  return { data: data.slice(), type: want.type, dims };
}
