/** Elements as registers hold them. */
import type { Type } from "../dtypes.js";

/** An integer, or the bits of an f64. */
export function element(raw: Uint8Array, type: Type): bigint {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  if (type.includes("float")) return bits(number(view, type));
  switch (type) {
    case "int64":
    case "uint64":
      return view.getBigInt64(0, true);
    case "int32":
      return BigInt(view.getInt32(0, true));
    case "uint32":
      return BigInt(view.getUint32(0, true));
    case "int16":
      return BigInt(view.getInt16(0, true));
    case "uint16":
      return BigInt(view.getUint16(0, true));
    case "int8":
      return BigInt(view.getInt8(0));
    case "uint8":
      return BigInt(view.getUint8(0));
    default:
      return view.getUint8(0) ? 1n : 0n;
  }
}

function number(view: DataView, type: Type): number {
  switch (type) {
    case "float64":
      return view.getFloat64(0, true);
    case "float32":
      return view.getFloat32(0, true);
    case "float16":
      return half(view.getUint16(0, true));
    default:
      view = new DataView(new Uint8Array([0, 0, view.getUint8(0), view.getUint8(1)]).buffer);
      return view.getFloat32(0, true);
  }
}

function half(word: number): number {
  const sign = word & 0x8000 ? -1 : 1;
  const [exponent, fraction] = [(word >> 10) & 31, word & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

function bits(value: number): bigint {
  return new BigInt64Array(new Float64Array([value]).buffer)[0] as bigint;
}
