/** Feeds decoders, and keeps what they remember between the tokens: keys and values of every layer. */
import type { Feeds, InferenceSession } from "../session.js";
import type { Tensor as TensorType } from "../tensor.js";
import { Tensor } from "../index.js";

const PAST = /^past(?:_key_values)?\.(\d+)\.(key|value)$/;
const KNOWN = new Set(["input_ids", "attention_mask", "position_ids", "use_cache_branch", "num_logits_to_keep"]);

/** A decoder and its cache, one text at a time. */
export class Decoder {
  /** Tokens that the cache holds. */
  ids: number[] = [];
  private readonly empty = new Map<string, { type: "float32" | "float16"; dims: number[] }>();
  private readonly source = new Map<string, string>(); // an input's name by that of the output that follows it
  private values = new Map<string, TensorType>();
  private readonly types = new Map<string, string>();

  constructor(readonly session: InferenceSession) {
    for (const given of session.inputMetadata) {
      if (!given.isTensor) throw new Error(`the model wants ${given.name}, which is no tensor`);
      this.types.set(given.name, given.type);
      const place = PAST.exec(given.name);
      if (!place) {
        if (!KNOWN.has(given.name)) throw new Error(`the model wants the input ${given.name}, which decoders do not`);
        continue;
      }
      const follower = session.outputNames.find((name) => name.endsWith(`.${place[1]}.${place[2]}`));
      const [, heads, , size] = given.shape;
      if (!follower || typeof heads !== "number" || typeof size !== "number")
        throw new Error(`the cache ${given.name} is of no kind that is known, or no output continues it`);
      this.empty.set(given.name, { type: given.type as "float32" | "float16", dims: [1, heads, 0, size] });
      this.source.set(follower, given.name);
    }
    if (!this.empty.size)
      throw new Error("the model has no cache of keys and values; export it with one (text-generation-with-past)");
    if (!session.outputNames.includes("logits")) throw new Error("the model gives no output logits");
    this.forget(0);
  }

  /** Goes back to the first tokens that it has read. */
  forget(keep: number): void {
    if (keep === 0) {
      this.ids = [];
      for (const [name, { type, dims }] of this.empty)
        this.values.set(name, new Tensor(type, type === "float32" ? new Float32Array() : new Uint16Array(), dims));
    }
    if (keep >= this.ids.length) return;
    this.ids.length = keep;
    for (const [name, value] of this.values) this.values.set(name, shortened(value, keep));
  }

  /** Reads tokens; gives the logits of the last one. */
  async step(ids: readonly number[]): Promise<Float32Array> {
    const past = this.ids.length;
    const whole = (values: readonly number[], dims: number[], name: string): TensorType =>
      this.types.get(name) === "int32"
        ? new Tensor("int32", Int32Array.from(values), dims)
        : new Tensor("int64", BigInt64Array.from(values, BigInt), dims);
    const n = ids.length;
    const given: Record<string, () => TensorType> = {
      input_ids: () => whole(ids, [1, n], "input_ids"),
      attention_mask: () => whole(new Array<number>(past + n).fill(1), [1, past + n], "attention_mask"),
      position_ids: () =>
        whole(
          ids.map((_, i) => past + i),
          [1, n],
          "position_ids",
        ),
      use_cache_branch: () => new Tensor("bool", [past > 0], [1]),
      num_logits_to_keep: () => whole([1], [], "num_logits_to_keep"),
    };
    const feeds: Record<string, TensorType> = Object.fromEntries(this.values);
    for (const name of this.types.keys()) feeds[name] ??= given[name]!();
    const results = await this.session.run(feeds as Feeds, ["logits", ...this.source.keys()]);
    for (const [output, input] of this.source) this.values.set(input, results[output] as TensorType);
    this.ids.push(...ids);
    const logits = results["logits"] as TensorType;
    const words = logits.dims.at(-1)!;
    return (logits.data as Float32Array).slice(-words);
  }
}

/** The first `length` places along axis 2. */
function shortened(value: TensorType, length: number): TensorType {
  const [batch, heads, have, size] = value.dims as [number, number, number, number];
  const from = value.data as Float32Array | Uint16Array;
  const into = new (from.constructor as Float32ArrayConstructor)(batch * heads * length * size);
  for (let row = 0; row < batch * heads; row++)
    into.set(from.subarray(row * have * size, (row * have + length) * size), row * length * size);
  return new Tensor(value.type as "float32", into, [batch, heads, length, size]);
}
