/** Methods of Python's built-in types, as properties of JavaScript's with a `$` before their names. */
import { Keywords, others } from "./calls.js";
import { bytes, dictof, pairs, sortInto } from "./builtins.js";
import { eq, norm, sub, and, or } from "./operators.js";
import { Dict, Float, PySet, Range, Tuple, iter, keyOf, listOf, raise, type Any } from "./values.js";

export function methods(cls: Any, found: Record<string, Any>, takes: Record<string, string[]> = {}): void {
  for (const [name, fn] of Object.entries(found)) {
    if (takes[name]) fn.takes = takes[name];
    Object.defineProperty(cls.prototype, `$${name}`, { value: fn, writable: true, configurable: true });
  }
}

const missing = (what: string): Any => raise("ValueError", `${what} is not there`);
const at = (items: Any[], x: Any, start = 0): number => {
  for (let i = start; i < items.length; i++) if (items[i] === x || eq(items[i], x)) return i;
  return -1;
};

methods(
  Array,
  {
    append(this: Any[], x: Any) {
      this.push(x);
      return null;
    },
    extend(this: Any[], xs: Any) {
      for (const x of xs === this ? listOf(xs) : iter(xs)) this.push(x);
      return null;
    },
    insert(this: Any[], i: Any, x: Any) {
      this.splice(i, 0, x);
      return null;
    },
    pop(this: Any[], i: Any = -1) {
      if (!this.length) throw raise("IndexError", "pop from empty list");
      return Number(i) === -1 ? this.pop() : this.splice(Number(i), 1)[0];
    },
    remove(this: Any[], x: Any) {
      const i = at(this, x);
      if (i < 0) throw missing("x");
      this.splice(i, 1);
      return null;
    },
    index(this: Any[], x: Any) {
      const i = at(this, x);
      if (i < 0) throw missing("x");
      return i;
    },
    count(this: Any[], x: Any) {
      return this.filter((y) => eq(x, y)).length;
    },
    reverse(this: Any[]) {
      this.reverse();
      return null;
    },
    clear(this: Any[]) {
      this.length = 0;
      return null;
    },
    copy(this: Any[]) {
      return this.slice();
    },
    sort(this: Any[], key: Any = null, reverse: Any = false) {
      sortInto(this, key, reverse);
      return null;
    },
  },
  { sort: ["key", "reverse"] },
);

methods(Tuple, {
  index(this: Tuple, x: Any) {
    const i = at(this.a, x);
    if (i < 0) throw missing("x");
    return i;
  },
  count(this: Tuple, x: Any) {
    return this.a.filter((y) => eq(x, y)).length;
  },
});

methods(Range, {
  index(this: Range, x: Any) {
    return (Number(x) - this.start) / this.step;
  },
});

methods(Dict, {
  get(this: Dict, k: Any, otherwise: Any = null) {
    const found = this.m.get(keyOf(k));
    return found === undefined ? otherwise : found.v;
  },
  items(this: Dict) {
    const out: Any[] = [];
    for (const e of this.m.values()) out.push(new Tuple([e.k, e.v]));
    return out;
  },
  keys(this: Dict) {
    const found = new PySet();
    for (const [key, e] of this.m) found.m.set(key, e.k);
    return found;
  },
  values(this: Dict) {
    const out: Any[] = [];
    for (const e of this.m.values()) out.push(e.v);
    return out;
  },
  setdefault(this: Dict, k: Any, v: Any = null) {
    const key = keyOf(k);
    const found = this.m.get(key);
    if (found) return found.v;
    this.m.set(key, { k, v });
    return v;
  },
  pop(this: Dict, k: Any, ...otherwise: Any[]) {
    const key = keyOf(k);
    const found = this.m.get(key);
    if (found) {
      this.m.delete(key);
      return found.v;
    }
    if (otherwise.length) return otherwise[0];
    throw raise("KeyError", k);
  },
  update(this: Dict, ...given: Any[]) {
    const named = given.length && given[given.length - 1] instanceof Keywords ? given.pop() : undefined;
    for (const x of given)
      for (const e of (x instanceof Dict ? x : dictof(iter(x) as Any)).m.values()) this.set(e.k, e.v);
    if (named) for (const e of others(named, []).m.values()) this.set(e.k, e.v);
    return null;
  },
  clear(this: Dict) {
    this.m.clear();
    return null;
  },
  copy(this: Dict) {
    return dictof(pairs(this));
  },
});

const setOf = (x: Any): PySet => (x instanceof PySet ? x : new PySet(iter(x)));
methods(PySet, {
  add(this: PySet, x: Any) {
    this.add(x);
    return null;
  },
  update(this: PySet, ...xs: Any[]) {
    for (const x of xs) for (const item of iter(x)) this.add(item);
    return null;
  },
  remove(this: PySet, x: Any) {
    if (!this.m.delete(keyOf(x))) throw raise("KeyError", x);
    return null;
  },
  discard(this: PySet, x: Any) {
    this.m.delete(keyOf(x));
    return null;
  },
  pop(this: PySet) {
    for (const [key, x] of this.m) {
      this.m.delete(key);
      return x;
    }
    throw raise("KeyError", "pop from an empty set");
  },
  union(this: PySet, ...xs: Any[]) {
    return xs.reduce((a, b) => or(a, setOf(b)), or(this, new PySet()));
  },
  intersection(this: PySet, x: Any) {
    return and(this, setOf(x));
  },
  difference(this: PySet, x: Any) {
    return sub(this, setOf(x));
  },
  isdisjoint(this: PySet, xs: Any) {
    for (const x of iter(xs)) if (this.has(x)) return false;
    return true;
  },
  issuperset(this: PySet, xs: Any) {
    for (const x of iter(xs)) if (!this.has(x)) return false;
    return true;
  },
  issubset(this: PySet, x: Any) {
    const other = setOf(x);
    for (const key of this.m.keys()) if (!other.m.has(key)) return false;
    return true;
  },
});

