/** Python's built-in functions and types. */
import { BaseException } from "./errors.js";
import { call, callk, Keywords } from "./calls.js";
import { contains, eq, isInt, lt, norm, plain, pow, truth } from "./operators.js";
import {
  Dict,
  Float,
  FrozenSet,
  PySet,
  Range,
  Slice,
  Tuple,
  identity,
  iter,
  keyOf,
  listOf,
  raise,
  type Any,
} from "./values.js";
import { repr, str } from "./text.js";

const latin = new TextDecoder("latin1");
export const latin1 = (text: string): Uint8Array => Uint8Array.from(text, (c) => c.charCodeAt(0));
export const Ellipsis = { $name: "Ellipsis" };

export function len(x: Any): number {
  if (typeof x === "string") {
    // Characters, not UTF-16 units.
    for (let i = 0; i < x.length; i++) if ((x.charCodeAt(i) & 0xf800) === 0xd800) return [...x].length;
    return x.length;
  }
  if (Array.isArray(x) || x instanceof Uint8Array || x instanceof Range) return x.length;
  if (x instanceof Tuple) return x.a.length;
  if (x instanceof Dict || x instanceof PySet) return x.m.size;
  if (x?.$__len__) return x.$__len__();
  throw raise("TypeError", `object of type ${x?.constructor?.typeName ?? typeof x} has no len()`);
}

export function int(x: Any = 0, base: Any = null): Any {
  if (typeof x === "number" || typeof x === "bigint") return x;
  if (typeof x === "boolean") return x ? 1 : 0;
  if (x instanceof Float) {
    if (!Number.isFinite(x.v))
      throw raise(x.v !== x.v ? "ValueError" : "OverflowError", `cannot convert float ${str(x)} to integer`);
    const t = Math.trunc(x.v);
    return Number.isSafeInteger(t) ? t + 0 : norm(BigInt(t));
  }
  if (typeof x === "string") {
    const text = x.trim();
    if (base !== null && base !== 10) {
      const n = parseInt(text, base);
      if (Number.isNaN(n)) throw raise("ValueError", `invalid literal for int() with base ${base}: ${repr(x)}`);
      return n;
    }
    if (!/^[-+]?\d+$/.test(text)) throw raise("ValueError", `invalid literal for int() with base 10: ${repr(x)}`);
    return norm(BigInt(text));
  }
  if (x?.enumMember) return x.$value;
  if (x?.$__int__) return x.$__int__();
  if (x?.$__index__) return x.$__index__();
  throw raise(
    "TypeError",
    `int() argument must be a string or a number, not ${x === null ? "None" : x?.constructor?.typeName}`,
  );
}
(int as Any).$from_bytes = (data: Uint8Array, order: string, signed = false): Any => {
  let value = 0n;
  for (const byte of order === "little" ? [...data].reverse() : data) value = (value << 8n) | BigInt(byte);
  return norm(signed ? BigInt.asIntN(data.length * 8, value) : value);
};
(int as Any).$from_bytes.takes = ["bytes", "byteorder", "signed"];

export function float(x: Any = 0): Any {
  if (x instanceof Float) return x;
  if (typeof x === "string") {
    const text = x.trim().toLowerCase();
    const words: Record<string, number> = {
      inf: Infinity,
      "+inf": Infinity,
      "-inf": -Infinity,
      nan: NaN,
      infinity: Infinity,
    };
    return new Float(words[text] ?? Number(text));
  }
  if (isInt(x)) return new Float(Number(plain(x)));
  return x.$__float__();
}

export const bool = (x: Any = false): boolean => truth(x);
function strType(x: Any = "", encoding: Any = null, errors: Any = null): string {
  if (typeof x === "string") return x;
  return encoding === null || encoding === undefined ? str(x) : x.$decode(encoding, errors ?? "strict");
}
(strType as Any).takes = ["x", "encoding", "errors"];
export { strType };

export const list = (x: Any = null): Any[] => (x === null ? [] : listOf(x));
export const tuple = (x: Any = null): Tuple =>
  x instanceof Tuple && x.constructor === Tuple ? x : new Tuple(x === null ? [] : listOf(x));
export const set = (x: Any = null): PySet => new PySet(x === null ? [] : iter(x));
export const frozenset = (x: Any = null): FrozenSet =>
  x instanceof FrozenSet ? x : new FrozenSet(x === null ? [] : iter(x));

export function dictof(pairs: Iterable<Any>): Dict {
  const out = new Dict();
  for (const [k, v] of pairs) out.set(k, v);
  return out;
}

