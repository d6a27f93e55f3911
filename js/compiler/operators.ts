/** Python's operators. */
import { Dict, Float, FrozenSet, PySet, Range, Tuple, keyOf, listOf, iter, raise, type Any } from "./values.js";

export const isInt = (x: Any): boolean =>
  typeof x === "number" || typeof x === "boolean" || typeof x === "bigint" || x?.enumMember === true;

/** A bigint as a number where it fits. */
export function norm(x: bigint): number | bigint {
  const n = Number(x);
  return Number.isSafeInteger(n) ? n : x;
}

const isNumber = (x: Any): boolean => isInt(x) || x instanceof Float;

/** An int as JavaScript computes with it. */
export function plain(x: Any): number | bigint {
  return typeof x === "boolean" ? (x ? 1 : 0) : x?.enumMember ? x.$value : x;
}

type Fast = (a: number, b: number) => number;
type Slow = (a: bigint, b: bigint) => bigint;

function special(a: Any, b: Any, name: string): Any {
  const forth = a?.[`$__${name}__`];
  if (forth !== undefined && !(isNumber(a) && b?.isNd)) {
    const found = forth.call(a, b);
    if (found !== NotImplementedValue) return found;
  }
  const back = b?.[`$__r${name}__`];
  if (back !== undefined) return back.call(b, a);
  return undefined;
}

export const NotImplementedValue = { $name: "NotImplemented" };

export const kind = (x: Any): string => (x === null ? "NoneType" : (x.constructor?.typeName ?? typeof x));

function refuse(name: string, a: Any, b: Any): Any {
  return raise("TypeError", `unsupported operand type(s) for ${name}: '${kind(a)}' and '${kind(b)}'`);
}

function numeric(name: string, fast: Fast, slow: Slow, floats: Fast, others?: (a: Any, b: Any) => Any) {
  return (a: Any, b: Any): Any => {
    if (typeof a === "number" && typeof b === "number") {
      const found = fast(a, b);
      if (Number.isSafeInteger(found)) return found === 0 ? 0 : found;
      return norm(slow(BigInt(a), BigInt(b)));
    }
    if (isInt(a) && isInt(b)) return norm(slow(BigInt(plain(a)), BigInt(plain(b))));
    if (isNumber(a) && isNumber(b)) return new Float(floats(Number(a), Number(b)));
    const found = others?.(a, b) ?? special(a, b, name);
    if (found === undefined) throw refuse(name, a, b);
    return found;
  };
}

const anyAdd = numeric(
  "add",
  (a, b) => a + b,
  (a, b) => a + b,
  (a, b) => a + b,
  (a, b) => {
    if (typeof a === "string" && typeof b === "string") return a + b;
    if (Array.isArray(a) && Array.isArray(b)) return a.concat(b);
    if (a instanceof Tuple && b instanceof Tuple) return new Tuple(a.a.concat(b.a));
    if (a instanceof Uint8Array && b instanceof Uint8Array) {
      const joined = new Uint8Array(a.length + b.length);
      joined.set(a);
      joined.set(b, a.length);
      return joined;
    }
    return undefined;
  },
);

export function add(a: Any, b: Any): Any {
  if (typeof a === "number" && typeof b === "number") {
    const found = a + b;
    if (found >= -Number.MAX_SAFE_INTEGER && found <= Number.MAX_SAFE_INTEGER) return found;
  }
  return anyAdd(a, b);
}

const anySub = numeric(
  "sub",
  (a, b) => a - b,
  (a, b) => a - b,
  (a, b) => a - b,
  (a, b) => {
    if (!(a instanceof PySet)) return undefined;
    const out: Any[] = [];
    const other = b instanceof PySet ? b : new PySet(iter(b));
    for (const [key, x] of a.m) if (!other.m.has(key)) out.push(x);
    return a instanceof FrozenSet ? new FrozenSet(out) : new PySet(out);
  },
);

