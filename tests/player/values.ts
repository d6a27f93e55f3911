// What sessions take and give, as TypeScript sees it; compiled by test_player_types.py, never run.
import type * as ort from "onnxruntime-common";
import {
  InferenceSession,
  registerOperator,
  Tensor,
  type Feeds,
  type MapResult,
  type OperatorFunction,
  type Result,
} from "../../js/dist/index.js";

declare const session: InferenceSession;
const x = new Tensor("float32", [1, 2], [2]);
const words = new Tensor("string", ["a", "b"], [2]);

export const feeds: Feeds[] = [
  { x, words },
  { sequence: [x, x], none: [], optional: null },
  { map: new Map([["a", 1]]), numbers: new Map([[1n, "b"]]), object: { a: 1, b: 2n } },
];
// @ts-expect-error: a number is no value
export const number: Feeds = { x: 1 };
// @ts-expect-error: nor is an array of them
export const numbers: Feeds = { x: [1, 2] };

export async function run(): Promise<void> {
  // As onnxruntime-web types them, where nothing else is said.
  const { y } = await session.run({ x });
  const data: Tensor["data"] = y!.data;
  const told = await session.run<{ tensors: Tensor[]; optional: Tensor | null; maps: MapResult[] }>(
    { x: [x], o: null },
    ["tensors"],
  );
  const dims: readonly number[] = told.tensors[0]!.dims;
  // @ts-expect-error: it may be null
  told.optional.dims;
  const [first] = told.maps;
  const keys: (string | bigint)[] = [...first!.keys()];
  // @ts-expect-error: no value is a number
  await session.run<{ y: number }>({ x });
  const any: Record<string, Result> = await session.run<Record<string, Result>>({ x });
  console.log(data, dims, keys, any);
}

// onnxruntime's own types still fit.
export const plain: ort.InferenceSession = session;
export async function drop(given: ort.InferenceSession.FeedsType): Promise<ort.InferenceSession.ReturnType> {
  return session.run(given);
}

const twice: OperatorFunction = ([given], { by }) => ({
  type: "float32",
  dims: given!.dims,
  data: Float32Array.from(given!.data as Float32Array, (v) => v * (by as number)),
});
registerOperator("Twice", twice, { domain: "my.ops" });
registerOperator("Pair", async ([given]) => [given!, new Tensor("int64", [1n], [])]);
// @ts-expect-error: a number is no tensor
registerOperator("Wrong", () => 1);
