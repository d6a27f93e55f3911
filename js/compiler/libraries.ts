/** What the compiler imports of Python's library. */
import { attr, call, callk, enumeration, Keywords, replace } from "./calls.js";
import * as b from "./builtins.js";
import { add, isInt, lt, mul, norm, or, plain, truth } from "./operators.js";
import { blake2b, sha256 } from "./hashes.js";
import { Dict, Float, Tuple, iter, keyOf, listOf, raise, type Any } from "./values.js";
import { floatText } from "./text.js";
import { numpy } from "./numpy.js";
import { DTYPES } from "./dtypes.js";
import { re } from "./re.js";
import { Fraction, bigGcd } from "./fractions.js";
import { Path, library, os } from "./system.js";

const real =
  (fn: (...xs: number[]) => number) =>
  (...xs: Any[]): Any => {
    const given = xs.map(Number);
    const found = fn(...given);
    if (found !== found && given.every((x) => x === x)) throw raise("ValueError", "math domain error");
    if (!Number.isFinite(found) && given.every(Number.isFinite)) throw raise("OverflowError", "math range error");
    return new Float(found);
  };
const rounded = (fn: (x: number) => number) => (x: Any) => (isInt(x) ? plain(x) : b.int(new Float(fn(Number(x)))));

const math = library("math", {
  inf: new Float(Infinity),
  nan: new Float(NaN),
  pi: new Float(Math.PI),
  e: new Float(Math.E),
  sqrt: real(Math.sqrt),
  exp: real(Math.exp),
  log: (x: Any, base: Any = null) => {
    if (!(Number(x) > 0)) throw raise("ValueError", "math domain error");
    return new Float(base === null ? Math.log(Number(x)) : Math.log(Number(x)) / Math.log(Number(base)));
  },
  log2: real(Math.log2),
  sin: real(Math.sin),
  cos: real(Math.cos),
  pow: (x: Any, y: Any) => {
    const [v, w] = [Number(x), Number(y)];
    if (v === 1 || w === 0) return new Float(1);
    const found = v ** w;
    if (found !== found && v === v && w === w) throw raise("ValueError", "math domain error");
    if (!Number.isFinite(found) && Number.isFinite(v) && Number.isFinite(w))
      throw raise(v === 0 ? "ValueError" : "OverflowError", "math range error");
    return new Float(found);
  },
  fmod: real((x, y) => x % y),
  floor: rounded(Math.floor),
  ceil: rounded(Math.ceil),
  trunc: rounded(Math.trunc),
  isfinite: (x: Any) => Number.isFinite(Number(x)),
  isinf: (x: Any) => Math.abs(Number(x)) === Infinity,
  isnan: (x: Any) => Number.isNaN(Number(x)),
  copysign: (x: Any, y: Any) => {
    const negative = Number(y) < 0 || Object.is(Number(y), -0);
    return new Float(negative ? -Math.abs(Number(x)) : Math.abs(Number(x)));
  },
  frexp: numpy.$frexp,
  prod: (xs: Any) => {
    let total: Any = 1;
    for (const x of iter(xs)) total = mul(total, x);
    return total;
  },
  gcd: (...xs: Any[]) => norm(xs.reduce((x, y) => bigGcd(x, BigInt(plain(y))), 0n)),
  isqrt: (x: Any) => Math.floor(Math.sqrt(Number(x))),
  comb: (n: number, k: number) => {
    let found = 1;
    for (let i = 1; i <= k; i++) found = (found * (n - k + i)) / i;
    return found;
  },
});

const CODES: Record<string, string> = {
  b: "int8", B: "uint8", h: "int16", H: "uint16", i: "int32", I: "uint32", l: "int32", L: "uint32", q: "int64", Q: "uint64", e: "float16",
  f: "float32", d: "float64", "?": "bool",
}; // prettier-ignore

function structure(format: string): string[] {
  const found: string[] = [];
  for (const [, count, code = ""] of format.replace(/^[<>=@!]/, "").matchAll(/(\d*)([a-zA-Z?])/g)) {
    for (let i = 0; i < (count ? Number(count) : 1); i++) found.push(CODES[code] as string);
  }
  return found;
}

