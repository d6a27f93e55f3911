import { Words } from "../../tokenizer/words.js";
import { messageOf } from "./dom.js";

/** The tokenizer of a `tokenizer.json`. */
export function tokenizerOf(file: Uint8Array): Words {
  try {
    return new Words(JSON.parse(new TextDecoder().decode(file)) as object);
  } catch (error) {
    throw new Error(`the tokenizer cannot be used: ${messageOf(error)}`);
  }
}
