/** Arrays as numpy's, as far as the compiler asks: contiguous, views where they are contiguous as well. */
import { DTYPES, dtypeOf, guessed, promoted, type DType } from "./dtypes.js";
import * as operators from "./operators.js";
import { flat, prod, shapesTogether, sliced, span, strides } from "./shapes.js";
import { Float, Slice, Tuple, listOf, raise, type Any } from "./values.js";
import { str } from "./text.js";

const { isInt, plain } = operators;

export class NdArray {
  readonly isNd = true;
  constructor(
    readonly d: Any,
    readonly s: number[],
    readonly t: DType,
  ) {}

  at(i: number): Any {
    return this.t.get(this.d[i]);
  }
  elements(): Any[] {
    const out = new Array(this.d.length);
    for (let i = 0; i < out.length; i++) out[i] = this.t.get(this.d[i]);
    return out;
  }
  get $shape(): Tuple {
    return new Tuple(this.s);
  }
  get $dtype(): DType {
    return this.t;
  }
  get $size(): number {
    return this.d.length;
  }
  get $ndim(): number {
    return this.s.length;
  }
  get $itemsize(): number {
    return this.t.$itemsize;
  }
  get $nbytes(): number {
    return this.d.length * this.t.$itemsize;
  }
  get $flat(): NdArray {
    return this.$reshape(-1);
  }
  get $T(): NdArray {
    return this.$transpose();
  }
  /** Its bytes. */
  get $data(): Uint8Array {
    return new Uint8Array(this.d.buffer, this.d.byteOffset, this.d.byteLength);
  }
  [Symbol.iterator](): Iterator<Any> {
    if (!this.s.length) throw raise("TypeError", "iteration over a 0-d array");
    const parts: Any[] = [];
    for (let i = 0; i < (this.s[0] ?? 0); i++) parts.push(this.row(i));
    return parts[Symbol.iterator]();
  }
  row(i: number): Any {
    if (this.s.length === 1) return this.at(i);
    const rest = this.s.slice(1);
    const n = prod(rest);
    return new NdArray(part(this.d, i * n, (i + 1) * n), rest, this.t);
  }

