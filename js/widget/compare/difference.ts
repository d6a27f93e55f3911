/** How far apart two tensors are. */
import { numbers, type Tensor } from "../ui/tensor.js";

export interface Difference {
  readonly count: number;
  /** Greatest |a − b|. */
  readonly abs: number;
  /** Greatest |a − b| / |a| where a is not 0. */
  readonly rel: number;
  /** Greatest distance in representable values; for types without such, undefined. */
  readonly ulp: number | undefined;
  /** Greatest |a|. */
  readonly scale: number;
  /** Elements that are NaN or infinite in one of the two only, or infinities of other signs. */
  readonly unlike: number;
  /** a − b, and a with b, of at most 4096 elements spread over the tensor. */
  readonly errors: Float64Array;
  readonly pairs: readonly (readonly [number, number])[];
}

const SAMPLES = 4096;

/** Compares a result with a reference. Throws an error if dims or types differ. */
export function difference(reference: Tensor, other: Tensor): Difference {
  if (reference.type !== other.type || reference.dims.join() !== other.dims.join())
    throw new Error(`${reference.type}[${reference.dims.join(", ")}] against ${other.type}[${other.dims.join(", ")}]`);
  const [a, b] = [numbers(reference), numbers(other)];
  let [abs, rel, scale, unlike] = [0, 0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    const [x, y] = [a[i]!, b[i]!];
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      if (!Object.is(x, y)) unlike++;
      continue;
    }
    const d = Math.abs(x - y);
    const m = Math.abs(x);
    if (d > abs) abs = d;
    if (m > scale) scale = m;
    if (m && d / m > rel) rel = d / m;
  }
  const step = Math.max(1, Math.ceil(a.length / SAMPLES));
  const at = Array.from({ length: Math.ceil(a.length / step) }, (_, i) => i * step).filter(
    (i) => Number.isFinite(a[i]) && Number.isFinite(b[i]),
  );
  return {
    count: a.length,
    abs,
    rel,
    ulp: ulps(reference, other),
    scale,
    unlike,
    errors: Float64Array.from(at, (i) => a[i]! - b[i]!),
    pairs: at.map((i) => [a[i]!, b[i]!] as const),
  };
}

function ulps(reference: Tensor, other: Tensor): number | undefined {
  if (reference.type !== "float32") return undefined;
  const view = ({ data: { buffer, byteOffset, length } }: Tensor) => new Int32Array(buffer, byteOffset, length);
  const [a, b] = [view(reference), view(other)];
  // Bits as integers that are ordered like the floats they stand for.
  const ordered = (v: number): number => (v < 0 ? -2147483648 - v : v);
  const finite = (v: number): boolean => (v & 0x7f800000) !== 0x7f800000;
  let most = 0;
  for (let i = 0; i < a.length; i++) {
    const [x, y] = [a[i]!, b[i]!];
    if (x !== y && finite(x) && finite(y)) most = Math.max(most, Math.abs(ordered(x) - ordered(y)));
  }
  return most;
}
