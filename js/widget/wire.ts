/** Messages between kernel and page as frames of JSON and bytes: pyonnx_wasm/jupyter/WIRE.md. */
import { bytesOf, elements, isType } from "../player/dtypes.js";
import { decodeStrings, encodeStrings } from "../player/strings.js";
import type { TensorType } from "../player/tensor.js";

export const VERSION = 1;
/** Of one frame to the kernel. */
export const FRAME_BYTES = 2 ** 22;
export const MAX_FRAME_BYTES = 2 ** 24;
export const MAX_BYTES = 2 ** 32;
export const MAX_TENSORS = 4096;
export const WINDOW = 4;

const KINDS = ["hello", "who", "ping", "pong", "bye", "call", "result", "error", "progress", "ack", "cancel"] as const;
export type Kind = (typeof KINDS)[number];

/** A frame that cannot be taken; the text says what is wrong with it. */
export class WireError extends Error {
  override name = "WireError";
}

/** A tensor on the wire: packed little-endian bytes, row-major; of strings their spans, then the pool. */
export interface WireTensor {
  readonly name: string;
  readonly dtype: TensorType;
  readonly dims: readonly number[];
  readonly data: Uint8Array;
}

/** What one side says to the other, whole. Which fields mean something depends on `kind`. */
export interface Message {
  readonly kind: Kind;
  readonly id: string;
  readonly peer: string;
  readonly op?: string;
  readonly json?: unknown;
  readonly tensors?: readonly WireTensor[];
  readonly error?: { readonly name: string; readonly message: string };
  readonly seq?: number;
}

export interface Frame {
  readonly header: Record<string, unknown>;
  readonly buffers: Uint8Array[];
}

/** Plain bytes as a tensor of uint8. */
export function bytesTensor(data: ArrayBufferView, name = ""): WireTensor {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { name, dtype: "uint8", dims: [bytes.length], data: bytes };
}

/** A string tensor as it travels. */
export function stringsTensor(name: string, strings: readonly unknown[], dims: readonly number[]): WireTensor {
  const { spans, pool } = encodeStrings(strings, `tensor "${name}"`);
  const data = new Uint8Array(spans.length + pool.length);
  data.set(spans);
  data.set(pool, spans.length);
  return { name, dtype: "string", dims, data };
}

/** The strings of a tensor that came. */
export function stringsOf({ name, dims, data }: WireTensor): string[] {
  const size = 8 * elements(dims);
  return decodeStrings(data.slice(0, size), data.subarray(size), `tensor "${name}"`);
}

/** The frames of a message; buffers are views of its tensors. */
export function* encode(message: Message, frameBytes = FRAME_BYTES): Generator<Frame, void> {
  const { kind, id, peer, op, json = null, tensors = [], error, seq } = message;
  const head = { v: VERSION, kind, id, peer };
  if (kind !== "call" && kind !== "result") {
    const header: Record<string, unknown> = { ...head };
    if (kind === "progress" || kind === "hello") header["json"] = json;
    if ((kind === "ping" || kind === "pong") && json !== null) header["json"] = json;
    if (error) header["error"] = error;
    if (kind === "ack") header["seq"] = seq;
    yield { header, buffers: [] };
    return;
  }
  const all = [...pieces(tensors, frameBytes)];
  if (!all.length) all.push([]);
  for (const [i, buffers] of all.entries()) {
    const first = i > 0 ? {} : { json, tensors: rowsOf(tensors), ...(kind === "call" && { op }) };
    yield { header: { ...head, seq: i, last: i === all.length - 1, ...first }, buffers };
  }
}

function rowsOf(tensors: readonly WireTensor[]): Record<string, unknown>[] {
  let end = 0;
  return tensors.map(({ name, dtype, dims, data }) => {
    const offset = end;
    end += data.length;
    return { name, dtype, dims, offset, length: data.length };
  });
}

function* pieces(tensors: readonly WireTensor[], most: number): Generator<Uint8Array[], void> {
  let piece: Uint8Array[] = [];
  let room = most;
  for (const { data } of tensors)
    for (let at = 0; at < data.length;) {
      const part = data.subarray(at, at + room);
      piece.push(part);
      at += part.length;
      room -= part.length;
      if (room === 0) {
        yield piece;
        piece = [];
        room = most;
      }
    }
  if (piece.length) yield piece;
}

