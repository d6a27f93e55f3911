/** Element types of arrays. */
import { Float, raise, type Any } from "./values.js";
import { isInt, norm, plain } from "./operators.js";

export interface DType {
  readonly $name: string;
  readonly $kind: string;
  readonly $itemsize: number;
  readonly make: (n: number | ArrayBufferLike, offset?: number, length?: number) => Any;
  readonly rank: number;
  readonly get: (x: Any) => Any;
  readonly put: (x: Any) => Any;
  [more: string]: Any;
}

/** float16 from its bits, and back: to nearest, ties to even. */
export function fromHalf(h: number): number {
  const [sign, e, m] = [h & 0x8000 ? -1 : 1, (h >> 10) & 31, h & 1023];
  if (e === 31) return m ? NaN : sign * Infinity;
  return sign * (e ? 2 ** (e - 15) * (1 + m / 1024) : 2 ** -14 * (m / 1024));
}

export function toHalf(v: number): number {
  if (v !== v) return 0x7e00;
  const sign = v < 0 || Object.is(v, -0) ? 0x8000 : 0;
  const a = Math.abs(v);
  if (a >= 65520) return sign | 0x7c00;
  const e = a < 2 ** -14 ? -14 : Math.floor(Math.log2(a)) - (2 ** Math.floor(Math.log2(a)) > a ? 1 : 0);
  const scaled = a / 2 ** (e - 10);
  let m = Math.round(scaled);
  if (Math.abs(scaled - Math.trunc(scaled)) === 0.5 && m % 2) m -= 1;
  return sign | (a < 2 ** -14 ? m : ((e + 14) << 10) + m);
}

const whole = (x: Any): Any => {
  if (typeof x === "number") return x;
  if (x instanceof Float) return Math.trunc(x.v);
  return x?.isNd ? plain(x.$item()) : plain(x);
};
const real = (x: Any): number => Number(x?.isNd ? x.$item() : x);
const small = (bits: number, signed: boolean) => (x: Any) => {
  const v = whole(x);
  return typeof v === "bigint" ? Number(signed ? BigInt.asIntN(bits, v) : BigInt.asUintN(bits, v)) : v;
};
const big = (signed: boolean) => (x: Any) => {
  const v = whole(x);
  if (typeof v === "number" && !Number.isFinite(v)) return -(1n << 63n);
  return signed ? BigInt.asIntN(64, BigInt(v)) : BigInt.asUintN(64, BigInt(v));
};
const same = (x: Any): Any => x;
const number = (x: Any): Any => new Float(x);

function dtype(name: string, kind: string, size: number, array: Any, rank: number, get: Any, put: Any): DType {
  const make = (n: Any, offset?: number, length?: number): Any =>
    typeof n === "number" ? new array(n) : offset === undefined ? new array(n) : new array(n, offset, length);
  const made: Any = { $name: name, $kind: kind, $itemsize: size, make, rank, get, put, array };
  made.$newbyteorder = () => made;
  made.$__str__ = () => name;
  made.$__eq__ = (other: Any) => {
    try {
      return other !== null && dtypeOf(other) === made;
    } catch {
      return false;
    }
  };
  return made;
}

export const DTYPES: Record<string, DType> = {
  bool: dtype("bool", "b", 1, Uint8Array, 0, (x: number) => x !== 0, (x: Any) => (x instanceof Float ? x.v !== 0 : x?.isNd ? Number(x.$item()) !== 0 : Number(plain(x)) !== 0) ? 1 : 0),
  int8: dtype("int8", "i", 1, Int8Array, 1, same, small(8, true)),
  uint8: dtype("uint8", "u", 1, Uint8Array, 1, same, small(8, false)),
  int16: dtype("int16", "i", 2, Int16Array, 2, same, small(16, true)),
  uint16: dtype("uint16", "u", 2, Uint16Array, 2, same, small(16, false)),
  int32: dtype("int32", "i", 4, Int32Array, 3, same, small(32, true)),
  uint32: dtype("uint32", "u", 4, Uint32Array, 3, same, small(32, false)),
  int64: dtype("int64", "i", 8, BigInt64Array, 4, norm, big(true)),
  uint64: dtype("uint64", "u", 8, BigUint64Array, 4, norm, big(false)),
  float16: dtype("float16", "f", 2, Uint16Array, 5, (x: number) => new Float(fromHalf(x)), (x: Any) => toHalf(real(x))),
  float32: dtype("float32", "f", 4, Float32Array, 6, number, real),
  float64: dtype("float64", "f", 8, Float64Array, 7, number, real),
  complex64: dtype("complex64", "c", 8, Float64Array, 8, same, same),
  complex128: dtype("complex128", "c", 16, Float64Array, 9, same, same),
  object: dtype("object", "O", 8, Array, 10, same, same),
}; // prettier-ignore

/** A type that is called, as np.float32 is, and stands for its dtype. */
export const TYPES = new Map<Any, DType>();

export function dtypeOf(x: Any): DType {
  if (x === null || x === undefined) return DTYPES.float64 as DType;
  if (x.make) return x;
  const found = TYPES.get(x);
  if (found) return found;
  const name = typeof x === "string" ? x : undefined;
  if (name !== undefined) {
    const letter = /^[<>=|]?([uif])(\d)$/.exec(name);
    if (letter) {
      const kind = { u: "uint", i: "int", f: "float" }[letter[1] as "u"];
      return DTYPES[`${kind}${Number(letter[2]) * 8}`] as DType;
    }
    if (name in DTYPES) return DTYPES[name] as DType;
  }
  throw raise("TypeError", `no dtype ${String(x?.$name ?? x)}`);
}

/** The dtype that holds two. */
export function promoted(a: DType, b: DType): DType {
  if (a === b) return a;
  const [low, high] = a.rank < b.rank ? [a, b] : [b, a];
  const { $kind: l } = low;
  const { $kind: h } = high;
  if (h === "O" || l === "b") return high;
  if (l === h) return high;
  if (h === "f") {
    if (low.$itemsize === 1) return high;
    if (low.$itemsize === 2) return high.$itemsize < 4 ? (DTYPES.float32 as DType) : high;
    return DTYPES.float64 as DType;
  }
  // A signed and an unsigned one.
  const [signed, unsigned] = l === "i" ? [low, high] : [high, low];
  if (signed.$itemsize > unsigned.$itemsize) return signed;
  const wider = { 1: "int16", 2: "int32", 4: "int64", 8: "float64" }[unsigned.$itemsize as 1];
  return DTYPES[wider] as DType;
}

/** The dtype that numpy gives a list of such elements. */
export function guessed(items: Any[]): DType {
  let found: DType | undefined;
  for (const x of items) {
    const d = x?.isNd
      ? x.$dtype
      : typeof x === "boolean"
        ? DTYPES.bool
        : x instanceof Float
          ? DTYPES.float64
          : isInt(x)
            ? typeof x === "bigint" && x >= 1n << 63n
              ? DTYPES.uint64
              : DTYPES.int64
            : DTYPES.object;
    found = found ? promoted(found, d) : d;
  }
  return found ?? (DTYPES.float64 as DType);
}
