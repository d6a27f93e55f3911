/**
 * What of a model's file decides how it is compiled: all but the contents of its large tensors. Other bytes of them are read only
 * where the compiler asks for them.
 */
import type { Ranged } from "./ranges.js";
import { isGguf } from "./sniff.js";

/** Bytes of a file, and where in it they begin. */
export interface Piece {
  readonly at: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Messages of onnx.proto that hold tensors, by the numbers of their fields; `data` is what a tensor holds. */
const MESSAGES: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  model: { 7: "graph", 25: "function" },
  graph: { 1: "node", 5: "tensor", 15: "sparse" },
  function: { 7: "node", 11: "attribute" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse" },
  sparse: { 1: "tensor", 2: "tensor" },
  tensor: { 4: "data", 9: "data", 10: "data" },
};

const SMALL = 1024;
const WINDOW = 2 ** 15;
const MOST_FIELD_HEAD = 20;
const MOST_DEPTH = 64;
/** Of a GGUF file: metadata, with the tokens, come before the tensors. */
const GGUF_BYTES = 2 ** 22;

/** Told of the contents of a large tensor, before what lies behind them is read. */
type OnHole = (start: number, end: number) => Promise<void>;

/** Walks over an .onnx file, always on, and never reads what it tells `onHole` of. */
export async function walk(file: Pick<Ranged, "size" | "read">, onHole: OnHole): Promise<void> {
  await new Walk(file, onHole).holes();
}

/** The structure of an .onnx file, or the beginning of a .gguf file. */
export async function structureOf(file: Ranged): Promise<readonly Piece[]> {
  if (file.structure) return file.structure;
  const start = await file.read(0, Math.min(4, file.size));
  if (isGguf(start)) return [{ at: 0, bytes: await file.read(0, Math.min(GGUF_BYTES, file.size)) }];
  const holes = [...(await new Walk(file).holes()), [file.size, file.size] as const];
  const spans = holes.map(([start], k) => [k ? (holes[k - 1]![1] as number) : 0, start] as const);
  return Promise.all(spans.filter(([a, b]) => a < b).map(async ([a, b]) => ({ at: a, bytes: await file.read(a, b) })));
}

class Broken extends Error {}

class Walk {
  #from = 0;
  #window: Uint8Array = new Uint8Array();
  #at = 0;
  readonly #holes: [start: number, end: number][] = [];

  constructor(
    readonly file: Pick<Ranged, "size" | "read">,
    readonly onHole: OnHole = async () => {},
  ) {}

  /** Where contents of tensors lie. Of a damaged file those before the damage, and all behind it. */
  async holes(): Promise<[start: number, end: number][]> {
    try {
      await this.#message("model", this.file.size, 0);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      const end = Math.min(this.#at + WINDOW, this.file.size);
      if (end < this.file.size) await this.#hole(end, this.file.size);
    }
    return this.#holes;
  }

  async #message(kind: string, end: number, depth: number): Promise<void> {
    if (depth > MOST_DEPTH) throw new Broken();
    const fields = MESSAGES[kind]!;
    while (this.#at < end) {
      if (this.#at < this.#from || this.#at + MOST_FIELD_HEAD > this.#from + this.#window.length) await this.#load();
      const key = this.#varint();
      const wire = key % 8;
      if (wire === 0) this.#varint();
      else if (wire === 1) this.#at += 8;
      else if (wire === 5) this.#at += 4;
      else if (wire !== 2) throw new Broken();
      if (wire !== 2) continue;
      const size = this.#varint();
      const stop = this.#at + size;
      if (stop > end) throw new Broken();
      const inner = fields[(key - wire) / 8];
      if (size > SMALL && inner === "data") await this.#hole(this.#at, stop);
      else if (size > SMALL && inner) await this.#message(inner, stop, depth + 1);
      this.#at = stop;
    }
    if (this.#at > end) throw new Broken();
  }

  async #hole(start: number, end: number): Promise<void> {
    this.#holes.push([start, end]);
    await this.onHole(start, end);
  }

  async #load(): Promise<void> {
    this.#window = await this.file.read(this.#at, Math.min(this.#at + WINDOW, this.file.size));
    this.#from = this.#at;
  }

  #varint(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#window[this.#at++ - this.#from];
      if (byte === undefined || scale > 2 ** 63) throw new Broken();
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
}
