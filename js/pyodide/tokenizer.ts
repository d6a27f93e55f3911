/** Tokenizers as Python in Pyodide calls them (pyonnx_wasm/generate/javascript.py). */
import { Words } from "../tokenizer/words.js";

/** A tokenizer by the text of its `tokenizer.json`. */
export function open(text: string): Words {
  return new Words(JSON.parse(text) as object);
}

export function encode(words: Words, text: string): Int32Array {
  return Int32Array.from(words.encode(text).ids);
}

export function decode(words: Words, ids: Int32Array, skip: boolean): string {
  return words.decode([...ids], { skip_special_tokens: skip });
}
