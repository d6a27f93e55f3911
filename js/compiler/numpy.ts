/** The functions of numpy that the compiler calls. */
import { DTYPES, TYPES, dtypeOf, promoted, type DType } from "./dtypes.js";
import { NdArray, asArray, elementwise, fromList } from "./ndarray.js";
import { Sparse } from "./sparse.js";
import { prod, shapesTogether, strides } from "./shapes.js";
import { Float, Tuple, listOf, raise, type Any } from "./values.js";
import * as operators from "./operators.js";
import { str } from "./text.js";

const { isInt, plain } = operators;
const D = DTYPES as Record<string, DType>;
const int64 = D.int64 as DType;
const float64 = D.float64 as DType;
const sizes = (shape: Any): number[] =>
  isInt(shape) ? [Number(plain(shape))] : listOf(shape).map((n) => Number(plain(n)));
const whole = (items: number[]): NdArray => fromList(items, [items.length], int64);

export const numpy: Any = { isModule: true, $__name__: "numpy" };

function declare(fns: Record<string, Any>, takes: Record<string, string[]> = {}): void {
  for (const [name, fn] of Object.entries(fns)) {
    numpy[`$${name}`] = fn;
    if (takes[name]) fn.takes = takes[name];
    fn.$name = name;
  }
}

for (const [name, t] of Object.entries(DTYPES)) {
  const type: Any = (x: Any = 0) => (t.$kind === "O" ? x : asArray(x, t));
  type.$name = type.$__name__ = name;
  type.isOf = (x: Any) => x?.isNd === true && x.s.length === 0 && x.t === t;
  t.$type = type;
  TYPES.set(type, t);
  numpy[`$${name}`] = type;
}
numpy.$bool_ = numpy.$bool;
numpy.$integer = Object.assign(() => null, { isOf: () => false, $name: "integer" });
numpy.$ndarray = Object.assign(() => null, { isOf: (x: Any) => x?.isNd === true, $name: "ndarray" });
numpy.$inf = new Float(Infinity);
numpy.$nan = new Float(NaN);
numpy.$pi = new Float(Math.PI);

/** Python's own types stand for dtypes, too. */
export function own(types: [Any, string][]): void {
  for (const [type, name] of types) TYPES.set(type, D[name] as DType);
}

const filled = (shape: Any, t: DType, value?: Any): NdArray => {
  const s = sizes(shape);
  const d = t.make(prod(s));
  const v = value !== undefined ? t.put(value) : t.$kind === "O" ? null : undefined;
  if (v !== undefined) d.fill(v);
  return new NdArray(d, s, t);
};

function reals(fn: (x: number) => number) {
  return (x: Any): Any => {
    if (!x?.isNd) return new Float(fn(Number(x)));
    const t = x.t.$kind === "f" ? x.t : float64;
    return fromList(
      x.elements().map((v: Any) => new Float(fn(Number(v)))),
      x.s,
      t,
    );
  };
}