  $reshape(...given: Any[]): NdArray {
    const shape = (given.length === 1 && !isInt(given[0]) ? listOf(given[0]) : given).map((n) => Number(plain(n)));
    const open = shape.indexOf(-1);
    if (open >= 0) shape[open] = this.d.length / (prod(shape.filter((_, i) => i !== open)) || 1);
    if (prod(shape) !== this.d.length) {
      throw raise("ValueError", `cannot reshape array of size ${this.d.length} into shape (${shape.join(", ")})`);
    }
    return new NdArray(this.d, shape, this.t);
  }
  $astype(to: Any): NdArray {
    const t = dtypeOf(to);
    const out = t.make(this.d.length);
    const direct = t === this.t && t.$kind !== "O";
    if (direct) out.set(this.d);
    else for (let i = 0; i < out.length; i++) out[i] = t.put(this.t.get(this.d[i]));
    return new NdArray(out, this.s, t);
  }
  $view(to: Any): NdArray {
    const t = dtypeOf(to);
    if (t === this.t) return this;
    const { buffer, byteOffset, byteLength } = this.d;
    const n = byteLength / t.$itemsize;
    const d =
      byteOffset % t.$itemsize
        ? t.make(buffer.slice(byteOffset, byteOffset + byteLength))
        : t.make(buffer, byteOffset, n);
    const shape = this.s.slice();
    if (shape.length) shape[shape.length - 1] = ((shape[shape.length - 1] as number) * this.t.$itemsize) / t.$itemsize;
    return new NdArray(d, shape, t);
  }
  $copy(): NdArray {
    return new NdArray(this.d.slice(), this.s, this.t);
  }
  $tobytes(): Uint8Array {
    return this.$data.slice();
  }
  $item(): Any {
    if (this.d.length !== 1) throw raise("ValueError", "can only convert an array of size 1");
    return this.at(0);
  }
  $tolist(): Any {
    if (!this.s.length) return this.at(0);
    const nest = (start: number, shape: number[]): Any[] => {
      const [n = 0, ...rest] = shape;
      const step = prod(rest);
      return Array.from({ length: n }, (_, i) => (rest.length ? nest(start + i * step, rest) : this.at(start + i)));
    };
    return nest(0, this.s);
  }
  $transpose(...given: Any[]): NdArray {
    const order: number[] = given.length
      ? given.length === 1 && !isInt(given[0])
        ? listOf(given[0])
        : given
      : this.s.map((_, i) => this.s.length - 1 - i);
    const steps = strides(this.s);
    return this.gather(
      order.map((a) => this.s[a] as number),
      order.map((a) => steps[a] as number),
      0,
    );
  }
  /** A copy of what strides, in elements, walk over. */
  gather(shape: number[], steps: number[], start: number): NdArray {
    const out = this.t.make(prod(shape));
    let k = 0;
    const walk = (axis: number, from: number): void => {
      if (axis === shape.length) {
        out[k++] = this.d[from];
        return;
      }
      const step = steps[axis] as number;
      for (let i = 0; i < (shape[axis] as number); i++) walk(axis + 1, from + i * step);
    };
    walk(0, start);
    return new NdArray(out, shape, this.t);
  }
  broadcast(shape: number[]): NdArray {
    if (shape.length === this.s.length && shape.every((n, i) => n === this.s[i])) return this;
    const steps = strides(this.s);
    const lead = shape.length - this.s.length;
    const found = shape.map((n, i) => {
      const own = i < lead ? 1 : (this.s[i - lead] as number);
      if (own !== n && own !== 1) throw raise("ValueError", "shapes cannot be broadcast together");
      return own === 1 ? 0 : (steps[i - lead] as number);
    });
    return this.gather(shape, found, 0);
  }
  $take(indices: Any, axis: Any = null): Any {
    const at = asArray(indices);
    const n = axis === null ? this.d.length : (this.s[Number(axis)] as number);
    const source = axis === null ? this.$reshape(-1) : this;
    const k = Number(axis ?? 0);
    const outer = prod(source.s.slice(0, k));
    const inner = prod(source.s.slice(k + 1));
    const picked = at.elements().map((i) => {
      const place = Number(i) < 0 ? Number(i) + n : Number(i);
      if (place < 0 || place >= n) throw raise("IndexError", `index ${str(i)} is out of bounds`);
      return place;
    });
    const out = this.t.make(outer * picked.length * inner);
    let to = 0;
    for (let o = 0; o < outer; o++)
      for (const p of picked) for (let i = 0; i < inner; i++) out[to++] = source.d[(o * n + p) * inner + i];
    const made = new NdArray(out, [...source.s.slice(0, k), ...at.s, ...source.s.slice(k + 1)], this.t);
    return made.s.length ? made : made.at(0);
  }
  reduce(fn: (a: Any, b: Any) => Any, start: Any, axis: Any, t: DType): Any {
    if (axis === null) return this.elements().reduce(fn, start);
    const k = Number(axis) < 0 ? Number(axis) + this.s.length : Number(axis);
    const [outer, n, inner] = [prod(this.s.slice(0, k)), this.s[k] as number, prod(this.s.slice(k + 1))];
    const out = t.make(outer * inner);
    for (let o = 0; o < outer; o++) {
      for (let i = 0; i < inner; i++) {
        let found = start;
        for (let j = 0; j < n; j++) {
          const x = this.at((o * n + j) * inner + i);
          found = found === undefined ? x : fn(found, x);
        }
        out[o * inner + i] = t.put(found);
      }
    }
    return new NdArray(
      out,
      this.s.filter((_, a) => a !== k),
      t,
    );
  }
  $any(axis: Any = null): Any {
    return this.reduce((a, b) => a || operators.truth(b), false, axis, DTYPES.bool as DType);
  }
  $all(axis: Any = null): Any {
    return this.reduce((a, b) => a && operators.truth(b), true, axis, DTYPES.bool as DType);
  }
  $sum(axis: Any = null): Any {
    const t = this.t.$kind === "b" || this.t.$kind === "i" ? (DTYPES.int64 as DType) : this.t;
    return this.reduce(operators.add, this.t.$kind === "f" ? new Float(0) : 0, axis, t);
  }
  $max(axis: Any = null, initial: Any = null): Any {
    const lead = initial === null ? [] : [initial];
    return axis === null
      ? [...lead, ...this.elements()].reduce((a, b) => (operators.lt(a, b) ? b : a))
      : this.reduce((a, b) => (operators.lt(a, b) ? b : a), undefined, axis, this.t);
  }
  $min(axis: Any = null, initial: Any = null): Any {
    const lead = initial === null ? [] : [initial];
    return axis === null
      ? [...lead, ...this.elements()].reduce((a, b) => (operators.lt(b, a) ? b : a))
      : this.reduce((a, b) => (operators.lt(b, a) ? b : a), undefined, axis, this.t);
  }
  $argsort(): NdArray {
    const items = this.elements();
    const order = items.map((_, i) => i);
    order.sort((a, b) => (operators.lt(items[a], items[b]) ? -1 : operators.lt(items[b], items[a]) ? 1 : a - b));
    return fromList(order, [order.length], DTYPES.int64 as DType);
  }
  $__len__(): number {
    if (!this.s.length) throw raise("TypeError", "len() of a 0-d array");
    return this.s[0] as number;
  }
  $__bool__(): boolean {
    return operators.truth(this.$item());
  }
  $__int__(): Any {
    const x = this.$item();
    return x instanceof Float ? operators.norm(BigInt(Math.trunc(x.v))) : plain(x);
  }
  $__index__(): Any {
    return this.$__int__();
  }
  $__float__(): Any {
    return new Float(Number(this.$item()));
  }
  valueOf(): Any {
    return Number(this.$item());
  }
  $__str__(): string {
    return this.s.length ? str(this.$tolist()) : str(this.at(0));
  }
  $__contains__(x: Any): boolean {
    return this.elements().some((e) => operators.eq(e, x));
  }