/** Puts the frames of many messages together, each in its order. */
export class Assembler {
  readonly #streams = new Map<string, Stream>();

  /** Takes a frame; returns the message that it completes. Throws WireError, after which the message is given up. */
  push(header: unknown, buffers: readonly Uint8Array[]): Message | undefined {
    const head = parse(header);
    const { kind, id, peer } = head.message;
    if (!isCarrier(kind)) {
      if (buffers.length) throw new WireError(`${kind} "${id}" carries ${buffers.length} buffers, it takes none`);
      return head.message;
    }
    const key = keyOf(peer, id, kind);
    let stream = this.#streams.get(key);
    this.#streams.delete(key);
    const seq = integer(head.fields, "seq");
    const last = boolean(head.fields, "last");
    const expected = stream?.seq ?? 0;
    if (seq !== expected)
      throw new WireError(`frame ${seq} of ${kind} "${id}" came where frame ${expected} was expected`);
    stream ??= new Stream(head.message, rows(head.fields), last ? buffers : undefined);
    stream.take(buffers, last);
    if (last) return stream.message();
    this.#streams.set(key, stream);
    return undefined;
  }

  /** Forgets what came of a call. */
  /** Ids of messages of which something came, but not all. */
  arriving(): string[] {
    return [...this.#streams.keys()].map((key) => (JSON.parse(key) as [string, string])[1]);
  }

  drop(peer: string, id: string): void {
    this.#streams.delete(keyOf(peer, id, "call"));
    this.#streams.delete(keyOf(peer, id, "result"));
  }

  clear(): void {
    this.#streams.clear();
  }
}

const keyOf = (peer: string, id: string, kind: Kind): string => JSON.stringify([peer, id, kind]);
const isCarrier = (kind: Kind): boolean => kind === "call" || kind === "result";

type Row = Omit<WireTensor, "data"> & { readonly length: number };

class Stream {
  seq = 0;
  #have = 0;
  readonly #total: number;
  /** One array per tensor: the frame's own where one frame brings each tensor in a buffer of its own. */
  readonly #data: Uint8Array[];
  readonly #filled: boolean;
  #tensor = 0;
  #at = 0;