declare(
  {
    dtype: dtypeOf,
    asarray: (x: Any, t: Any = null) => asArray(x, t),
    array: (x: Any, t: Any = null) => {
      const made = asArray(x, t);
      return made === x ? made.$copy() : made;
    },
    ascontiguousarray: (x: Any, t: Any = null) => asArray(x, t),
    empty: (shape: Any, t: Any = null) => filled(shape, dtypeOf(t)),
    zeros: (shape: Any, t: Any = null) => filled(shape, dtypeOf(t), 0),
    ones: (shape: Any, t: Any = null) => filled(shape, dtypeOf(t), 1),
    full: (shape: Any, value: Any, t: Any = null) => filled(shape, t === null ? asArray(value).t : dtypeOf(t), value),
    arange: (a: Any, b: Any = null, c: Any = 1, t: Any = null) => {
      const [start, stop] = b === null ? [0, a] : [a, b];
      if ([start, stop, c].some((x) => x instanceof Float)) throw raise("NotImplementedError", "arange of floats");
      const out: number[] = [];
      for (let i = Number(start); Number(c) > 0 ? i < Number(stop) : i > Number(stop); i += Number(c)) out.push(i);
      return fromList(out, [out.length], t === null ? int64 : dtypeOf(t));
    },
    frombuffer: (data: Any, t: Any = null, count: Any = -1, offset: Any = 0) => {
      const type = dtypeOf(t);
      if (data instanceof Sparse) {
        const end = Number(count) < 0 ? data.size : Number(offset) + Number(count) * type.$itemsize;
        return numpy.$frombuffer(data.range(Number(offset), end), type, count, 0);
      }
      const bytes: Uint8Array = data.isNd ? data.$data : data;
      const start = bytes.byteOffset + Number(offset);
      const n = Number(count) < 0 ? Math.floor((bytes.length - Number(offset)) / type.$itemsize) : Number(count);
      const aligned = start % type.$itemsize === 0;
      const d = aligned
        ? type.make(bytes.buffer, start, n)
        : type.make(bytes.slice(Number(offset), Number(offset) + n * type.$itemsize).buffer);
      return new NdArray(d, [n], type);
    },
    fromiter: (xs: Any, t: Any) => {
      const items = listOf(xs);
      return fromList(items, [items.length], dtypeOf(t));
    },
    concatenate: (parts: Any, axis: Any = 0) => {
      const arrays = listOf(parts).map((p) => asArray(p));
      const t = arrays.map((a) => a.t).reduce(promoted);
      const first = arrays[0] as NdArray;
      const k = Number(axis) < 0 ? Number(axis) + first.s.length : Number(axis);
      const outer = prod(first.s.slice(0, k));
      const inner = prod(first.s.slice(k + 1));
      const lengths = arrays.map((a) => a.s[k] as number);
      const total = lengths.reduce((a, b) => a + b, 0);
      const d = t.make(outer * total * inner);
      let at = 0;
      for (let o = 0; o < outer; o++) {
        arrays.forEach((a, n) => {
          const run = (lengths[n] as number) * inner;
          for (let i = 0; i < run; i++) d[at++] = a.t === t ? a.d[o * run + i] : t.put(a.at(o * run + i));
        });
      }
      return new NdArray(d, [...first.s.slice(0, k), total, ...first.s.slice(k + 1)], t);
    },
    stack: (parts: Any, axis: Any = 0) => {
      const arrays = listOf(parts).map((p) => asArray(p));
      const k = Number(axis) < 0 ? Number(axis) + (arrays[0] as NdArray).s.length + 1 : Number(axis);
      return numpy.$concatenate(
        arrays.map((a) => a.$reshape([...a.s.slice(0, k), 1, ...a.s.slice(k)])),
        k,
      );
    },
    append: (a: Any, b: Any) => {
      const x = asArray(a).$reshape(-1);
      return numpy.$concatenate([
        x,
        asArray(
          b?.isNd || !isInt(b) ? b : fromList([b], [1], x.t.$kind === "b" && typeof b !== "boolean" ? int64 : x.t),
        ).$reshape(-1),
      ]);
    },
    tile: (x: Any, times: Any) => {
      const reps = sizes(times);
      const a = asArray(x);
      let out = a.$reshape([...new Array(Math.max(0, reps.length - a.s.length)).fill(1), ...a.s]);
      reps.forEach((n, axis) => {
        const all = new Array(n).fill(out);
        out = numpy.$concatenate(all, axis);
      });
      return out;
    },
    repeat: (x: Any, times: Any) => {
      const a = asArray(x).$reshape(-1);
      const counts = isInt(times) ? new Array(a.$size).fill(Number(times)) : asArray(times).elements().map(Number);
      const out: Any[] = [];
      a.elements().forEach((v, i) => {
        for (let k = 0; k < counts[i]; k++) out.push(v);
      });
      return fromList(out, [out.length], a.t);
    },
    broadcast_to: (x: Any, shape: Any) => asArray(x).broadcast(sizes(shape)),
    where: (c: Any, a: Any, b: Any) => {
      const [mask, x, y] = [asArray(c), asArray(a), asArray(b)];
      const shape = shapesTogether([mask.s, x.s, y.s]);
      let t = promoted(x.t, y.t);
      if (!a?.isNd && y.t.$kind !== "b" && x.t.$kind !== "f") t = y.t;
      if (!b?.isNd && x.t.$kind !== "b" && y.t.$kind !== "f") t = a?.isNd ? x.t : t;
      const [m, p, q] = [mask, x, y].map((v) => v.broadcast(shape)) as [NdArray, NdArray, NdArray];
      return fromList(
        m.elements().map((yes, i) => (operators.truth(yes) ? p.at(i) : q.at(i))),
        shape,
        t,
      );
    },
    minimum: (a: Any, b: Any) => elementwise("min", (x, y) => (operators.lt(y, x) ? y : x), a, b),
    count_nonzero: (x: Any) => asArray(x).elements().filter(operators.truth).length,
    flatnonzero: (x: Any) => {
      const out: number[] = [];
      asArray(x)
        .elements()
        .forEach((v, i) => {
          if (operators.truth(v)) out.push(i);
        });
      return whole(out);
    },
    cumsum: (x: Any) => {
      const a = asArray(x);
      let total: Any = 0;
      return fromList(
        a.elements().map((v) => (total = operators.add(total, v))),
        [a.$size],
        a.t.$kind === "b" ? int64 : a.t,
      );
    },
    diff: (x: Any, n: Any = 1, axis: Any = -1, prepend: Any = null) => {
      void [n, axis];
      const items = [...(prepend === null ? [] : [prepend]), ...asArray(x).elements()];
      return fromList(
        items.slice(1).map((v, i) => operators.sub(v, items[i])),
        [Math.max(0, items.length - 1)],
        asArray(x).t,
      );
    },
    unique: (
      x: Any,
      return_index: Any = false,
      return_inverse: Any = false,
      return_counts: Any = false,
      axis: Any = null,
    ) => {
      if (axis !== null) {
        const rows = new Map<string, Any>();
        for (const row of asArray(x)) rows.set(row.$tolist().map(str).join(), new Tuple(row.$tolist()));
        const found = [...rows.values()].sort((p, q) => (operators.lt(p, q) ? -1 : 1));
        return fromList(
          found.flatMap((row) => row.a),
          [found.length, ...asArray(x).s.slice(1)],
          asArray(x).t,
        );
      }
      const a = asArray(x).$reshape(-1);
      const items = a.elements();
      const order = items
        .map((_, i) => i)
        .sort((p, q) => (operators.lt(items[p], items[q]) ? -1 : operators.lt(items[q], items[p]) ? 1 : p - q));
      const first: number[] = [];
      const counts: number[] = [];
      const inverse = new Array(items.length).fill(0);
      for (const i of order) {
        const last = first[first.length - 1];
        const nan = (v: Any): boolean => v instanceof Float && v.v !== v.v;
        if (last !== undefined && (operators.eq(items[last], items[i]) || (nan(items[last]) && nan(items[i]))))
          counts[counts.length - 1] = (counts[counts.length - 1] as number) + 1;
        else {
          first.push(i);
          counts.push(1);
        }
        inverse[i] = first.length - 1;
      }
      const found: Any[] = [
        fromList(
          first.map((i) => items[i]),
          [first.length],
          a.t,
        ),
      ];
      if (return_index) found.push(whole(first));
      if (return_inverse) found.push(whole(inverse));
      if (return_counts) found.push(whole(counts));
      return found.length > 1 ? new Tuple(found) : found[0];
    },
    searchsorted: (x: Any, v: Any, side: Any = "left") => {
      const items = asArray(x).elements();
      const find = (y: Any): number => {
        let [low, high] = [0, items.length];
        while (low < high) {
          const mid = (low + high) >> 1;
          if (side === "left" ? operators.lt(items[mid], y) : !operators.lt(y, items[mid])) low = mid + 1;
          else high = mid;
        }
        return low;
      };
      const wanted = asArray(v);
      return wanted.s.length ? fromList(wanted.elements().map(find), wanted.s, int64) : find(v);
    },
    bincount: (x: Any, weights: Any = null, minlength: Any = 0) => {
      void weights;
      const items = asArray(x).elements().map(Number);
      const out = new Array(Math.max(Number(minlength), ...items.map((i) => i + 1), 0)).fill(0);
      for (const i of items) out[i]++;
      return whole(out);
    },
    argsort: (x: Any) => asArray(x).$argsort(),
    argmax: (x: Any) => {
      const items = asArray(x).elements();
      let best = 0;
      items.forEach((v, i) => {
        if (operators.lt(items[best], v)) best = i;
      });
      return best;
    },
    isnan: (x: Any) => {
      const a = asArray(x);
      const found = fromList(
        a.elements().map((v) => v instanceof Float && v.v !== v.v),
        a.s,
        D.bool as DType,
      );
      return a.s.length ? found : found.at(0);
    },
    prod: (x: Any) => asArray(x).elements().reduce(operators.mul, 1),
    log: reals(Math.log),
    sqrt: reals(Math.sqrt),
    frexp: (x: Any) => {
      const v = Number(x);
      if (!v || !Number.isFinite(v)) return new Tuple([new Float(v), 0]);
      let e = Math.max(-1023, Math.floor(Math.log2(Math.abs(v))) + 1);
      let m = v * 2 ** -e;
      while (Math.abs(m) < 0.5) [m, e] = [m * 2, e - 1];
      while (Math.abs(m) >= 1) [m, e] = [m / 2, e + 1];
      return new Tuple([new Float(m), e]);
    },
    outer: (a: Any, b: Any) => {
      const [x, y] = [asArray(a).$reshape(-1), asArray(b).$reshape(-1)];
      return elementwise("mul", operators.mul, x.$reshape(x.$size, 1), y);
    },
    indices: (shape: Any) => {
      const s = sizes(shape);
      const steps = strides(s);
      const n = prod(s);
      const out: number[] = [];
      s.forEach((size, axis) => {
        for (let i = 0; i < n; i++) out.push(Math.floor(i / (steps[axis] as number)) % size);
      });
      return fromList(out, [s.length, ...s], int64);
    },
    ndindex: (...shape: Any[]) => {
      const s = shape.length === 1 && !isInt(shape[0]) ? sizes(shape[0]) : shape.map(Number);
      const steps = strides(s);
      return Array.from(
        { length: prod(s) },
        (_, i) => new Tuple(s.map((n, axis) => Math.floor(i / (steps[axis] as number)) % n)),
      );
    },
    finfo: (t: Any) => {
      const max =
        dtypeOf(t).$name === "float32"
          ? 3.4028234663852886e38
          : dtypeOf(t).$name === "float16"
            ? 65504
            : Number.MAX_VALUE;
      return { $max: new Float(max), $min: new Float(-max) };
    },
    iinfo: (t: Any) => {
      const { $itemsize, $kind } = dtypeOf(t);
      const bits = BigInt(8 * $itemsize);
      const signed = $kind === "i" ? 1n : 0n;
      return {
        $max: operators.norm((1n << (bits - signed)) - 1n),
        $min: operators.norm(signed ? -(1n << (bits - 1n)) : 0n),
      };
    },
    errstate: () => ({ $__enter__: () => null, $__exit__: () => false }),
  },
  {
    array: ["object", "dtype"], asarray: ["a", "dtype"], arange: ["start", "stop", "step", "dtype"], empty: ["shape", "dtype"],
    zeros: ["shape", "dtype"], ones: ["shape", "dtype"], full: ["shape", "fill_value", "dtype"], concatenate: ["arrays", "axis"],
    stack: ["arrays", "axis"], diff: ["a", "n", "axis", "prepend"], unique: ["ar", "return_index", "return_inverse", "return_counts", "axis"],
    searchsorted: ["a", "v", "side"], bincount: ["x", "weights", "minlength"], argsort: ["a", "axis", "kind"], errstate: ["over", "invalid", "divide", "all"],
    prod: ["a", "dtype"], frombuffer: ["buffer", "dtype", "count", "offset"], cumsum: ["a"],
  }, // prettier-ignore
);