export function sub(a: Any, b: Any): Any {
  if (typeof a === "number" && typeof b === "number") {
    const found = a - b;
    if (found >= -Number.MAX_SAFE_INTEGER && found <= Number.MAX_SAFE_INTEGER) return found;
  }
  return anySub(a, b);
}

const repeat = (x: Any, n: number): Any => {
  if (typeof x === "string") return x.repeat(Math.max(0, n));
  if (x instanceof Uint8Array) {
    const out = new Uint8Array(x.length * Math.max(0, n));
    for (let i = 0; i < n; i++) out.set(x, i * x.length);
    return out;
  }
  const items: Any[] = [];
  for (let i = 0; i < n; i++) for (const item of x instanceof Tuple ? x.a : x) items.push(item);
  return x instanceof Tuple ? new Tuple(items) : items;
};
const sequence = (x: Any): boolean =>
  typeof x === "string" || Array.isArray(x) || x instanceof Tuple || x instanceof Uint8Array;

const anyMul = numeric(
  "mul",
  (a, b) => a * b,
  (a, b) => a * b,
  (a, b) => a * b,
  (a, b) => {
    if (sequence(a) && isInt(b)) return repeat(a, Number(b));
    if (sequence(b) && isInt(a)) return repeat(b, Number(a));
    return undefined;
  },
);

export function mul(a: Any, b: Any): Any {
  if (typeof a === "number" && typeof b === "number") {
    const found = a * b;
    if (found >= -Number.MAX_SAFE_INTEGER && found <= Number.MAX_SAFE_INTEGER) return found === 0 ? 0 : found;
  }
  return anyMul(a, b);
}

export function div(a: Any, b: Any): Any {
  if (isNumber(a) && isNumber(b)) {
    if (Number(b) === 0) throw raise("ZeroDivisionError", "division by zero");
    return new Float(Number(a) / Number(b));
  }
  const found = special(a, b, "truediv");
  if (found === undefined) throw refuse("/", a, b);
  return found;
}

function bigFloor(a: bigint, b: bigint): bigint {
  const q = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? q - 1n : q;
}

function divided(name: string, fast: Fast, slow: Slow, floats: Fast) {
  const within = numeric(name, fast, slow, floats);
  return (a: Any, b: Any): Any => {
    if (isNumber(b) && Number(b) === 0 && isNumber(a))
      throw raise("ZeroDivisionError", "integer division or modulo by zero");
    return within(a, b);
  };
}

export const floordiv = divided(
  "floordiv",
  (a, b) => (Math.floor(a / b) === a / b || Math.abs(a) < 2 ** 52 ? exactFloor(a, b) : NaN),
  bigFloor,
  (a, b) => Math.floor(a / b),
);

function exactFloor(a: number, b: number): number {
  const rest = a % b;
  const q = (a - rest) / b;
  return rest !== 0 && a < 0 !== b < 0 ? q - 1 : q;
}

const modNumber: Fast = (a, b) => {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
};
const modInner = divided("mod", modNumber, (a, b) => a - bigFloor(a, b) * b, modNumber);
export function mod(a: Any, b: Any): Any {
  return modInner(a, b);
}

export function pow(a: Any, b: Any, m: Any = null): Any {
  if (m !== null) {
    let [base, e, result] = [BigInt(plain(a)), BigInt(plain(b)), 1n];
    const big = BigInt(plain(m));
    base = ((base % big) + big) % big;
    for (; e > 0n; e >>= 1n, base = (base * base) % big) if (e & 1n) result = (result * base) % big;
    return norm(((result % big) + big) % big);
  }
  if (isInt(a) && isInt(b)) {
    if (Number(b) < 0) return new Float(Number(a) ** Number(b));
    return norm(BigInt(plain(a)) ** BigInt(plain(b)));
  }
  if (isNumber(a) && isNumber(b)) return new Float(Number(a) ** Number(b));
  const found = special(a, b, "pow");
  if (found === undefined) throw refuse("**", a, b);
  return found;
}