  $__getitem__(k: Any): Any {
    if (isInt(k)) {
      const n = this.s[0] ?? 0;
      const i = Number(plain(k)) < 0 ? Number(plain(k)) + n : Number(plain(k));
      if (i < 0 || i >= n) throw raise("IndexError", `index ${str(k)} is out of bounds for axis 0 with size ${n}`);
      return this.row(i);
    }
    if (k instanceof Slice && (k.$step === null || k.$step === 1)) {
      const [a, b] = span(k, this.s[0] ?? 0);
      const inner = prod(this.s.slice(1));
      return new NdArray(part(this.d, a * inner, b * inner), [b - a, ...this.s.slice(1)], this.t);
    }
    if (k instanceof Tuple && k.a.length === this.s.length && k.a.every(isInt)) return this.at(flat(k.a, this.s));
    const { places, shape } = this.places(k);
    const out = this.t.make(places.length);
    for (let i = 0; i < places.length; i++) out[i] = this.d[places[i] as number];
    return shape.length || !(k instanceof Tuple) ? new NdArray(out, shape, this.t) : this.t.get(out[0]);
  }
  $__setitem__(k: Any, v: Any): void {
    if (isInt(k) && this.s.length === 1) {
      this.d[flat([k], this.s)] = this.t.put(v);
      return;
    }
    if (k instanceof Tuple && k.a.length === this.s.length && k.a.every(isInt)) {
      this.d[flat(k.a, this.s)] = this.t.put(v);
      return;
    }
    const { places, shape } = this.places(k);
    const single = !(v?.isNd || Array.isArray(v) || v instanceof Tuple);
    if (single) {
      for (const p of places) this.d[p] = this.t.put(v);
      return;
    }
    let from = v.isNd ? v : this.t.$kind === "O" ? new NdArray(listOf(v), [listOf(v).length], this.t) : asArray(v);
    from = from.broadcast(shape);
    for (let i = 0; i < places.length; i++) this.d[places[i] as number] = this.t.put(from.at(i));
  }
  /** Which elements an index names, and their shape. */
  places(k: Any): { places: number[]; shape: number[] } {
    let keys: Any[] = k instanceof Tuple ? k.a.slice() : [k];
    keys = keys.map((x) => (Array.isArray(x) ? asArray(x) : x));
    const used = keys
      .filter((x) => x !== null && x?.$name !== "Ellipsis")
      .reduce((n, x) => n + (x?.isNd && x.t.$kind === "b" ? x.s.length : 1), 0);
    const dots = keys.findIndex((x) => x?.$name === "Ellipsis");
    const missing = Array.from({ length: this.s.length - used }, () => new Slice(null, null, null));
    if (dots >= 0) keys.splice(dots, 1, ...missing);
    else keys.push(...missing);
    const lists = keys.filter((x) => x?.isNd);
    if (lists.length > 1) return this.together(keys);
    const steps = strides(this.s);
    let found = [0];
    const shape: number[] = [];
    let axis = 0;
    for (const key of keys) {
      if (key === null) {
        shape.push(1);
        continue;
      }
      const n = this.s[axis] as number;
      let step = steps[axis] as number;
      let at: number[];
      if (isInt(key)) at = [Number(key) < 0 ? Number(key) + n : Number(key)];
      else if (key instanceof Slice) {
        at = sliced(key, n);
        shape.push(at.length);
      } else if (key.t.$kind === "b") {
        at = [];
        for (let i = 0; i < key.d.length; i++) if (key.d[i]) at.push(i);
        shape.push(at.length);
        axis += key.s.length - 1;
        step = steps[axis] as number;
      } else {
        at = key.elements().map((i: Any) => (Number(i) < 0 ? Number(i) + n : Number(i)));
        if (at.some((i) => i < 0 || i >= n)) throw raise("IndexError", "index is out of bounds");
        shape.push(...key.s);
      }
      axis++;
      const next: number[] = [];
      for (const base of found) for (const i of at) next.push(base + i * step);
      found = next;
    }
    return { places: found, shape };
  }
  /** Several lists of indices, of which each names an element. */
  private together(keys: Any[]): { places: number[]; shape: number[] } {
    const arrays = keys.map((x) => {
      if (x instanceof Slice || x === null) throw raise("NotImplementedError", "lists of indices beside slices");
      return x.isNd ? (x.t.$kind === "b" ? where(x) : x) : asArray(x);
    });
    const shape = shapesTogether(arrays.map((a) => a.s));
    const steps = strides(this.s);
    const wide = arrays.map((a) => a.broadcast(shape));
    const places = Array.from({ length: prod(shape) }, (_, i) =>
      wide.reduce((sum, a, axis) => {
        const n = this.s[axis] as number;
        const v = Number(a.at(i));
        return sum + (v < 0 ? v + n : v) * (steps[axis] as number);
      }, 0),
    );
    return { places, shape };
  }
}