const struct = library("struct", {
  pack: (format: string, ...xs: Any[]) => {
    const parts = structure(format).map((name, i) => {
      const t = DTYPES[name] as Any;
      const d = t.make(1);
      d[0] = t.put(xs[i]);
      if (name === "float32" && !Number.isFinite(d[0]) && Number.isFinite(Number(xs[i])))
        throw raise("OverflowError", "float too large to pack");
      return new Uint8Array(d.buffer);
    });
    return (new Uint8Array() as Any).$join(parts);
  },
  unpack: (format: string, data: Uint8Array) => {
    const [, many, code = ""] = /^<(\d+)([a-zA-Z])$/.exec(format) ?? [];
    if (many) {
      const t = DTYPES[CODES[code] as string] as Any;
      const d = t.make(data.slice(0, Number(many) * t.$itemsize).buffer);
      return new Tuple(Array.from(d, t.get));
    }
    let at = 0;
    return new Tuple(
      structure(format).map((name) => {
        const t = DTYPES[name] as Any;
        const d = t.make(data.slice(at, (at += t.$itemsize)).buffer);
        return t.get(d[0]);
      }),
    );
  },
  unpack_from: (format: string, data: Uint8Array, offset: Any = 0) =>
    struct.$unpack(format, data.subarray(Number(offset))),
  calcsize: (format: string) => structure(format).reduce((n, name) => n + (DTYPES[name] as Any).$itemsize, 0),
});

function* accumulate(xs: Any, fn: Any = null, initial: Any = null): Generator<Any> {
  let total = initial;
  if (initial !== null) yield initial;
  for (const x of iter(xs)) yield (total = total === null ? x : fn === null ? add(total, x) : call(fn, total, x));
}
(accumulate as Any).takes = ["iterable", "func", "initial"];
function* count(start: Any = 0): Generator<Any> {
  for (let i = Number(start); ; i++) yield i;
}
function product(...xs: Any[]): Any[] {
  const named = xs.length && xs[xs.length - 1] instanceof Keywords ? xs.pop() : undefined;
  let lists = xs.map(listOf);
  if (named?.repeat) lists = Array.from({ length: named.repeat }, () => lists).flat(1);
  let found: Any[][] = [[]];
  for (const items of lists) found = found.flatMap((head) => items.map((x) => [...head, x]));
  return found.map((f) => new Tuple(f));
}
(product as Any).signature = { name: "product", pos: [], rest: "xs" };
function combinations(xs: Any, n: Any): Any[] {
  const items = listOf(xs);
  const found: Any[] = [];
  const pick = (start: number, head: Any[]): void => {
    if (head.length === Number(n)) found.push(new Tuple(head));
    else for (let i = start; i < items.length; i++) pick(i + 1, [...head, items[i]]);
  };
  pick(0, []);
  return found;
}
function* groupby(xs: Any, key: Any = null): Generator<Any> {
  let [rank, group]: [Any, Any[]] = [undefined, []];
  for (const x of iter(xs)) {
    const k = key === null ? x : call(key, x);
    if (rank !== undefined && !b.eq(rank, k)) {
      yield new Tuple([rank, group]);
      group = [];
    }
    rank = k;
    group.push(x);
  }
  if (rank !== undefined) yield new Tuple([rank, group]);
}
const chain: Any = function* (...xs: Any[]): Generator<Any> {
  for (const x of xs) yield* iter(x);
};
chain.$from_iterable = function* (xs: Any): Generator<Any> {
  for (const x of iter(xs)) yield* iter(x);
};
const itertools = library("itertools", {
  accumulate,
  count,
  product,
  combinations,
  groupby,
  chain,
  pairwise: (xs: Any) => {
    const items = listOf(xs);
    return items.slice(1).map((x, i) => new Tuple([items[i], x]));
  },
  takewhile: function* (fn: Any, xs: Any): Generator<Any> {
    for (const x of iter(xs)) {
      if (!truth(call(fn, x))) return;
      yield x;
    }
  },
  islice: function* (xs: Any, n: Any): Generator<Any> {
    let i = 0;
    if (Number(n) > 0)
      for (const x of iter(xs)) {
        yield x;
        if (++i >= Number(n)) return;
      }
  },
});