function bits(name: string, slow: Slow, sets?: (a: PySet, b: PySet) => Any) {
  return (a: Any, b: Any): Any => {
    if (typeof a === "boolean" && typeof b === "boolean" && name !== "lshift" && name !== "rshift") {
      return slow(a ? 1n : 0n, b ? 1n : 0n) === 1n;
    }
    if (isInt(a) && isInt(b)) return norm(slow(BigInt(plain(a)), BigInt(plain(b))));
    if (a instanceof PySet && b instanceof PySet && sets) return sets(a, b);
    const found = special(a, b, name);
    if (found === undefined) throw refuse(name, a, b);
    return found;
  };
}

const small = (x: Any): boolean => typeof x === "number" && x >= 0 && x < 0x40000000;
const make = (a: PySet, items: Iterable<Any>): Any =>
  a instanceof FrozenSet ? new FrozenSet(items) : new PySet(items);
const bigAnd = bits(
  "and",
  (a, b) => a & b,
  (a, b) =>
    make(
      a,
      [...a.m].filter(([key]) => b.m.has(key)).map(([, x]) => x),
    ),
);
const bigOr = bits(
  "or",
  (a, b) => a | b,
  (a, b) => make(a, [...a.m.values(), ...b.m.values()]),
);
export const and = (a: Any, b: Any): Any => (small(a) && small(b) ? a & b : bigAnd(a, b));
export function or(a: Any, b: Any): Any {
  if (small(a) && small(b)) return a | b;
  if (a instanceof Dict && b instanceof Dict) {
    const out = new Dict();
    for (const from of [a, b]) for (const e of from.m.values()) out.set(e.k, e.v);
    return out;
  }
  if (isType(a) && isType(b)) return new Tuple([...types(a), ...types(b)]);
  return bigOr(a, b);
}
const isType = (x: Any): boolean =>
  x === null || typeof x === "function" || (x instanceof Tuple && x.a.every(isType)) || x?.isTyping;
const types = (x: Any): Any[] => (x instanceof Tuple ? x.a : [x]);
export const xor = bits(
  "xor",
  (a, b) => a ^ b,
  (a, b) =>
    make(
      a,
      [...[...a.m].filter(([k]) => !b.m.has(k)), ...[...b.m].filter(([k]) => !a.m.has(k))].map(([, x]) => x),
    ),
);
const bigShl = bits("lshift", (a, b) => a << b);
const bigShr = bits("rshift", (a, b) => a >> b);
export const shl = (a: Any, b: Any): Any => (small(a) && small(b) && b < 22 ? a * 2 ** b : bigShl(a, b));
export const shr = (a: Any, b: Any): Any => (small(a) && small(b) && b < 31 ? a >> b : bigShr(a, b));
export const matmul = (a: Any, b: Any): Any => a.$__matmul__(b);

export function neg(x: Any): Any {
  if (typeof x === "number") return x === 0 ? 0 : -x;
  if (isInt(x)) return norm(-BigInt(plain(x)));
  if (x instanceof Float) return new Float(-x.v);
  return x.$__neg__();
}
export const pos = (x: Any): Any => (isNumber(x) ? plain(x) : x.$__pos__());
export const invert = (x: Any): Any => (isInt(x) ? norm(~BigInt(plain(x))) : x.$__invert__());