function where(mask: NdArray): NdArray {
  const at: number[] = [];
  for (let i = 0; i < mask.d.length; i++) if (mask.d[i]) at.push(i);
  return fromList(at, [at.length], DTYPES.int64 as DType);
}

const part = (d: Any, a: number, b: number): Any => (Array.isArray(d) ? view(d, a, b) : d.subarray(a, b));
/** Objects are copied where a part of them is taken. */
const view = (d: Any[], a: number, b: number): Any[] => (a === 0 && b === d.length ? d : d.slice(a, b));

export function fromList(items: Any[], shape: number[], t: DType): NdArray {
  const d = t.make(items.length);
  for (let i = 0; i < items.length; i++) d[i] = t.put(items[i]);
  return new NdArray(d, shape, t);
}

const listed = (x: Any): boolean => Array.isArray(x) || x instanceof Tuple;

export function asArray(x: Any, to: Any = null): NdArray {
  if (x?.isNd) return to === null || dtypeOf(to) === x.t ? x : x.$astype(to);
  if (x instanceof Uint8Array) return new NdArray(x, [x.length], DTYPES.uint8 as DType);
  const shape: number[] = [];
  let items: Any[] = [x];
  const typed = to === null ? undefined : dtypeOf(to);
  while (items.length && items.every((i) => listed(i) || (i?.isNd && i.s.length > 0))) {
    const rows = items.map(listOf);
    const n = (rows[0] as Any[]).length;
    if (rows.some((r) => r.length !== n)) throw raise("ValueError", "setting an array element with a sequence");
    shape.push(n);
    items = rows.flat(1);
  }
  items = items.map((i) => (i?.isNd ? i : i));
  const t = typed ?? guessed(items);
  return fromList(
    items.map((i) => (i?.isNd && t.$kind === "O" ? i.$item() : i)),
    shape,
    t,
  );
}

const COMPARES = new Set(["eq", "ne", "lt", "le", "gt", "ge"]);