/** A dict of keys and values in turn. */
export function dictwith(items: Any[]): Dict {
  const out = new Dict();
  for (let i = 0; i < items.length; i += 2) out.set(items[i], items[i + 1]);
  return out;
}

export const pairs = (d: Any): Any[] =>
  d instanceof Dict ? [...d.m.values()].map((e) => [e.k, e.v]) : listOf(d.$keys()).map((k) => [k, d.$__getitem__(k)]);

export function dict(...args: Any[]): Dict {
  const named = args.length && args[args.length - 1] instanceof Keywords ? args.pop() : undefined;
  const [x] = args;
  const out = x === undefined ? new Dict() : x instanceof Dict || x.$keys ? dictof(pairs(x)) : dictof(iter(x) as Any);
  if (named) for (const [k, v] of Object.entries(named)) out.set(k, v);
  return out;
}
(dict as Any).signature = { name: "dict", pos: [], rest: "x" };
(dict as Any).$fromkeys = (keys: Any, value: Any = null): Dict => {
  const out = new Dict();
  for (const k of iter(keys)) out.set(k, value);
  return out;
};

export function bytes(x: Any = 0): Uint8Array {
  if (typeof x === "number") return new Uint8Array(x);
  if (x?.$tobytes) return x.$tobytes();
  return x instanceof Uint8Array ? x : Uint8Array.from(listOf(x));
}
export const bytearray = (x: Any = 0): Uint8Array => bytes(x).slice();
export const memoryview = (x: Any): Any => (x.isNd ? x.$data : x);
export const object: Any = function () {
  return Object.create(object.prototype);
};
object.base = null;
object.typeName = "object";
export const slice = (...a: Any[]): Slice =>
  a.length === 1 ? new Slice(null, a[0], null) : new Slice(a[0], a[1], a[2] ?? null);
export const range = (a: Any, b?: Any, c: Any = 1): Range =>
  b === undefined ? new Range(0, Number(plain(a)), 1) : new Range(Number(plain(a)), Number(plain(b)), Number(c));

const TYPES = new Map<Any, (x: Any) => boolean>([
  [int, isInt],
  [float, (x) => x instanceof Float],
  [bool, (x) => typeof x === "boolean"],
  [strType, (x) => typeof x === "string"],
  [list, Array.isArray],
  [tuple, (x) => x instanceof Tuple],
  [dict, (x) => x instanceof Dict],
  [set, (x) => x instanceof PySet && !(x instanceof FrozenSet)],
  [frozenset, (x) => x instanceof FrozenSet],
  [bytes, (x) => x instanceof Uint8Array],
  [bytearray, () => false],
  [memoryview, (x) => x instanceof Uint8Array],
  [range, (x) => x instanceof Range],
  [slice, (x) => x instanceof Slice],
  [object, () => true],
]);

export const isint = isInt;

export function isinstance(x: Any, of: Any): boolean {
  if (of?.isClass === true) return x instanceof of;
  if (of instanceof Tuple) {
    for (let i = 0; i < of.a.length; i++) if (isinstance(x, of.a[i])) return true;
    return false;
  }
  const known = TYPES.get(of);
  if (known) return known(x);
  if (of === null) return x === null;
  if (of?.isOf) return of.isOf(x);
  if (typeof of !== "function") return false;
  return x !== null && typeof x === "object" && x instanceof of;
}

export function type(x: Any): Any {
  switch (typeof x) {
    case "number":
    case "bigint":
      return int;
    case "string":
      return strType;
    case "boolean":
      return bool;
    case "function":
      return FunctionType;
  }
  if (x === null) return NoneType;
  if (x instanceof Float) return float;
  if (Array.isArray(x)) return list;
  if (x instanceof Dict) return dict;
  if (x instanceof FrozenSet) return frozenset;
  if (x instanceof PySet) return set;
  if (x instanceof Uint8Array) return bytes;
  if (x.constructor === Tuple) return tuple;
  return x.enumMember ? Object.getPrototypeOf(x).constructor : x.constructor;
}
const NoneType = Object.assign(() => null, { typeName: "NoneType", base: null });
const FunctionType = Object.assign(() => null, { typeName: "function", base: null });
const NAMES: [Any, string][] = [
  [int, "int"], [float, "float"], [bool, "bool"], [strType, "str"], [list, "list"], [tuple, "tuple"], [dict, "dict"], [set, "set"],
  [frozenset, "frozenset"], [bytes, "bytes"], [NoneType, "NoneType"], [range, "range"],
]; // prettier-ignore
for (const [t, name] of NAMES) {
  t.$__name__ = t.typeName = name;
  t.base ??= null;
}

