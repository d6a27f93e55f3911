/** Sequences, optionals and maps at a session's border: arrays of tensors, null and Maps here, tensors behind it. PROGRAM.md says which. */
import { arrayOf, bytesOf, elements, type TypedArray } from "./dtypes.js";
import { isPlain, typeText, type Face } from "./faces.js";
import { asBytes } from "./source.js";
import { Tensor, TensorImpl, type TensorData, type TensorType } from "./tensor.js";

/** Numbers per tensor in the table of a sequence: a rank and eight sizes. */
const ROW = 9;

/** Feeds as tensors alone. Throws an error that names the input. */
export function spread(faces: readonly Face[], feeds: unknown): unknown {
  if (typeof feeds !== "object" || feeds === null || Array.isArray(feeds)) return feeds;
  const { ...found } = feeds as Record<string, unknown>;
  for (const face of faces) {
    if (isPlain(face)) continue;
    const { name, type, shape, sequence, optional } = face;
    const given = found[name];
    const fail = (text: string): never => {
      throw new Error(`input "${name}": ${text}; it takes ${typeText(face)}${optional ? " or null" : ""}`);
    };
    if (given === undefined) throw new Error(`input "${name}" is missing; it takes ${typeText(face)}`);
    if (face.key) {
      Object.assign(found, spreadMap(face, face.key, given, fail));
      continue;
    }
    if (optional) found[`${name}/present`] = new Tensor("bool", [given !== null], []);
    if (sequence) {
      const items = given === null && optional ? [] : given;
      if (!Array.isArray(items)) fail("the feed is no array of tensors");
      const tensors = (items as unknown[]).map((item, i) => itemOf(item, type, (text) => fail(`element ${i} ${text}`)));
      Object.assign(found, packed(name, type, tensors));
    } else if (given === null) {
      const dims = (shape ?? []).map((dim) => (typeof dim === "number" ? dim : 0));
      const count = elements(dims);
      const data = type === "string" ? Array<string>(count).fill("") : runOf(type, count, []);
      found[name] = new TensorImpl(type, data, dims);
    }
  }
  return found;
}

/** A Map or a plain object as its keys and values; bigints and numbers stand for each other where they are whole. */
function spreadMap(face: Face, key: "int64" | "string", given: unknown, fail: (text: string) => never) {
  const { name, type } = face;
  const plain = typeof given === "object" && given !== null && !Array.isArray(given) && !("dims" in given);
  if (!plain) return fail("the feed is no Map and no object");
  const pairs = given instanceof Map ? [...given] : Object.entries(given as object);
  const whole = (value: unknown, what: string): bigint => {
    if (typeof value === "bigint" || Number.isSafeInteger(value)) return BigInt(value as bigint);
    const isText = what === "key" && typeof value === "string" && /^-?\d+$/.test(value); // as objects have them
    return isText ? BigInt(value) : fail(`a ${what} is no integer`);
  };
  const column = (of: TensorType, values: readonly unknown[], what: string): TensorImpl => {
    const bad = (text: string) => fail(`a ${what} is no ${text}`);
    const dims = [values.length];
    const text = (value: unknown) => (typeof value === "string" ? value : bad("string"));
    if (of === "string") return new TensorImpl(of, values.map(text), dims);
    if (of === "int64")
      return new TensorImpl(
        of,
        BigInt64Array.from(values, (v) => whole(v, what)),
        dims,
      );
    const numbers = values.map((v) => (typeof v === "number" ? v : typeof v === "bigint" ? Number(v) : bad("number")));
    return new TensorImpl(of, new (arrayOf(of) as typeof Float32Array)(numbers), dims);
  };
  const [keys, values] = [pairs.map(([k]) => k as unknown), pairs.map(([, v]) => v as unknown)];
  return { [`${name}/keys`]: column(key, keys, "key"), [name]: column(type, values, "value") };
}

interface Item {
  /** Bytes, or strings. */
  readonly data: Uint8Array | string[];
  readonly dims: readonly number[];
}

function itemOf(value: unknown, type: TensorType, fail: (text: string) => never): Item {
  if (typeof value !== "object" || value === null || !("dims" in value && "type" in value)) return fail("is no tensor");
  const { dims, type: have, location } = value as Tensor;
  if ((have as string) !== type) fail(`is ${have}`);
  if (location !== undefined && location !== "cpu" && location !== "cpu-pinned")
    fail("is elsewhere than in memory: await getData()");
  if (dims.length >= ROW) fail(`has rank ${dims.length}; at most ${ROW - 1} are supported`);
  const given = (value as Tensor).data;
  const data = type === "string" ? (given as string[]) : asBytes(given);
  const size = type === "string" ? elements(dims) : bytesOf(type, elements(dims));
  if (!data || data.length !== size) return fail(`has dims [${dims}] that do not suit its data`);
  return { data, dims };
}

function packed(name: string, type: TensorType, tensors: readonly Item[]): Record<string, unknown> {
  const count = tensors.reduce((n, { dims }) => n + elements(dims), 0);
  const rows = new BigInt64Array(tensors.length * ROW).fill(1n);
  for (const [i, { dims }] of tensors.entries())
    for (const [k, number] of [dims.length, ...dims].entries()) rows[i * ROW + k] = BigInt(number);
  return {
    [name]: new TensorImpl(type, runOf(type, count, tensors), [count]),
    [`${name}/shapes`]: new TensorImpl("int64", rows, [tensors.length, ROW]),
  };
}

function runOf(type: TensorType, count: number, tensors: readonly Item[]): TensorData {
  if (type === "string") return tensors.flatMap(({ data }) => data as string[]);
  const bytes = new Uint8Array(bytesOf(type, count));
  let at = 0;
  for (const { data } of tensors) {
    bytes.set(data as Uint8Array, at);
    at += data.length;
  }
  return new (arrayOf(type))(bytes.buffer);
}

/** Results by the names of the model's outputs, of those of them whose tensors are there. */
export function gathered(faces: readonly Face[], results: Readonly<Record<string, Tensor>>): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const face of faces) {
    const [value, present] = [results[face.name], results[`${face.name}/present`]];
    if (!value) continue;
    const there = !face.optional || (present?.data as Uint8Array | undefined)?.[0] === 1;
    if (face.keys) found[face.name] = mapped(face.keys, value);
    else
      found[face.name] = !there ? null : face.sequence ? unpacked(face, value, results[`${face.name}/shapes`]!) : value;
  }
  return found;
}

/** A map per row of a matrix. */
function mapped(keys: readonly (string | bigint)[], { data }: Tensor): Map<string | bigint, number>[] {
  const rows = data as Float32Array;
  return Array.from(
    { length: rows.length / keys.length },
    (_, i) => new Map(keys.map((key, k) => [key, rows[i * keys.length + k]!])),
  );
}

function unpacked({ type }: Face, run: Tensor, table: Tensor): TensorImpl[] {
  const rows = table.data as BigInt64Array;
  let at = 0;
  return Array.from({ length: rows.length / ROW }, (_, i) => {
    const [rank = 0, ...sizes] = Array.from(rows.subarray(i * ROW, (i + 1) * ROW), Number);
    const dims = sizes.slice(0, rank);
    const data = (run.data as TypedArray | string[]).slice(at, (at += elements(dims)));
    return new TensorImpl(type, data, dims);
  });
}