  constructor(
    readonly start: Message,
    readonly rows: readonly Row[],
    whole: readonly Uint8Array[] | undefined,
  ) {
    this.#total = rows.reduce((sum, { length }) => sum + length, 0);
    const sized = rows.filter(({ length }) => length > 0);
    this.#filled = whole?.length === sized.length && sized.every(({ length }, i) => whole[i]?.length === length);
    const given = this.#filled ? [...(whole as Uint8Array[])] : [];
    const short = whole && whole.reduce((sum, { length }) => sum + length, 0) !== this.#total;
    this.#data = short
      ? []
      : rows.map(({ length }) => (this.#filled && length ? (given.shift() as Uint8Array) : new Uint8Array()));
  }

  take(buffers: readonly Uint8Array[], last: boolean): void {
    const { kind, id } = this.start;
    const got = buffers.reduce((sum, { length }) => sum + length, 0);
    if (got > MAX_FRAME_BYTES)
      throw new WireError(
        `frame ${this.seq} of ${kind} "${id}" has ${got} bytes; at most ${MAX_FRAME_BYTES} are taken`,
      );
    this.#have += got;
    if (this.#have > this.#total || (last && this.#have < this.#total))
      throw new WireError(`${kind} "${id}" has ${this.#have} bytes, its tensors need ${this.#total}`);
    if (!last && !got) throw new WireError(`frame ${this.seq} of ${kind} "${id}" is empty`);
    this.seq++;
    if (!this.#filled) for (const buffer of buffers) this.#fill(buffer);
  }

  #fill(buffer: Uint8Array): void {
    for (let from = 0; from < buffer.length;) {
      const { length } = this.rows[this.#tensor] as Row;
      const count = Math.min(buffer.length - from, length - this.#at);
      this.#room(this.#at + count, length).set(buffer.subarray(from, from + count), this.#at);
      from += count;
      this.#at += count;
      if (this.#at === length) {
        this.#tensor++;
        this.#at = 0;
      }
    }
  }

  /** The tensor under way, with room for `bytes` of `length`: memory is taken as bytes arrive, not as a header says. */
  #room(bytes: number, length: number): Uint8Array {
    const have = this.#data[this.#tensor] as Uint8Array;
    if (have.length >= bytes) return have;
    const room = allocate(Math.min(length, Math.max(bytes, 2 * have.length)));
    room.set(have.subarray(0, this.#at));
    return (this.#data[this.#tensor] = room);
  }

  message(): Message {
    const tensors = this.rows.map(({ name, dtype, dims }, i) => ({
      name,
      dtype,
      dims,
      data: this.#data[i] as Uint8Array,
    }));
    return { ...this.start, tensors };
  }
}

function allocate(bytes: number): Uint8Array {
  try {
    return new Uint8Array(bytes);
  } catch {
    throw new WireError(`the browser gives no ${bytes} bytes of memory for a tensor`);
  }
}

type Fields = Readonly<Record<string, unknown>>;

function parse(header: unknown): { fields: Fields; message: Message } {
  if (!isObject(header)) throw new WireError(`a frame's header must be an object`);
  if (header["v"] !== VERSION)
    throw new WireError(
      `the frame has wire version ${String(header["v"])}, this side speaks ${VERSION}: reload the page, restart the kernel`,
    );
  const [kind, id, peer] = [text(header, "kind"), text(header, "id"), text(header, "peer")];
  if (!isKind(kind)) throw new WireError(`unknown kind of frame "${kind.slice(0, 40)}"`);
  if (!id.length || id.length > 128 || peer.length > 128) throw new WireError("id and peer must be short texts");
  const message: Message = { kind, id, peer, json: header["json"] ?? null };
  if (kind === "call" && header["seq"] === 0)
    return { fields: header, message: { ...message, op: text(header, "op") } };
  if (kind === "ack") return { fields: header, message: { ...message, seq: integer(header, "seq") } };
  if (kind !== "error") return { fields: header, message };
  const error = header["error"];
  if (!isObject(error)) throw new WireError(`field "error" must be an object`);
  return {
    fields: header,
    message: { ...message, error: { name: text(error, "name"), message: text(error, "message") } },
  };
}

function rows(fields: Fields): Row[] {
  const given = fields["tensors"];
  if (!Array.isArray(given)) throw new WireError(`field "tensors" must be a list`);
  if (given.length > MAX_TENSORS)
    throw new WireError(`${given.length} tensors in one message; at most ${MAX_TENSORS} are taken`);
  let end = 0;
  const found = given.map((row: unknown, k): Row => {
    if (!isObject(row)) throw new WireError(`tensor ${k} must be an object`);
    const [name, dtype, dims] = [text(row, "name"), text(row, "dtype"), row["dims"]];
    if (!isType(dtype) && dtype !== "string")
      throw new WireError(`tensor "${name}" has dtype "${dtype.slice(0, 40)}", which does not travel`);
    if (!Array.isArray(dims) || !dims.every((d) => Number.isSafeInteger(d) && d >= 0))
      throw new WireError(`tensor "${name}": dims must be integers >= 0`);
    const [length, offset] = [integer(row, "length"), integer(row, "offset")];
    const count = elements(dims);
    if (dtype === "string" ? length < 8 * count : length !== bytesOf(dtype, count))
      throw new WireError(`tensor "${name}": [${dims.join(", ")}] of ${dtype} is not ${length} bytes`);
    if (offset !== end)
      throw new WireError(`tensor "${name}" lies at ${offset}, not at ${end} behind the one before it`);
    end += length;
    return { name, dtype, dims, length };
  });
  if (end > MAX_BYTES) throw new WireError(`${end} bytes in one message; at most ${MAX_BYTES} are taken`);
  return found;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isKind(text: string): text is Kind {
  return (KINDS as readonly string[]).includes(text);
}

function text(fields: Fields, key: string): string {
  const value = fields[key];
  if (typeof value !== "string") throw new WireError(`field "${key}" must be text`);
  return value;
}

function boolean(fields: Fields, key: string): boolean {
  const value = fields[key];
  if (typeof value !== "boolean") throw new WireError(`field "${key}" must be true or false`);
  return value;
}

function integer(fields: Fields, key: string): number {
  const value = fields[key];
  if (!Number.isSafeInteger(value) || (value as number) < 0)
    throw new WireError(`field "${key}" must be an integer >= 0`);
  return value as number;
}
