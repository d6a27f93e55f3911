import { type InferenceSession, Tensor } from "pyonnx-wasm";
import { Words } from "../../tokenizer/words.js";

/** The model has 512 positions; sentences were cut to 256 tokens when it was trained. */
const MAX_TOKENS = 256;

/** Turns texts into vectors of length 1 whose dot product is the similarity of meaning. */
export class Encoder {
  readonly #session: InferenceSession;
  readonly #tokenizer: Words;

  constructor(session: InferenceSession, tokenizer: object) {
    this.#session = session;
    this.#tokenizer = new Words(tokenizer);
  }

  tokens(text: string): number[] {
    const { ids } = this.#tokenizer.encode(text);
    return ids.length > MAX_TOKENS ? [...ids.slice(0, MAX_TOKENS - 1), ids.at(-1)!] : ids;
  }

  async encode(texts: readonly string[]): Promise<Float32Array[]> {
    const rows = texts.map((text) => this.tokens(text));
    const length = Math.max(...rows.map((row) => row.length));
    const dims = [rows.length, length];
    const ids = new BigInt64Array(rows.length * length);
    const mask = new BigInt64Array(ids.length);
    rows.forEach((row, i) => {
      ids.set(row.map(BigInt), i * length);
      mask.fill(1n, i * length, i * length + row.length);
    });
    const { embedding } = await this.#session.run({
      input_ids: new Tensor("int64", ids, dims),
      attention_mask: new Tensor("int64", mask, dims),
      token_type_ids: new Tensor("int64", new BigInt64Array(ids.length), dims),
    });
    const data = embedding!.data as Float32Array;
    const size = data.length / rows.length;
    return rows.map((_, i) => data.slice(i * size, (i + 1) * size));
  }
}

export function similarity(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, i) => sum + value * b[i]!, 0);
}
