// Runs damaged Programs on a core of WebAssembly, between two sessions whose memory must stay as it is: node damage.mjs CORE FIRST FILE...
// The cases come on stdin (kernels/cpp/fuzz/generate.cpp). Each is bound and run twice within small limits; it must end in an error of the
// core or in the same outputs both times.

import { readFileSync, readSync } from "node:fs";
import { setFlagsFromString } from "node:v8";

const MEMORY = 1n << 24n;
const OPERATIONS = 1n << 21n;
const LARGEST = 1n << 20n; // bytes of an input
const MOST = 2 ** 28; // bytes of the core: more means that something is never given back
const GAP = 2 ** 26; // between the two sessions: where the cases take their memory
const OFTEN = 1000; // cases between runs of the two sessions
const ERROR = 256;
const MORE = -1;
const WAIT = -2;
const NAMES = ["ran", "malformed", "unknown kernel", "check failed", "bad bind", "no memory", "bad data", "misuse", "limit", "cancelled"];
const BITS = { 1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 8: 0, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16 };
Object.assign(BITS, { 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6 });

const [corePath, firstCase, ...paths] = process.argv.slice(2);
const memory = new WebAssembly.Memory({ initial: 64, maximum: 65535, shared: true });
const file = readFileSync(corePath);
if (!WebAssembly.validate(file)) setFlagsFromString("--experimental-wasm-relaxed-simd"); // Node.js 20
const { exports: core } = new WebAssembly.Instance(new WebAssembly.Module(file), { env: { memory } });
const pool = core.pwx_pool_create(1);

const bytesAt = (at, length) => new Uint8Array(memory.buffer, at, length);
const viewAt = (at, length) => new DataView(memory.buffer, at, length);

class TooMuch extends Error {}