export const mapped = (xs: Any, fn: (x: Any) => Any): Any[] => {
  const items = iter(xs);
  if (Array.isArray(items)) {
    const out = new Array(items.length);
    for (let i = 0; i < items.length; i++) out[i] = fn(items[i]);
    return out;
  }
  const out: Any[] = [];
  for (const x of items) out.push(fn(x));
  return out;
};

/** A generator: what `next` takes from. */
export const generator = (fn: Any): Any => {
  return typeof fn === "function" ? () => fn() : fn;
};

export const iterator = (x: Any): Any => {
  if (x && typeof x.next === "function" && typeof x[Symbol.iterator] === "function") return x;
  const inner = iter(x)[Symbol.iterator]();
  const found: Any = inner;
  if (typeof found[Symbol.iterator] !== "function") found[Symbol.iterator] = () => found;
  return found;
};

export function next(it: Any, ...otherwise: Any[]): Any {
  const { value, done } = it.next();
  if (!done) return value;
  if (otherwise.length) return otherwise[0];
  throw raise("StopIteration", "");
}

export function unpack(x: Any, count: number): Any[] {
  const items = Array.isArray(x) ? x : x instanceof Tuple ? x.a : listOf(x);
  if (items.length !== count) {
    throw raise(
      "ValueError",
      items.length > count
        ? `too many values to unpack (expected ${count})`
        : `not enough values to unpack (expected ${count}, got ${items.length})`,
    );
  }
  return items;
}

export const any = (xs: Any): boolean => {
  for (const x of iter(xs)) if (truth(x)) return true;
  return false;
};
export const all = (xs: Any): boolean => {
  for (const x of iter(xs)) if (!truth(x)) return false;
  return true;
};

export function* enumerate(xs: Any, start: Any = 0): Generator<Any> {
  let i = Number(start);
  for (const x of iter(xs)) yield new Tuple([i++, x]);
}
(enumerate as Any).takes = ["iterable", "start"];

/** The rows of lists side by side, for what takes them apart. */
export function zipped(xs: Any[], strict: boolean): Iterable<Any> {
  const lists: Any[][] = [];
  for (const x of xs) {
    if (!Array.isArray(x) && !(x instanceof Tuple)) return rows(xs, strict);
    lists.push(x instanceof Tuple ? x.a : x);
  }
  return lists.length ? beside(lists, strict, false) : [];
}

/** The common case without iterators; lists may not change while they are run over. */
function beside(lists: Any[][], strict: boolean, tuples: boolean): Any[] {
  let least = (lists[0] as Any[]).length;
  for (const list of lists) {
    if (strict && list.length !== least) throw raise("ValueError", "zip() arguments have different lengths");
    if (list.length < least) least = list.length;
  }
  const out: Any[] = [];
  for (let i = 0; i < least; i++) {
    const row: Any[] = [];
    for (let k = 0; k < lists.length; k++) row.push((lists[k] as Any[])[i]);
    out.push(tuples ? new Tuple(row) : row);
  }
  return out;
}

function* rows(xs: Any[], strict: boolean): Generator<Any> {
  const its = xs.map((x) => iter(x)[Symbol.iterator]());
  for (;;) {
    const found: Any[] = [];
    for (let k = 0; k < its.length; k++) {
      const { value, done } = (its[k] as Any).next();
      if (done) {
        if (strict && (k || its.slice(1).some((it) => !it.next().done))) {
          throw raise("ValueError", "zip() arguments have different lengths");
        }
        return;
      }
      found.push(value);
    }
    if (!its.length) return;
    yield new Tuple(found);
  }
}

export function zip(...xs: Any[]): Any {
  const named = xs.length && xs[xs.length - 1] instanceof Keywords ? xs.pop() : undefined;
  const strict = !!named?.strict;
  if (xs.length && xs.every((x) => Array.isArray(x) || x instanceof Tuple)) {
    const lists = xs.map((x) => (x instanceof Tuple ? x.a : x)) as Any[][];
    return beside(lists, strict, true)[Symbol.iterator]();
  }
  return rows(xs, strict);
}
(zip as Any).signature = { name: "zip", pos: [], rest: "xs" };

export function* map(fn: Any, ...xs: Any[]): Generator<Any> {
  if (xs.length === 1) {
    for (const x of iter(xs[0])) yield call(fn, x);
  } else for (const t of rows(xs, false)) yield call(fn, ...t.a);
}
export function* filter(fn: Any, xs: Any): Generator<Any> {
  for (const x of iter(xs)) if (truth(fn === null ? x : call(fn, x))) yield x;
}
export function reversed(xs: Any): Any {
  if (xs instanceof Dict) return xs.keys().reverse()[Symbol.iterator]();
  return listOf(xs).reverse()[Symbol.iterator]();
}

