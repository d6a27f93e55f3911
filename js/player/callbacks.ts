/** The functions that are registered to run operators between steps of the core. */
import { missing, shownNode, type Answers, type Asked, type Callback, type Plain } from "./asked.js";
import { arrayOf, type Type } from "./dtypes.js";
import { messageOf } from "./errors.js";
import { built } from "./pictures.js";
import { asBytes } from "./source.js";
import { TensorImpl, type Tensor } from "./tensor.js";

/**
 * Runs an operator: takes its inputs in order, undefined where one is left out, and its attributes; gives its output, or an array of
 * several. It runs where the session was created, not in the engine's worker, and may be asynchronous.
 */
export type OperatorFunction = (
  inputs: readonly (Tensor | undefined)[],
  attributes: Readonly<Record<string, unknown>>,
) => Tensor | readonly Tensor[] | Promise<Tensor | readonly Tensor[]>;

const functions = new Map<string, OperatorFunction>(Object.entries(built));

/** Registers what runs an operator of one's own in all sessions; `domain` is "" for ai.onnx. */
export function registerOperator(name: string, run: OperatorFunction, { domain = "" } = {}): void {
  if (typeof run !== "function") throw new TypeError(`registerOperator("${name}"): the second argument is no function`);
  functions.set(keyOf(domain, name), run);
}

function keyOf(domain: string, name: string): string {
  return domain && domain !== "ai.onnx" ? `${domain}.${name}` : name;
}

/** Runs what is asked with a function of the session's own, or one that is registered. */
export async function perform(
  { callback, inputs, outputs }: Asked,
  own: Readonly<Record<string, OperatorFunction>> = {},
): Promise<Answers> {
  const key = keyOf(callback.domain, callback.op);
  const run = own[key] ?? functions.get(key);
  if (!run) throw missing(callback);
  const left = inputs.map(tensorOf);
  const given = callback.present.map((present) => (present ? left.shift() : undefined));
  let result: Tensor | readonly Tensor[];
  try {
    result = await run(given, callback.attributes);
  } catch (error) {
    throw Object.assign(new Error(`${shownNode(callback)}: ${messageOf(error)}`), { cause: error });
  }
  const results = Array.isArray(result) ? (result as readonly Tensor[]) : [result as Tensor];
  return outputs.map((want, k) => want && plain(callback, k, results[k], want));
}

function tensorOf({ data, type, dims }: Plain): Tensor {
  return new TensorImpl(type, new (arrayOf(type))(data.slice().buffer), dims) as unknown as Tensor;
}

function plain(
  callback: Callback,
  k: number,
  got: Tensor | undefined,
  want: { readonly type: Type; readonly rank: number },
): Plain {
  const data = got instanceof TensorImpl ? asBytes(got.data) : undefined;
  if (!got || !data || got.type !== want.type || got.dims.length !== want.rank)
    throw new Error(
      `${shownNode(callback)}: output ${k} of its function is ${got?.type ?? "nothing"} of rank ${got?.dims?.length ?? 0}, ` +
        `not ${want.type} of rank ${want.rank}`,
    );
  return { data: data.slice(), type: want.type, dims: got.dims };
}
