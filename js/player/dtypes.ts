/** Element types by onnxruntime's names. `code` is TensorProto.DataType; types without a typed array travel as bits. */

export type TypedArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

export interface TypedArrayClass {
  readonly BYTES_PER_ELEMENT: number;
  readonly name: string;
  new (length: number): TypedArray;
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): TypedArray;
  from(values: Iterable<number>): TypedArray;
}

interface Entry {
  readonly code: number;
  readonly bits: number;
  readonly array: TypedArrayClass;
}

const entry = (code: number, bits: number, array: unknown): Entry => ({ code, bits, array: array as TypedArrayClass });

const float16 = (globalThis as { Float16Array?: unknown }).Float16Array ?? Uint16Array;

const TYPES = {
  float32: entry(1, 32, Float32Array),
  uint8: entry(2, 8, Uint8Array),
  int8: entry(3, 8, Int8Array),
  uint16: entry(4, 16, Uint16Array),
  int16: entry(5, 16, Int16Array),
  int32: entry(6, 32, Int32Array),
  int64: entry(7, 64, BigInt64Array),
  bool: entry(9, 8, Uint8Array),
  float16: entry(10, 16, float16),
  float64: entry(11, 64, Float64Array),
  uint32: entry(12, 32, Uint32Array),
  uint64: entry(13, 64, BigUint64Array),
  bfloat16: entry(16, 16, Uint16Array),
  float8e4m3fn: entry(17, 8, Uint8Array),
  float8e4m3fnuz: entry(18, 8, Uint8Array),
  float8e5m2: entry(19, 8, Uint8Array),
  float8e5m2fnuz: entry(20, 8, Uint8Array),
  uint4: entry(21, 4, Uint8Array),
  int4: entry(22, 4, Uint8Array),
  float4e2m1: entry(23, 4, Uint8Array),
  float8e8m0: entry(24, 8, Uint8Array),
  uint2: entry(25, 2, Uint8Array),
  int2: entry(26, 2, Uint8Array),
  float6e2m3: entry(27, 6, Uint8Array),
  float6e3m2: entry(28, 6, Uint8Array),
} as const;

/** Names of the element types, as onnxruntime spells them. */
export type Type = keyof typeof TYPES;

const BY_CODE = new Map(Object.entries(TYPES).map(([name, { code }]) => [code, name as Type]));

export function isType(name: unknown): name is Type {
  return typeof name === "string" && Object.hasOwn(TYPES, name);
}

export function typeOfCode(code: number): Type | undefined {
  return BY_CODE.get(code);
}

export function codeOf(type: Type): number {
  return TYPES[type].code;
}

export function arrayOf(type: Type): TypedArrayClass {
  return TYPES[type].array;
}

/** Bytes of `count` elements; types below 8 bits are packed. */
export function bytesOf(type: Type, count: number): number {
  return Math.ceil((count * TYPES[type].bits) / 8);
}

export function elements(dims: readonly number[]): number {
  return dims.reduce((product, dim) => product * dim, 1);
}