export function sum(xs: Any, start: Any = 0): Any {
  let total = start;
  for (const x of iter(xs)) total = plus(total, x);
  return total;
}
const plus = (a: Any, b: Any): Any => sumAdd(a, b);
let sumAdd: (a: Any, b: Any) => Any;
export const setAdd = (fn: (a: Any, b: Any) => Any): void => {
  sumAdd = fn;
};

function extreme(name: string, better: (a: Any, b: Any) => boolean) {
  const pick = (...args: Any[]): Any => {
    const named = args.length && args[args.length - 1] instanceof Keywords ? args.pop() : undefined;
    const items = args.length === 1 ? iter(args[0]) : args;
    let best: Any,
      rank: Any,
      found = false;
    for (const x of items) {
      const at = named?.key ? call(named.key, x) : x;
      if (!found || better(at, rank)) [best, rank, found] = [x, at, true];
    }
    if (found) return best;
    if (named && "default" in named) return named.default;
    throw raise("ValueError", `${name}() arg is an empty sequence`);
  };
  (pick as Any).signature = { name, pos: [], rest: "xs" };
  return pick;
}
export const max = extreme("max", (a, b) => lt(b, a));
export const min = extreme("min", (a, b) => lt(a, b));

export function sorted(xs: Any, key: Any = null, reverse: Any = false): Any[] {
  const items = listOf(xs);
  sortInto(items, key, reverse);
  return items;
}
(sorted as Any).takes = ["iterable", "key", "reverse"];

export function sortInto(items: Any[], key: Any = null, reverse: Any = false): void {
  const ranked = items.map((x) => ({ x, r: key === null ? x : call(key, x) }));
  const sign = reverse ? -1 : 1;
  ranked.sort((a, b) => (lt(a.r, b.r) ? -sign : lt(b.r, a.r) ? sign : 0));
  ranked.forEach(({ x }, i) => (items[i] = x));
}

export function abs(x: Any): Any {
  if (x instanceof Float) return new Float(Math.abs(x.v));
  if (x?.$__abs__) return x.$__abs__();
  const v: Any = plain(x);
  return v < 0 ? norm(-BigInt(v)) : v;
}
export const id = (x: Any): number => identity(x);
export const ord = (x: Any): number => (typeof x === "string" ? (x.codePointAt(0) ?? 0) : x[0]);
export const chr = (x: Any): string => String.fromCodePoint(Number(x));
export const callable = (x: Any): boolean => typeof x === "function" || !!x?.$__call__;
export const divmod = (a: Any, b: Any): Tuple => new Tuple([divide.floordiv(a, b), divide.mod(a, b)]);
export const divide: Any = {};
export { pow, repr, contains, eq };

export function hash(x: Any): number {
  const key = keyOf(x);
  const text = typeof key === "object" || typeof key === "function" ? `#${identity(key)}` : String(key);
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return h >>> 0;
}

export function round(x: Any, digits: Any = null): Any {
  const v = Number(x);
  if (digits === null) {
    if (isInt(x)) return plain(x);
    let r = Math.round(v);
    if (Math.abs(v - Math.trunc(v)) === 0.5 && r % 2) r -= 1;
    return int(new Float(r));
  }
  return new Float(Number(v.toFixed(Number(digits))));
}

export function getattr(o: Any, name: string, ...otherwise: Any[]): Any {
  let found = o?.[`$${name}`];
  if (found === undefined && o?.$__getattr__) {
    try {
      found = o.$__getattr__(name);
    } catch (e) {
      if (!otherwise.length) throw e;
    }
  }
  if (found === undefined) {
    if (otherwise.length) return otherwise[0];
    throw raise("AttributeError", `${o?.constructor?.typeName} has no attribute ${name}`);
  }
  return typeof found === "function" &&
    !found.home &&
    typeof o === "object" &&
    !o.isModule &&
    !Object.hasOwn(o, `$${name}`)
    ? found.bind(o)
    : found;
}
export const hasattr = (o: Any, name: string): boolean => o?.[`$${name}`] !== undefined;
export const setattr = (o: Any, name: string, v: Any): void => {
  o[`$${name}`] = v;
};
export const vars = (x: Any): Dict => dictof((x.constructor.fieldNames as string[]).map((n) => [n, x[`$${n}`]]));
export const iterlist = listOf;
export const print = (...xs: Any[]): void => console.log(xs.map(str).join(" "));
export { BaseException, callk, latin };
