/** Reads .npy files: versions 1 to 3, little-endian, C order. */
import { arrayOf, elements, type Type } from "../../player/dtypes.js";
import { size, type Tensor } from "./tensor.js";

const TYPES: Readonly<Record<string, Type>> = {
  f2: "float16",
  f4: "float32",
  f8: "float64",
  i1: "int8",
  i2: "int16",
  i4: "int32",
  i8: "int64",
  u1: "uint8",
  u2: "uint16",
  u4: "uint32",
  u8: "uint64",
  b1: "bool",
};

/** The array of a .npy file. Throws an error that says what is wrong with it. */
export function parseNpy(buffer: ArrayBuffer, name: string): Tensor {
  const fail = (what: string): never => {
    throw new Error(`${name}: ${what}; save it with numpy.save`);
  };
  const view = new DataView(buffer);
  const bytes = new Uint8Array(buffer);
  if (bytes.length < 10 || bytes[0] !== 0x93 || new TextDecoder().decode(bytes.subarray(1, 6)) !== "NUMPY")
    fail("not a .npy file");
  const wide = bytes[6]! >= 2;
  const start = wide ? 12 : 10;
  if (bytes.length < start) fail("the header is cut off");
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = new TextDecoder().decode(bytes.subarray(start, start + length));
  const descr = /'descr':\s*'([<>|=])([a-z]\d+)'/.exec(header);
  const shape = /'shape':\s*\(([\d\s,]*)\)/.exec(header);
  if (!descr || !shape) return fail(`the header ${header.slice(0, 80).trim()} is not of a plain array`);
  const type = TYPES[descr[2]!];
  if (!type) return fail(`dtype ${descr[2]} is not one that models take`);
  if (descr[1] === ">") fail("big-endian data");
  if (/'fortran_order':\s*True/.test(header)) fail("Fortran order");
  const dims = shape[1]!
    .split(",")
    .filter((d) => d.trim())
    .map(Number);
  const array = arrayOf(type);
  const count = elements(dims);
  const body = buffer.slice(start + length);
  if (body.byteLength !== count * array.BYTES_PER_ELEMENT)
    fail(
      `[${dims.join(", ")}] of ${type} takes ${size(count * array.BYTES_PER_ELEMENT)}, the file has ${size(body.byteLength)}`,
    );
  return { type, dims, data: new array(body) };
}
