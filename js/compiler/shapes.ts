/** Shapes of arrays, and where an index lies in them. */
import { slice } from "./items.js";
import { plain } from "./operators.js";
import { Slice, raise, type Any } from "./values.js";

export const prod = (shape: number[]): number => shape.reduce((a, b) => a * b, 1);

export function strides(shape: number[]): number[] {
  const out = new Array<number>(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    out[i] = step;
    step *= shape[i] as number;
  }
  return out;
}

export function flat(k: Any[], shape: number[]): number {
  let at = 0;
  for (let i = 0; i < shape.length; i++) {
    const n = shape[i] as number;
    const v = Number(plain(k[i]));
    const place = v < 0 ? v + n : v;
    if (!(place >= 0 && place < n))
      throw raise("IndexError", `index ${v} is out of bounds for axis ${i} with size ${n}`);
    at = at * n + place;
  }
  return at;
}

export function span(k: Slice, n: number): [number, number] {
  const fit = (x: Any, otherwise: number): number => {
    if (x === null) return otherwise;
    const v = Number(plain(x));
    return Math.min(Math.max(v < 0 ? v + n : v, 0), n);
  };
  const [a, b] = [fit(k.$start, 0), fit(k.$stop, n)];
  return [a, Math.max(a, b)];
}

export function sliced(k: Slice, n: number): number[] {
  const every = Array.from({ length: n }, (_, i) => i);
  return slice(every, k.$start, k.$stop, k.$step);
}

export function shapesTogether(shapes: number[][]): number[] {
  const rank = Math.max(0, ...shapes.map((s) => s.length));
  return Array.from({ length: rank }, (_, i) => {
    let size = 1;
    for (const s of shapes) {
      const n = s[s.length - rank + i] ?? 1;
      if (n !== 1 && size !== 1 && n !== size) throw raise("ValueError", "shapes cannot be broadcast together");
      if (n !== 1) size = n;
    }
    return size;
  });
}