/** Memory that is given back together. */
class Blocks {
  #taken = [];
  take(bytes) {
    const at = core.pwx_alloc(Math.max(bytes, 1)) >>> 0;
    if (!at) throw new TooMuch();
    this.#taken.push(at);
    return at;
  }
  put(array) {
    const at = this.take(array.byteLength);
    bytesAt(at, array.byteLength).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    return at;
  }
  free() {
    for (const at of this.#taken.splice(0)) core.pwx_free(at);
  }
}

/** Numbers of a stream, as C++ writes them. */
class Stream {
  #data = Buffer.alloc(0);
  #read;
  constructor(read) {
    this.#read = read;
  }
  /** Undefined at the end of the stream. */
  bytes(length) {
    while (this.#data.length < length) {
      const more = this.#read();
      if (!more.length) return undefined;
      this.#data = Buffer.concat([this.#data, more]);
    }
    const found = this.#data.subarray(0, length);
    this.#data = this.#data.subarray(length);
    return Uint8Array.from(found);
  }
  number() {
    const found = this.bytes(8);
    return found && Number(new BigInt64Array(found.buffer)[0]);
  }
  words() {
    const count = this.number();
    return count === undefined ? undefined : new Int32Array(this.bytes(4 * count).buffer);
  }
  numbers() {
    return new BigInt64Array(this.bytes(8 * this.number()).buffer);
  }
}

/** A file of Programs to damage: words, weights, sets of input dims. */
function readSeed(path) {
  const data = readFileSync(path);
  let given = false;
  const stream = new Stream(() => (given ? Buffer.alloc(0) : ((given = true), data)));
  const words = stream.words();
  const weights = Array.from({ length: stream.number() }, () => stream.bytes(stream.number()));
  return { words, weights, dims: Array.from({ length: stream.number() }, () => stream.numbers()) };
}

/** Bytes of a tensor; 0n where the core will refuse the sizes. */
function tensorBytes(dtype, dims) {
  if (dims.some((dim) => dim < 0n)) return 0n;
  return (dims.reduce((product, dim) => product * dim, 1n) * BigInt(BITS[dtype] ?? 0) + 7n) / 8n;
}

/** Small numbers as the input's dtype, so that they may be indices and sizes. */
function fill(at, bytes, dtype, content) {
  const each = Math.max(BITS[dtype] >> 3, 1);
  const view = viewAt(at, bytes);
  let state = Number(content & 0xffffffffn) | 1;
  const below = (n) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % n;
  for (let i = 0; i + each <= bytes; i += each) {
    const v = below(40) ? below(4) : below(64) - 32;
    if (dtype === 1) view.setFloat32(i, v, true);
    else if (dtype === 11) view.setFloat64(i, v, true);
    else if (dtype === 9) view.setUint8(i, v & 1);
    else if (each === 8) view.setBigInt64(i, BigInt(v), true);
    else if (each === 4) view.setInt32(i, v, true);
    else if (each === 2) view.setInt16(i, v, true);
    else view.setInt8(i, v);
  }
}

/** A session, to be run once or more; throws the code of the core's error. */
class Session {
  #blocks = new Blocks();
  #session = 0;
  #outputs = [];
  constructor({ words, weights }, given, content) {
    const blocks = this.#blocks;
    this.error = blocks.put(new Uint8Array(ERROR));
    const addresses = blocks.put(Uint32Array.from(weights.map((weight) => blocks.put(weight))));
    const sizes = blocks.put(BigInt64Array.from(weights.map((weight) => BigInt(weight.length))));
    const code = blocks.put(words);
    try {
      this.#session = core.pwx_create(code, BigInt(words.length), addresses, sizes, BigInt(weights.length), pool, this.error);
      if (!this.#session) throw viewAt(this.error, 4).getInt32(0, true);
      core.pwx_limit(this.#session, MEMORY, OPERATIONS);
      this.#place(words, given, content);
    } catch (error) {
      this.free();
      throw error;
    }
  }
  /** The tables of a Program that the core has verified. */
  #place(words, given, content) {
    let at = words[6];
    const dims = [];
    const addresses = [];
    const sizes = [];
    const told = new Map();
    for (let i = 0; i < words[5]; i++, at += 3) {
      const [dtype, rank, buffer] = words.subarray(at, at + 3);
      const shape = Array.from({ length: rank }, (_, d) => given[dims.length + d] ?? 2n);
      if (buffer < -1) told.set(i, [-2 - buffer, ...shape]);
      dims.push(...shape);
      const bytes = buffer < -1 ? 0n : tensorBytes(dtype, shape);
      if (bytes > LARGEST) throw new TooMuch();
      addresses.push(this.#blocks.take(Number(bytes)));
      sizes.push(Number(bytes));
      fill(addresses[i], Number(bytes), dtype, content + BigInt(i));
    }
    this.dims = this.#blocks.put(BigInt64Array.from(dims));
    this.inputs = this.#blocks.put(Uint32Array.from(addresses));
    this.sizes = sizes;
    at = words[8];
    for (let i = 0, first = 0; i < words[7]; i++) {
      const [dtype, rank] = words.subarray(at, at + 2);
      const flags = words[words[12] + 6 * words[words[14] + 4 * words[at + 2]] + 5];
      const [past, room, rows] = told.get((flags >> 4) - 1) ?? [];
      const kept = (room || rows) && { axis: flags & 15, room, past: rows ? past : -1 };
      this.#outputs.push({ dtype, rank, first, kept, place: undefined });
      first += rank;
      at += 3 + rank;
    }
    this.places = this.#blocks.take(4 * this.#outputs.length);
  }
  /** The bytes of the outputs. */
  run() {
    const check = (code) => {
      if (code > 0) throw code;
      return code;
    };
    check(core.pwx_bind(this.#session, this.dims, this.inputs, this.error));
    const bytesOf = ({ dtype, rank, first, kept }) => {
      const told = viewAt(core.pwx_output_dims(this.#session) >>> 0, 8 * (first + rank));
      const dims = Array.from({ length: rank }, (_, d) => told.getBigInt64(8 * (first + d), true));
      if (dims.some((dim) => dim < 0n)) return undefined;
      if (kept && kept.room > dims[kept.axis]) dims[kept.axis] = kept.room;
      return Number(tensorBytes(dtype, dims));
    };
    for (;;) {
      for (const [i, output] of this.#outputs.entries()) {
        const bytes = bytesOf(output);
        if (bytes !== undefined && !output.place) this.#give(output, bytes);
        viewAt(this.places, 4 * i + 4).setUint32(4 * i, output.place?.at ?? 0, true);
      }
      const code = check(core.pwx_run(this.#session, this.inputs, this.places, this.error));
      if (code === WAIT) this.#answer();
      else if (code !== MORE) break;
    }
    return Buffer.concat(this.#outputs.map(({ place }) => (place ? bytesAt(place.at, place.bytes) : Buffer.alloc(0))));
  }
  /** Memory for an output: one that is kept has zeros at first, and rows of an input may lie there already. */
  #give(output, bytes) {
    if (bytes > 16 * Number(LARGEST)) throw new TooMuch();
    output.place = { bytes, at: this.#blocks.take(bytes) };
    const { kept, place } = output;
    if (!kept) return;
    bytesAt(place.at, bytes).fill(0);
    const past = Number(kept.past);
    if (bytes >= this.sizes[past]) {
      viewAt(this.inputs + 4 * past, 4).setUint32(0, place.at, true);
    }
  }
  /** What a host does: gives the outputs that a step asks for, of some size. */
  #answer() {
    const asked = core.pwx_asked(this.#session) >>> 0;
    const word = (at) => Number(new DataView(memory.buffer, asked).getBigInt64(8 * at, true));
    let at = 3;
    for (let i = 0; i < word(1); i++) at += 4 + word(at + 3);
    for (let i = 0; i < word(2); i++, at += 2) {
      if (!word(at)) continue;
      const dims = new BigInt64Array(word(at + 1)).fill(3n);
      const bytes = tensorBytes(word(at), [...dims]);
      const to = core.pwx_answer(this.#session, i, this.#blocks.put(dims), this.error) >>> 0;
      if (!to) throw viewAt(this.error, 4).getInt32(0, true);
      bytesAt(to, Number(bytes)).fill(1);
    }
  }
  free() {
    if (this.#session) core.pwx_destroy(this.#session);
    this.#session = 0;
    this.#blocks.free();
  }
}

/** All of the memory from `first` on, up to what is free, that a session takes; no case can have a place within. */
class Neighbour {
  constructor(seed) {
    const first = new Blocks().take(64);
    this.session = new Session(seed, seed.dims[0], 7n);
    this.outputs = this.session.run();
    this.session.run();
    // What is larger than every hole lies behind them.
    const last = new Blocks().take(2 ** 20);
    for (let size = 2 ** 19; size >= 64; size /= 2) while (new Blocks().take(size) < last);
    [this.at, this.length] = [first, last - first];
    this.before = Buffer.from(bytesAt(this.at, this.length));
  }
  check() {
    return this.before.equals(Buffer.from(memory.buffer, this.at, this.length)) ? "" : "a session's memory is damaged";
  }
  checkRun() {
    return this.session.run().equals(this.outputs) ? this.check() : "a session computes something else";
  }
}

/** What a case ends in. */
function outcome(seed, { words, dims, content, edits }) {
  const results = [];
  const weights = edits.length ? seed.weights.map((weight) => Uint8Array.from(weight)) : seed.weights;
  for (let i = 0; i < edits.length; i += 4) {
    const [weight, place, size] = edits.subarray(i, i + 3);
    weights[weight].set(new Uint8Array(edits.buffer, 8 * i + 24, Number(size)), Number(place));
  }
  for (let round = 0; round < 2; round++) {
    let session;
    try {
      session = new Session({ words, weights }, dims, content);
      results.push(session.run());
    } catch (error) {
      if (error instanceof TooMuch) return "too large";
      if (typeof error === "number") return NAMES[error];
      throw error;
    } finally {
      session?.free();
    }
  }
  if (!results[0].equals(results[1])) throw new Error("what was not written decides outputs");
  return "ran";
}

const seeds = paths.map(readSeed);
const neighbours = [new Neighbour(seeds[seeds.length - 1])];
const gap = core.pwx_alloc(GAP);
neighbours.push(new Neighbour(seeds[0]));
core.pwx_free(gap);

const piece = Buffer.alloc(1 << 20);
const cases = new Stream(() => Buffer.from(piece.subarray(0, readSync(0, piece))));
const counts = {};
let at = Number(firstCase);
try {
  for (let words; (words = cases.words()); at++) {
    const one = { words, dims: cases.numbers(), content: BigInt(cases.number()), edits: cases.numbers() };
    const ended = outcome(seeds[at % seeds.length], one);
    counts[ended] = (counts[ended] ?? 0) + 1;
    for (const neighbour of neighbours) {
      const fault = at % OFTEN ? neighbour.check() : neighbour.checkRun();
      if (fault) throw new Error(fault);
    }
    if (memory.buffer.byteLength > MOST) throw new Error("the core gives memory never back");
  }
  for (const neighbour of neighbours) if (neighbour.checkRun()) throw new Error(neighbour.checkRun());
} catch (error) {
  console.error(`${error.message}: case ${at} (${paths[at % paths.length]})\n${error.stack}`);
  process.exit(1);
}
for (const [name, count] of Object.entries(counts)) console.log(name, count);