function cache(fn: Any): Any {
  const known = new Map<Any, Any>();
  const found: Any = (...args: Any[]) => {
    const key = args.length === 1 ? keyOf(args[0]) : keyOf(new Tuple(args));
    if (!known.has(key)) known.set(key, call(fn, ...args));
    return known.get(key);
  };
  found.signature = fn.signature;
  found.home = fn.home;
  found.$cache_clear = () => known.clear();
  return found;
}
const partial = (fn: Any, ...args: Any[]): Any => {
  const named = args.length && args[args.length - 1] instanceof Keywords ? { ...args.pop() } : undefined;
  const found: Any = (...more: Any[]) =>
    named ? callk(fn, [...args, ...more], { ...named }) : call(fn, ...args, ...more);
  found.signature = { name: "partial", pos: [], rest: "a" };
  if (fn.signature || named) {
    return Object.assign(
      (...more: Any[]) => {
        const last = more.length && more[more.length - 1] instanceof Keywords ? more.pop() : {};
        return callk(fn, [...args, ...more], { ...named, ...last });
      },
      { signature: found.signature },
    );
  }
  return found;
};
(partial as Any).signature = { name: "partial", pos: [], rest: "a" };
const functools = library("functools", {
  cache,
  lru_cache: (x: Any) => (typeof x === "function" ? cache(x) : cache),
  partial,
  wraps: () => (fn: Any) => fn,
  reduce: (fn: Any, xs: Any, ...start: Any[]) => {
    const items = [...start, ...iter(xs)];
    return items.slice(1).reduce((x, y) => call(fn, x, y), items[0]);
  },
  cached_property: null,
});