/** Element by element, broadcast. */
export function elementwise(name: string, fn: (a: Any, b: Any) => Any, a: Any, b: Any): Any {
  const known = [a, b].filter((x) => x?.isNd) as NdArray[];
  // A number beside an array takes the array's dtype where that is of its kind.
  const weak = (x: Any): DType => {
    const other = (known[0] as NdArray).t;
    if (x instanceof Float)
      return other.$kind === "f" ? other : other.$kind === "O" ? other : (DTYPES.float64 as DType);
    if (typeof x === "boolean") return DTYPES.bool as DType;
    return other.$kind === "b" ? (DTYPES.int64 as DType) : other;
  };
  const one = (x: Any): boolean => isInt(x) || x instanceof Float;
  const [x, y] = [a, b].map((v) => (v?.isNd ? v : one(v) ? fromList([v], [], weak(v)) : asArray(v))) as [
    NdArray,
    NdArray,
  ];
  const shape = shapesTogether([x.s, y.s]);
  let t = COMPARES.has(name) ? (DTYPES.bool as DType) : promoted(x.t, y.t);
  if (name === "div" && t.$kind !== "f" && t.$kind !== "O") t = DTYPES.float64 as DType;
  const [p, q] = [x.broadcast(shape), y.broadcast(shape)];
  const out = t.make(p.d.length);
  for (let i = 0; i < out.length; i++) out[i] = t.put(fn(p.at(i), q.at(i)));
  return new NdArray(out, shape, t);
}

const floats = (x: Any): boolean => x instanceof Float;
/** Division of floats as IEEE 754 has it. */
const quotient = (a: Any, b: Any): Any =>
  floats(a) || floats(b) || Number(b) === 0 ? new Float(Number(a) / Number(b)) : operators.div(a, b);
const modulo = (a: Any, b: Any): Any => (Number(b) === 0 ? 0 : operators.mod(a, b));
const BINARY: Record<string, (a: Any, b: Any) => Any> = {
  add: operators.add, sub: operators.sub, mul: operators.mul, truediv: quotient, floordiv: operators.floordiv, mod: modulo,
  pow: operators.pow, and: operators.and, or: operators.or, xor: operators.xor, lshift: operators.shl, rshift: operators.shr,
}; // prettier-ignore
const prototype: Any = NdArray.prototype;
for (const [name, fn] of Object.entries(BINARY)) {
  const known = name === "truediv" ? "div" : name;
  prototype[`$__${name}__`] = function (b: Any) {
    return elementwise(known, fn, this, b);
  };
  prototype[`$__r${name}__`] = function (b: Any) {
    return elementwise(known, fn, b, this);
  };
  prototype[`$__i${name}__`] = function (b: Any) {
    const found = elementwise(known, fn, this, b);
    for (let i = 0; i < this.d.length; i++) this.d[i] = this.t.put(found.at(i));
    return this;
  };
}
for (const name of COMPARES) {
  const fn = (operators as Any)[name];
  prototype[`$__${name}__`] = function (b: Any) {
    if (b === null) return name === "ne";
    return elementwise(name, fn, this, b);
  };
}
prototype.$__neg__ = function () {
  return elementwise("mul", operators.mul, this, this.t.$kind === "f" ? new Float(-1) : -1);
};
prototype.$__invert__ = function () {
  const out = this.t.make(this.d.length);
  for (let i = 0; i < out.length; i++) out[i] = this.t.$kind === "b" ? 1 - this.d[i] : ~this.d[i];
  return new NdArray(out, this.s, this.t);
};
prototype.$__matmul__ = function (b: NdArray) {
  const t = promoted(this.t, b.t);
  const inner = this.s[this.s.length - 1] as number;
  const columns = b.s.length > 1 ? (b.s[1] as number) : 1;
  const rows = this.d.length / inner;
  const out = t.make(rows * columns);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      let sum: Any = 0;
      for (let k = 0; k < inner; k++)
        sum = operators.add(sum, operators.mul(this.at(r * inner + k), b.at(k * columns + c)));
      out[r * columns + c] = t.put(sum);
    }
  }
  return new NdArray(out, [...this.s.slice(0, -1), ...(b.s.length > 1 ? [columns] : [])], t);
};
for (const [name, takes] of Object.entries({
  any: ["axis"],
  all: ["axis"],
  sum: ["axis"],
  max: ["axis", "initial"],
  min: ["axis", "initial"],
  take: ["indices", "axis"],
  argsort: ["axis", "kind"],
})) {
  prototype[`$${name}`].takes = takes;
}
