/** Strings as Programs hold them (PROGRAM.md §4): spans, and the pool of UTF-8 bytes that they lie in. */
import type { TensorType } from "./tensor.js";

/** A span is a 64-bit word: how many bytes in the low half, where they begin in the high one. */
export interface Spans {
  readonly spans: Uint8Array<ArrayBuffer>;
  readonly pool: Uint8Array<ArrayBuffer>;
}

const MAX_BYTES = 2 ** 31 - 1;

/** How many tensors of a Program stand for one of a signature. */
export function partsOf(type: TensorType): number {
  return type === "string" ? 2 : 1;
}

/** Where the tensors of a Program begin that stand for each value of a signature. */
export function placesOf(values: readonly { readonly type: TensorType }[]): number[] {
  let next = 0;
  return values.map(({ type }) => (next += partsOf(type)) - partsOf(type));
}

/** Throws an error that starts with `what` for what is no string, and for a lone surrogate, which has no UTF-8. */
export function encodeStrings(strings: readonly unknown[], what: string): Spans {
  const encoder = new TextEncoder();
  const words = new Uint32Array(2 * strings.length);
  let pool = new Uint8Array(16 * strings.length);
  let at = 0;
  for (const [i, text] of strings.entries()) {
    if (typeof text !== "string") throw new TypeError(`${what}: element ${i} is ${shown(text)}, not a string`);
    if (/[\ud800-\udfff]/u.test(text)) throw new TypeError(`${what}: element ${i} holds a lone surrogate`);
    const most = at + 3 * text.length;
    if (most > pool.length) pool = grown(pool, at, most, what);
    const { written } = encoder.encodeInto(text, pool.subarray(at));
    words.set([written, at], 2 * i);
    at += written;
  }
  return { spans: new Uint8Array(words.buffer), pool: pool.slice(0, at) };
}

function grown(pool: Uint8Array, used: number, least: number, what: string): Uint8Array<ArrayBuffer> {
  if (least > MAX_BYTES) throw new RangeError(`${what}: its strings take more than ${MAX_BYTES} bytes`);
  const bigger = new Uint8Array(Math.min(Math.max(least, 2 * pool.length), MAX_BYTES));
  bigger.set(pool.subarray(0, used));
  return bigger;
}

function shown(value: unknown): string {
  return value === null ? "null" : typeof value;
}

/** Throws an error that starts with `what` for a span outside the pool, and for bytes that are no UTF-8. */
export function decodeStrings(spans: Uint8Array<ArrayBuffer>, pool: Uint8Array, what: string): string[] {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const words = new Uint32Array(spans.slice().buffer);
  const strings: string[] = [];
  for (let i = 0; i < words.length; i += 2) {
    const [length, start] = [words[i] as number, words[i + 1] as number];
    if (start + length > pool.length) throw new Error(`${what}: a string lies outside its bytes`);
    try {
      strings.push(decoder.decode(pool.subarray(start, start + length)));
    } catch {
      throw new Error(`${what}: element ${i / 2} is no UTF-8`);
    }
  }
  return strings;
}