/** JSON as Python writes it. */
function dumps(
  x: Any,
  separators: Any = null,
  ensure_ascii: Any = true,
  indent: Any = null,
  sort_keys: Any = false,
): string {
  void indent;
  const [comma, colon] = separators === null ? [", ", ": "] : listOf(separators);
  const quote = (text: string): string => {
    const plainText = JSON.stringify(text).replace(/\x7f/g, "\x7f");
    const wide = ensure_ascii
      ? plainText.replace(/[\u007f-\uffff]/g, (c) =>
          c === "\x7f" ? c : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
        )
      : plainText.replace(/\\u(d[89a-f][0-9a-f]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
    return wide;
  };
  const write = (v: Any): string => {
    if (v === null) return "null";
    if (typeof v === "string") return quote(v);
    if (typeof v === "boolean") return v ? "true" : "false";
    if (v instanceof Float)
      return Number.isFinite(v.v) ? floatText(v.v) : v.v !== v.v ? "NaN" : v.v > 0 ? "Infinity" : "-Infinity";
    if (isInt(v)) return String(plain(v));
    if (Array.isArray(v) || v instanceof Tuple) return `[${listOf(v).map(write).join(comma)}]`;
    if (v instanceof Dict) {
      let entries = b.pairs(v);
      if (sort_keys) entries = b.sorted(entries.map((e: Any) => new Tuple(e))).map((t: Any) => t.a);
      return `{${entries.map(([k, e]) => `${quote(typeof k === "string" ? k : write(k))}${colon}${write(e)}`).join(comma)}}`;
    }
    throw raise("TypeError", `Object of type ${v?.constructor?.typeName} is not JSON serializable`);
  };
  return write(x);
}
(dumps as Any).takes = ["obj", "separators", "ensure_ascii", "indent", "sort_keys"];
function loads(text: string): Any {
  const read = (v: Any): Any => {
    if (Array.isArray(v)) return v.map(read);
    if (v && typeof v === "object") return b.dictof(Object.entries(v).map(([k, e]) => [k, read(e)]));
    return typeof v === "number" && !Number.isInteger(v) ? new Float(v) : v;
  };
  return read(JSON.parse(typeof text === "string" ? text : (text as Any).$decode()));
}

class Hash {
  private parts: Uint8Array[] = [];
  constructor(
    private readonly fn: (data: Uint8Array) => Uint8Array,
    data?: Any,
  ) {
    if (data) this.parts.push(data);
  }
  $update(data: Uint8Array): null {
    this.parts.push(data);
    return null;
  }
  $digest(): Uint8Array {
    return this.fn((new Uint8Array() as Any).$join(this.parts));
  }
  $hexdigest(): string {
    return (this.$digest() as Any).$hex();
  }
}
const blake: Any = (data: Any = null, size: Any = 64) => new Hash((x) => blake2b(x, Number(size)), data);
blake.takes = ["data", "digest_size"];

const bisect = (right: boolean) => {
  const find = (xs: Any, x: Any, key: Any = null): number => {
    const items = listOf(xs);
    let [low, high] = [0, items.length];
    while (low < high) {
      const mid = (low + high) >> 1;
      const at = key === null ? items[mid] : call(key, items[mid]);
      if (right ? !lt(x, at) : lt(at, x)) low = mid + 1;
      else high = mid;
    }
    return low;
  };
  (find as Any).takes = ["a", "x", "key"];
  return find;
};

function sift(heap: Any[], at: number): void {
  for (;;) {
    let least = at;
    for (const child of [2 * at + 1, 2 * at + 2])
      if (child < heap.length && lt(heap[child], heap[least])) least = child;
    if (least === at) return;
    [heap[at], heap[least]] = [heap[least], heap[at]];
    at = least;
  }
}

const Counter = (xs: Any = []): Dict => {
  const found = new Dict();
  for (const x of iter(xs)) found.set(x, (found.get(x) ?? 0) + 1);
  return found;
};

const contextmanager = (fn: Any): Any => {
  const made: Any = function (this: Any, ...args: Any[]) {
    const it = fn.apply(this, args);
    return {
      $__enter__: () => it.next().value,
      $__exit__: (_kind: Any, e: Any) => {
        if (e === null || e === undefined) {
          it.next();
          return false;
        }
        it.throw(e);
        return true;
      },
    };
  };
  made.signature = fn.signature;
  return made;
};

export const warned: string[] = [];
const nothing = (): null => null;
const none = library("none", {});

class WeakDictionary extends Dict {}

export const LIBRARIES: Record<string, Any> = {
  numpy,
  math,
  struct,
  itertools,
  functools,
  re,
  json: library("json", { dumps, loads }),
  hashlib: library("hashlib", { blake2b: blake, sha256: (data: Any) => new Hash(sha256, data) }),
  operator: library("operator", {
    index: (x: Any) => {
      if (isInt(x)) return plain(x);
      if (x?.$__index__) return x.$__index__();
      throw raise("TypeError", `'${x?.constructor?.typeName ?? typeof x}' object cannot be interpreted as an integer`);
    },
    or_: or,
    add,
    mul,
    attrgetter: (name: string) => (x: Any) => attr(x, `$${name}`),
    itemgetter: (k: Any) => (x: Any) => (x instanceof Tuple ? x.a[k] : x.$__getitem__ ? x.$__getitem__(k) : x[k]),
  }),
  collections: library("collections", { Counter, OrderedDict: b.dict, deque: b.list }),
  contextlib: library("contextlib", {
    contextmanager,
    suppress: (...kinds: Any[]) => ({ $__enter__: nothing, $__exit__: (_: Any, e: Any) => e !== null && kinds.some((k) => b.isinstance(e, k)) }),
  }),
  bisect: library("bisect", { bisect_right: bisect(true), bisect_left: bisect(false), bisect: bisect(true) }),
  heapq: library("heapq", {
    heappush: (heap: Any[], x: Any) => {
      heap.push(x);
      for (let i = heap.length - 1; i > 0; ) {
        const up = (i - 1) >> 1;
        if (!lt(heap[i], heap[up])) break;
        [heap[i], heap[up]] = [heap[up], heap[i]];
        i = up;
      }
      return null;
    },
    heappop: (heap: Any[]) => {
      if (!heap.length) throw raise("IndexError", "index out of range");
      const top = heap[0];
      const last = heap.pop();
      if (heap.length) {
        heap[0] = last;
        sift(heap, 0);
      }
      return top;
    },
  }),
  dataclasses: library("dataclasses", { replace, dataclass: null, field: null }),
  weakref: library("weakref", { WeakValueDictionary: () => new WeakDictionary(), WeakKeyDictionary: () => new WeakDictionary() }),
  enum: library("enum", { IntEnum: enumeration }),
  os,
  stat: library("stat", { S_ISDIR: () => false, S_ISREG: () => true }),
  mmap: library("mmap", { get mmap(): Any { return undefined; } }),
  gc: library("gc", { isenabled: () => false, disable: nothing, enable: nothing }),
  sys: library("sys", { platform: "javascript", path: [], maxsize: 2 ** 53, byteorder: "little" }),
  threading: library("threading", { local: () => ({}), Lock: () => ({ $__enter__: nothing, $__exit__: () => false }) }),
  warnings: library("warnings", {
    warn: (text: Any) => {
      warned.push(String(text));
      return null;
    },
  }),
  inspect: library("inspect", { CO_VARARGS: 4 }),
  glob: library("glob", { iglob: () => [], escape: (x: string) => x }),
  builtins: library("builtins", { bool: b.bool, int: b.int, float: b.float }),
  pathlib: library("pathlib", { Path: (p: string) => new Path(p) }),
  fractions: library("fractions", { Fraction: (top: Any, bottom: Any = 1) => new Fraction(top, bottom) }),
  unicodedata: none,
  io: none,
}; // prettier-ignore
LIBRARIES.warnings.$warn.takes = ["message", "category", "stacklevel"];