const ufunc = (name: string, fn: (a: Any, b: Any) => Any): Any => {
  const found: Any = (a: Any, b: Any) => elementwise(name, fn, a, b);
  found.$outer = (a: Any, b: Any) => {
    const [x, y] = [asArray(a), asArray(b)];
    return elementwise(name, fn, x.$reshape([...x.s, ...y.s.map(() => 1)]), y);
  };
  found.$reduce = (a: Any, axis: Any = 0) => asArray(a).reduce(fn, undefined, axis, a.t);
  found.$reduce.takes = ["array", "axis"];
  found.$at = (a: NdArray, k: Any, v: Any) => {
    const wanted = asArray(v);
    asArray(k)
      .elements()
      .forEach((i, n) => {
        a.d[Number(i)] = a.t.put(fn(a.at(Number(i)), wanted.s.length ? wanted.at(n) : wanted.at(0)));
      });
    return null;
  };
  return found;
};
numpy.$add = ufunc("add", operators.add);
numpy.$subtract = ufunc("sub", operators.sub);
numpy.$bitwise_or = ufunc("or", operators.or);
numpy.$lib = {
  $stride_tricks: {
    $as_strided: (x: NdArray, shape: Any, steps: Any) =>
      x.gather(
        sizes(shape),
        sizes(steps).map((n) => n / x.t.$itemsize),
        0,
      ),
  },
};
