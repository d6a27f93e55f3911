/** Tensors as the widgets handle them, and what can be said of one at a glance. */
import { arrayOf, bytesOf, elements, type Type, type TypedArray } from "../../player/dtypes.js";

export type { Type, TypedArray };
export { elements };

export interface Tensor {
  readonly type: Type;
  readonly dims: readonly number[];
  readonly data: TypedArray;
}

export type Tensors = Readonly<Record<string, Tensor>>;

/** A value of a model's signature; a dim is a size, a symbol's name or a formula of symbols. */
export interface Value {
  readonly name: string;
  readonly type: Type;
  readonly shape: readonly (number | string)[];
}

/** Bytes beyond which the widgets refuse to make a tensor. */
export const LARGEST = 2 ** 28;

/** A tensor filled with `value(i)`. Throws RangeError for one too large to hold in a page. */
export function filled(type: Type, dims: readonly number[], value: (i: number) => number): Tensor {
  const count = elements(dims);
  const bytes = bytesOf(type, count);
  if (!(bytes <= LARGEST))
    throw new RangeError(
      `[${dims.join(", ")}] of ${type} takes ${size(bytes)}; make a dim smaller (limit ${size(LARGEST)})`,
    );
  const data = new (arrayOf(type))(bytes / arrayOf(type).BYTES_PER_ELEMENT);
  const put = store(type, data);
  for (let i = 0; i < data.length; i++) put(i, value(i));
  return { type, dims: [...dims], data };
}

/** Stores numbers into an array of the type. */
export function store(type: Type, data: TypedArray): (i: number, value: number) => void {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    const wide = data as BigInt64Array;
    return (i, value) => (wide[i] = BigInt(Math.trunc(Number.isFinite(value) ? value : 0)));
  }
  const plain = data as Float32Array;
  if (data instanceof Uint16Array && type === "float16") return (i, value) => (plain[i] = halfBits(value));
  if (data instanceof Uint16Array && type === "bfloat16") return (i, value) => (plain[i] = brainBits(value));
  return (i, value) => (plain[i] = value);
}

/** Reads elements of a tensor as numbers. */
export function reader({ type, data }: Tensor): (i: number) => number {
  if (data instanceof Uint16Array && type === "float16") return (i) => fromHalf(data[i]!);
  if (data instanceof Uint16Array && type === "bfloat16") return (i) => fromBrain(data[i]!);
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) return (i) => Number(data[i]);
  return (i) => data[i] as number;
}

export function numbers(tensor: Tensor): Float64Array {
  const at = reader(tensor);
  return Float64Array.from({ length: tensor.data.length }, (_, i) => at(i));
}

export function isFloat(type: Type): boolean {
  return type.includes("float");
}

const bits = new DataView(new ArrayBuffer(4));

function brainBits(value: number): number {
  bits.setFloat32(0, value);
  const word = bits.getUint32(0);
  return Number.isNaN(value) ? 0x7fc0 : ((word + 0x7fff + ((word >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBrain(word: number): number {
  bits.setUint32(0, word << 16);
  return bits.getFloat32(0);
}

/** Bits of the nearest float16, ties to even. */
export function halfBits(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(magnitude || 2 ** -15)));
  const steps = even((magnitude / 2 ** exponent) * 1024);
  return sign | (steps < 1024 ? steps : (exponent + 14) * 1024 + steps);
}

export function fromHalf(word: number): number {
  const [sign, exponent, fraction] = [word & 0x8000 ? -1 : 1, (word >> 10) & 31, word & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : (2 ** -14 * fraction) / 1024);
}

/** Rounds halves to even. */
export function even(value: number): number {
  const rounded = Math.round(value);
  return Math.abs(value - Math.trunc(value)) === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

export interface Summary {
  readonly count: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  readonly std: number;
  readonly nan: number;
  readonly infinite: number;
}

/** Figures over the finite elements; of none, min and max are NaN. */
export function summarise(tensor: Tensor): Summary {
  const at = reader(tensor);
  const count = tensor.data.length;
  let [min, max, mean, square, nan, infinite, n] = [Infinity, -Infinity, 0, 0, 0, 0, 0];
  for (let i = 0; i < count; i++) {
    const v = at(i);
    if (v !== v) nan++;
    else if (v === Infinity || v === -Infinity) infinite++;
    else {
      n++;
      if (v < min) min = v;
      if (v > max) max = v;
      const delta = v - mean;
      mean += delta / n;
      square += delta * (v - mean);
    }
  }
  if (!n) [min, max, mean] = [NaN, NaN, NaN];
  return { count, min, max, mean, std: n ? Math.sqrt(square / n) : NaN, nan, infinite };
}

/** What is wrong with a result, in words; undefined if it is all finite. */
export function trouble({ nan, infinite, count }: Pick<Summary, "nan" | "infinite" | "count">): string | undefined {
  const share = (n: number) =>
    n === count ? (count === 1 ? "" : `all ${whole(count)} values`) : `${whole(n)} of ${whole(count)} values`;
  const parts = [nan && `NaN (${share(nan)})`, infinite && `infinity (${share(infinite)})`].filter(Boolean);
  return parts.length ? `The output holds ${parts.join(" and ")}`.replace(" ()", "") : undefined;
}

export function whole(n: number): string {
  return n.toLocaleString("en-US");
}

/** A number for people: four significant digits. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value).replace("-", "−");
  const magnitude = Math.abs(value);
  const text = magnitude >= 1e5 || magnitude < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replaceAll("-", "−").replace("e+", "e");
}

export function size(bytes: number): string {
  if (!Number.isFinite(bytes)) return "more bytes than there are";
  for (const [unit, scale] of [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["KB", 1e3],
  ] as const)
    if (bytes >= scale) return `${(bytes / scale).toFixed(bytes < 10 * scale ? 1 : 0)} ${unit}`;
  return `${bytes} bytes`;
}

export function milliseconds(ms: number): string {
  return `${ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
}

export function signature({ type, shape }: Value | { type: Type; shape: readonly (number | string)[] }): string {
  return `${type}[${shape.join(", ")}]`;
}