export function eq(a: Any, b: Any): boolean {
  if (typeof a === "number" && typeof b === "number") return a === b;
  if (a === b) return !(a instanceof Float && a.v !== a.v);
  if (a === null || b === null || a === undefined || b === undefined) return false;
  if (typeof a === "string" || typeof b === "string") return false;
  if (isNumber(a) && isNumber(b)) {
    if (a instanceof Float || b instanceof Float)
      return a instanceof Float && b instanceof Float ? a.v === b.v : mixed(a, b);
    return plain(a) == plain(b);
  }
  if (a.isNd) return a.$__eq__(b);
  if (b.isNd) return b.$__eq__(a);
  if (a.$__eq__) {
    const found = a.$__eq__(b);
    if (found !== NotImplementedValue) return found;
  }
  if (b.$__eq__) {
    const found = b.$__eq__(a);
    return found === NotImplementedValue ? false : found;
  }
  if (Array.isArray(a)) return Array.isArray(b) && same(a, b);
  if (a instanceof Tuple) return b instanceof Tuple && same(a.a, b.a);
  if (a instanceof Dict) {
    if (!(b instanceof Dict) || a.m.size !== b.m.size) return false;
    for (const [key, e] of a.m) {
      const other = b.m.get(key);
      if (!other || !eq(e.v, other.v)) return false;
    }
    return true;
  }
  if (a instanceof PySet) {
    if (!(b instanceof PySet) || a.m.size !== b.m.size) return false;
    for (const key of a.m.keys()) if (!b.m.has(key)) return false;
    return true;
  }
  if (a instanceof Uint8Array) return b instanceof Uint8Array && a.length === b.length && a.every((x, i) => x === b[i]);
  if (a instanceof Range) return b instanceof Range && same(a.array(), b.array());
  if (a.eqFields) {
    return a.constructor === b.constructor && a.eqFields.every((f: string) => eq(a[f], b[f]));
  }
  return false;
}

/** An int and a float: as the exact numbers. */
function mixed(a: Any, b: Any): boolean {
  const [f, i] = a instanceof Float ? [a.v, plain(b)] : [b.v, plain(a)];
  return typeof i === "number" ? f === i : Number.isInteger(f) && BigInt(f) === i;
}

function same(a: Any[], b: Any[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!eq(a[i], b[i])) return false;
  return true;
}

export function ne(a: Any, b: Any): Any {
  if (a?.isNd || b?.isNd) return (a?.isNd ? a : b).$__ne__(a?.isNd ? b : a);
  return !eq(a, b);
}

/** Where two sequences first differ, or -1 where one of them ends. */
function ordered(
  a: Any[],
  b: Any[],
  how: (a: Any, b: Any) => boolean,
  lengths: (a: number, b: number) => boolean,
): boolean {
  for (let i = 0; i < a.length && i < b.length; i++) if (!eq(a[i], b[i])) return how(a[i], b[i]);
  return lengths(a.length, b.length);
}

function comparison(
  name: string,
  mirrored: string,
  fast: (a: Any, b: Any) => boolean,
  sets: (a: PySet, b: PySet) => boolean,
) {
  const compare = (a: Any, b: Any): Any => {
    if (typeof a === "number" && typeof b === "number") return fast(a, b);
    if (isNumber(a) && isNumber(b)) return fast(plain(a), plain(b));
    if (typeof a === "string" && typeof b === "string") return fast(a, b);
    if (a instanceof Tuple && b instanceof Tuple) return ordered(a.a, b.a, compare, fast);
    if (Array.isArray(a) && Array.isArray(b)) return ordered(a, b, compare, fast);
    if (a instanceof Uint8Array && b instanceof Uint8Array) return ordered([...a], [...b], compare, fast);
    if (a instanceof PySet && b instanceof PySet) return sets(a, b);
    const forth = a?.[`$__${name}__`];
    if (forth !== undefined) return forth.call(a, b);
    const back = b?.[`$__${mirrored}__`];
    if (back !== undefined) return back.call(b, a);
    throw refuse(name, a, b);
  };
  return compare;
}

