/**
 * Hugging Face's tokenizers in JavaScript, where they differ from those in Rust (which Python has) brought in line.
 *
 * What still differs: `(?i:...)` in a pattern folds ASCII alone; the tables of Unicode are the browser's.
 */
import {
  ByteFallbackDecoder,
  ByteLevelDecoder,
  SequenceDecoder,
  Tokenizer,
  type Decoder,
  type Encoding,
} from "@huggingface/tokenizers";

interface Document {
  readonly added_tokens?: readonly { readonly normalized?: boolean; readonly special?: boolean }[];
}
/** What the library has beside its declarations. */
interface Pairs {
  readonly tokens_to_ids: Map<string, number>;
  readonly byte_fallback?: boolean;
  readonly unk_token?: string | null;
  bpe?(word: string): string[];
}

const UTF8 = new TextEncoder();
const LOSSY = new TextDecoder("utf-8", { ignoreBOM: true });
const STRICT = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
const HALF = /\p{Surrogate}/u;
const BYTE = /^<0x([0-9A-Fa-f]{2})>$/;

/** A `tokenizer.json` at work. */
export class Words extends Tokenizer {
  /** Throws for what is no such document, or holds parts that the library does not know. */
  constructor(document: object) {
    super(document, { clean_up_tokenization_spaces: false });
    const { normalizer, pre_tokenizer: before } = this;
    const kept = ({ normalized, special }: NonNullable<Document["added_tokens"]>[number]): boolean =>
      !(normalized ?? !special);
    if (normalizer && ((document as Document).added_tokens ?? []).every(kept)) {
      // The library takes what normalizing makes of a text for an added token; here no text becomes one.
      const cut = before as unknown as ((text: string, options: unknown) => string[]) | null;
      const split = (text: string, options: unknown): string[] => {
        const normalized = normalizer.normalize(text);
        return normalized === "" ? [] : cut ? cut(normalized, options) : [normalized];
      };
      this.normalizer = null;
      this.pre_tokenizer = split as unknown as NonNullable<Tokenizer["pre_tokenizer"]>;
    }
    representable(this.model as unknown as Pairs);
    bytes(this.decoder);
  }

  override encode(text: string, options: object = {}): Encoding & { token_type_ids: number[] } {
    const at = text.search(HALF);
    if (at >= 0) throw new Error(`the text has half a surrogate pair at ${at}, which is no character`);
    return super.encode(text, options) as Encoding & { token_type_ids: number[] };
  }

  override decode(ids: number[] | bigint[], options: object = {}): string {
    const known = Array.from(ids, Number).filter((id) => this.id_to_token(id) !== undefined);
    return known.length ? super.decode(known, options) : "";
  }
}

/** Characters that the model has no token for, nor for their bytes, are left out before others join, not after. */
function representable(model: Pairs): void {
  const { tokens_to_ids: ids, bpe } = model;
  if (!bpe || (model.unk_token ?? null) !== null) return;
  const name = (byte: number): string => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
  const known = (character: string): boolean =>
    ids.has(character) ||
    (model.byte_fallback === true && Array.from(UTF8.encode(character), name).every((byte) => ids.has(byte)));
  model.bpe = (word) => bpe.call(model, Array.from(word).filter(known).join(""));
}

/** Bytes that are no UTF-8 become the same signs, and a mark of byte order stays. */
function bytes(decoder: Decoder | null): void {
  if (decoder instanceof SequenceDecoder) decoder.decoders.forEach(bytes);
  else if (decoder instanceof ByteFallbackDecoder) decoder.decode_chain = fallback;
  else if (decoder instanceof ByteLevelDecoder) decoder.decode_chain = (words) => [level(decoder.byte_decoder, words)];
}

function fallback(words: string[]): string[] {
  const made: string[] = [];
  let held: number[] = [];
  const settle = (): void => {
    if (!held.length) return;
    try {
      made.push(STRICT.decode(Uint8Array.from(held)));
    } catch {
      made.push(..."\ufffd".repeat(held.length));
    }
    held = [];
  };
  for (const word of words) {
    const byte = BYTE.exec(word)?.[1];
    if (byte !== undefined) held.push(parseInt(byte, 16));
    else {
      settle();
      made.push(word);
    }
  }
  settle();
  return made;
}

/** Words whose letters do not all stand for bytes are text. */
function level(table: Record<string, number>, words: string[]): string {
  const all = words.flatMap((word) => {
    const found = Array.from(word, (letter) => table[letter]);
    return found.includes(undefined) ? [...UTF8.encode(word)] : (found as number[]);
  });
  return LOSSY.decode(Uint8Array.from(all));
}