methods(
  Uint8Array,
  {
    decode(this: Uint8Array, encoding: Any = "utf-8", errors: Any = "strict") {
      if (errors === "surrogateescape") {
        try {
          return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this);
        } catch {
          return escaped(this);
        }
      }
      try {
        return new TextDecoder(encoding === "ascii" ? "utf-8" : encoding, {
          fatal: errors === "strict",
          ignoreBOM: true,
        }).decode(this);
      } catch {
        const error = raise("UnicodeDecodeError", "invalid byte");
        error.$reason = "invalid byte";
        error.$start = 0;
        throw error;
      }
    },
    cast(this: Uint8Array) {
      return this;
    },
    tobytes(this: Uint8Array) {
      return this;
    },
    hex(this: Uint8Array) {
      return [...this].map((b) => b.toString(16).padStart(2, "0")).join("");
    },
    ljust(this: Uint8Array, n: number, fill: Uint8Array) {
      if (this.length >= n) return this;
      const out = new Uint8Array(n).fill(fill[0] ?? 32);
      out.set(this);
      return out;
    },
    join(this: Uint8Array, xs: Any) {
      const parts: Uint8Array[] = [];
      for (const x of iter(xs)) {
        if (parts.length && this.length) parts.push(this);
        parts.push(bytes(x));
      }
      const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
      let k = 0;
      for (const p of parts) {
        out.set(p, k);
        k += p.length;
      }
      return out;
    },
    startswith(this: Uint8Array, x: Uint8Array) {
      return x.every((b, i) => this[i] === b);
    },
    find(this: Uint8Array, x: Any) {
      return this.indexOf(x[0]);
    },
    release() {
      return null;
    },
  },
  { decode: ["encoding", "errors"] },
);
Object.defineProperty(Uint8Array.prototype, "$nbytes", {
  get() {
    return this.length;
  },
});

/** UTF-8 with lone surrogates in the place of bytes that are none. */
function escaped(data: Uint8Array): string {
  let out = "";
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (let i = 0; i < data.length;) {
    let done = false;
    for (let n = 1; n <= 4 && i + n <= data.length && !done; n++) {
      try {
        out += strict.decode(data.subarray(i, i + n));
        i += n;
        done = true;
      } catch {
        // longer, or none
      }
    }
    if (!done) out += String.fromCharCode(0xdc00 + (data[i++] as number));
  }
  return out;
}

methods(
  Number,
  {
    bit_length(this: Any) {
      return Number(this) === 0 ? 0 : Math.abs(Number(this)).toString(2).length;
    },
    to_bytes(this: Any, n: number, order: string) {
      return toBytes(BigInt(Number(this)), n, order);
    },
    item(this: Any) {
      return Number(this);
    },
    is_integer() {
      return true;
    },
  },
  { to_bytes: ["length", "byteorder"] },
);
methods(BigInt, {
  bit_length(this: Any) {
    const x = BigInt(this);
    return (x < 0n ? -x : x).toString(2).length;
  },
  to_bytes(this: Any, n: number, order: string) {
    return toBytes(BigInt(this), n, order);
  },
  is_integer() {
    return true;
  },
});
methods(Boolean, {
  item(this: Any) {
    return this.valueOf();
  },
  is_integer() {
    return true;
  },
});

function toBytes(x: bigint, n: number, order: string): Uint8Array {
  const out = new Uint8Array(n);
  for (let i = 0; i < n; i++, x >>= 8n) out[order === "little" ? i : n - 1 - i] = Number(x & 255n);
  return out;
}

methods(Float, {
  is_integer(this: Float) {
    return Number.isInteger(this.v);
  },
  as_integer_ratio(this: Float) {
    let [top, bottom] = [this.v, 1n];
    while (!Number.isInteger(top)) {
      top *= 2;
      bottom *= 2n;
    }
    return new Tuple([norm(BigInt(top)), norm(bottom)]);
  },
  item(this: Float) {
    return this;
  },
});

Object.defineProperties(Function.prototype, {
  $__code__: {
    get(this: Any) {
      const s = this.signature;
      const { pos = [] } = s;
      const names = [...pos, ...(s.only ?? []), ...(s.rest ? [s.rest] : []), ...(s.others ? [s.others] : [])];
      return {
        $co_argcount: pos.length,
        $co_kwonlyargcount: s.only?.length ?? 0,
        $co_varnames: new Tuple(names),
        $co_flags: (s.rest ? 4 : 0) | (s.others ? 8 : 0),
      };
    },
  },
  $__annotations__: {
    get(this: Any) {
      return dictof(Object.entries(this.signature.kinds ?? {}));
    },
  },
  $__defaults__: {
    get(this: Any) {
      return this.signature.defaults ? new Tuple(new Array(this.signature.defaults).fill(null)) : null;
    },
  },
  $__kwdefaults__: {
    get(this: Any) {
      return this.signature.given ? dictof(this.signature.given.map((n: string) => [n, null])) : null;
    },
    set() {
      // The translation rounds them.
    },
  },
  $__module__: {
    get(this: Any) {
      return this.home?.$__name__ ?? "";
    },
  },
});