const within = (a: PySet, b: PySet): boolean => [...a.m.keys()].every((key) => b.m.has(key));
const anyLt = comparison(
  "lt",
  "gt",
  (a, b) => a < b,
  (a, b) => a.m.size < b.m.size && within(a, b),
);
export const lt = (a: Any, b: Any): Any => (typeof a === "number" && typeof b === "number" ? a < b : anyLt(a, b));
const anyLe = comparison("le", "ge", (a, b) => a <= b, within);
export const le = (a: Any, b: Any): Any => (typeof a === "number" && typeof b === "number" ? a <= b : anyLe(a, b));
const anyGt = comparison(
  "gt",
  "lt",
  (a, b) => a > b,
  (a, b) => a.m.size > b.m.size && within(b, a),
);
export const gt = (a: Any, b: Any): Any => (typeof a === "number" && typeof b === "number" ? a > b : anyGt(a, b));
const anyGe = comparison(
  "ge",
  "le",
  (a, b) => a >= b,
  (a, b) => within(b, a),
);
export const ge = (a: Any, b: Any): Any => (typeof a === "number" && typeof b === "number" ? a >= b : anyGe(a, b));

export function contains(x: Any, c: Any): boolean {
  if (c instanceof Dict || c instanceof PySet) return c.has(x);
  if (typeof c === "string") return c.includes(x);
  if (Array.isArray(c)) return found(x, c);
  if (c instanceof Tuple) return found(x, c.a);
  if (c instanceof Range) return isNumber(x) && c.array().includes(Number(x));
  if (c.$__contains__) return c.$__contains__(x);
  return found(x, listOf(c));
}

function found(x: Any, items: Any[]): boolean {
  if (typeof x === "string" || x === null) return items.includes(x);
  for (const item of items) if (item === x || eq(item, x) === true) return true;
  return false;
}

export function truth(x: Any): boolean {
  if (typeof x === "boolean") return x;
  if (x === null || x === undefined) return false;
  if (typeof x === "object") {
    if (Array.isArray(x) || x instanceof Uint8Array || x instanceof Range) return x.length > 0;
    if (x instanceof Tuple) return x.a.length > 0;
    if (x instanceof Dict || x instanceof PySet) return x.m.size > 0;
    if (x instanceof Float) return x.v !== 0;
    if (x.enumMember) return x.$value !== 0;
    if (x.$__bool__) return x.$__bool__();
    if (x.$__len__) return x.$__len__() > 0;
    return true;
  }
  return !!x || (typeof x === "number" && x !== 0);
}

type Operator = (a: Any, b: Any) => Any;
const inplace = (name: string, otherwise: Operator) => (a: Any, b: Any) => a?.[`$__i${name}__`]?.(b) ?? otherwise(a, b);
const anyIadd = inplace("add", add);
export const iadd: Operator = (a, b) => {
  if (typeof a === "number" || typeof a === "string") return add(a, b);
  if (!Array.isArray(a)) return anyIadd(a, b);
  for (const item of b === a ? listOf(b) : iter(b)) a.push(item);
  return a;
};
export const ior: Operator = (a, b) => {
  if (a instanceof Dict) {
    for (const e of b.m.values()) a.set(e.k, e.v);
    return a;
  }
  if (a instanceof PySet && !(a instanceof FrozenSet)) {
    for (const item of iter(b)) a.add(item);
    return a;
  }
  return inplace("or", or)(a, b);
};
export const isub: Operator = (a, b) => {
  if (!(a instanceof PySet) || a instanceof FrozenSet) return inplace("sub", sub)(a, b);
  for (const item of iter(b)) a.m.delete(keyOf(item));
  return a;
};
export const iand: Operator = (a, b) => {
  if (a instanceof PySet && !(a instanceof FrozenSet)) {
    for (const key of [...a.m.keys()]) if (!b.m.has(key)) a.m.delete(key);
    return a;
  }
  return inplace("and", and)(a, b);
};
export const imul = inplace("mul", mul);
export const ifloordiv = inplace("floordiv", floordiv);
export const ixor = inplace("xor", xor);
export const idiv = inplace("truediv", div);
export const imod = inplace("mod", mod);
export const ishl = inplace("lshift", shl);
export const ishr = inplace("rshift", shr);
