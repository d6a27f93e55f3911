/**
 * Python's values in JavaScript. A list is an Array, an int a number (a bigint beyond 2^53), a bool a boolean, text a string, None null and
 * bytes, memoryviews and maps of files are Uint8Arrays; what JavaScript has no like of is here. Attributes have a `$` before their names.
 */
/* eslint-disable @typescript-eslint/no-explicit-any */

export type Any = any;

/** A float: what has a fraction or could have one. */
export class Float {
  constructor(readonly v: number) {}
  valueOf(): number {
    return this.v;
  }
}

export class Tuple {
  k: string | undefined = undefined;
  constructor(readonly a: Any[]) {}
  [Symbol.iterator](): Iterator<Any> {
    return this.a[Symbol.iterator]();
  }
}

export class Slice {
  constructor(
    readonly $start: Any,
    readonly $stop: Any,
    readonly $step: Any,
  ) {}
}

/** Base of what the compiler's classes make. */
export class Instance {
  [name: string]: Any;
}

let ids = 0;
const identities = new WeakMap<object, number>();

export function identity(x: Any): number {
  if (x === null || (typeof x !== "object" && typeof x !== "function")) return -1;
  let found = identities.get(x);
  if (found === undefined) identities.set(x, (found = ++ids));
  return found;
}

/** What stands for a value in JavaScript's maps: equal values have one. */
export function keyOf(x: Any): Any {
  switch (typeof x) {
    case "string":
      return x;
    case "number":
      return x;
    case "boolean":
      return x ? 1 : 0;
    case "bigint":
      return x;
    case "function":
      return x;
  }
  if (x === null || x === undefined) return null;
  if (x instanceof Float) return Number.isInteger(x.v) && Number.isSafeInteger(x.v) ? x.v + 0 : `\u0001f${x.v}`;
  if (x instanceof Tuple) return (x.k ??= `\u0001(${x.a.map(partOf).join()})`);
  if (x instanceof FrozenSet) return (x.k ??= `\u0001{${[...x.m.keys()].map(text).sort().join()}}`);
  if (x instanceof Uint8Array) return `\u0001b${x.join()}`;
  if (x.eqFields) return `\u0001${x.constructor.classId}(${x.eqFields.map((f: string) => partOf(x[f])).join()})`;
  if (x.enumMember) return x.$value;
  if (x.$__hash__) return representative(x);
  if (Array.isArray(x) || x instanceof Dict || x instanceof PySet) throw raise("TypeError", "unhashable type");
  return x;
}

function partOf(x: Any): string {
  return text(keyOf(x));
}

/** Long texts by number, so that keys which hold them stay short. */
const long = new Map<string, number>();
const LONG = 64;

function text(key: Any): string {
  switch (typeof key) {
    case "string": {
      if (key.charCodeAt(0) === 1) return key;
      if (key.length < LONG) return `${key.length}:${key}`;
      let number = long.get(key);
      if (number === undefined) long.set(key, (number = long.size));
      return `@${number}`;
    }
    case "number":
      return `${key}`;
    case "bigint":
      return `${key}`;
  }
  return key === null ? "n" : `#${identity(key)}`;
}

const buckets = new Map<Any, Any[]>();

/** The first object that was equal to one with a `__hash__` of its own. */
function representative(x: Any): Any {
  if (x.canon) return x.canon;
  const hash = x.$__hash__();
  const bucket = buckets.get(hash);
  if (!bucket) {
    buckets.set(hash, [x]);
    return (x.canon = x);
  }
  for (const other of bucket) if (x.$__eq__(other)) return (x.canon = other);
  bucket.push(x);
  return (x.canon = x);
}

interface Entry {
  k: Any;
  v: Any;
}

export class Dict {
  m = new Map<Any, Entry>();
  [Symbol.iterator](): Iterator<Any> {
    return this.keys()[Symbol.iterator]();
  }
  keys(): Any[] {
    const found: Any[] = [];
    for (const e of this.m.values()) found.push(e.k);
    return found;
  }
  get(k: Any): Any {
    return this.m.get(keyOf(k))?.v;
  }
  has(k: Any): boolean {
    return this.m.has(keyOf(k));
  }
  set(k: Any, v: Any): void {
    const key = keyOf(k);
    const found = this.m.get(key);
    if (found) found.v = v;
    else this.m.set(key, { k, v });
  }
  delete(k: Any): boolean {
    return this.m.delete(keyOf(k));
  }
}

export class PySet {
  m = new Map<Any, Any>();
  k: string | undefined = undefined;
  constructor(items: Iterable<Any> = []) {
    for (const item of items) this.add(item);
  }
  [Symbol.iterator](): Iterator<Any> {
    return this.m.values();
  }
  add(x: Any): void {
    const key = keyOf(x);
    if (!this.m.has(key)) this.m.set(key, x);
  }
  has(x: Any): boolean {
    return this.m.has(keyOf(x));
  }
}

export class FrozenSet extends PySet {}

type Raise = (kind: string, message: string) => Any;
let raiser: Raise = (kind, message) => new Error(`${kind}: ${message}`);

export function setRaise(fn: Raise): void {
  raiser = fn;
}

/** The exception of a built-in kind. */
export function raise(kind: string, message: string): Any {
  return raiser(kind, message);
}

const one = (i: number, step: number, stop: number): boolean => (step > 0 ? i < stop : i > stop);

export class Range {
  constructor(
    readonly start: number,
    readonly stop: number,
    readonly step: number,
  ) {}
  *[Symbol.iterator](): Iterator<number> {
    for (let i = this.start; one(i, this.step, this.stop); i += this.step) yield i;
  }
  get length(): number {
    return Math.max(0, Math.ceil((this.stop - this.start) / this.step));
  }
  array(): number[] {
    const found = new Array<number>(this.length);
    for (let k = 0, i = this.start; k < found.length; k++, i += this.step) found[k] = i;
    return found;
  }
}

/** What a `for` runs over. */
export function iter(x: Any): Iterable<Any> {
  if (Array.isArray(x)) return x;
  if (x instanceof Tuple) return x.a;
  if (x instanceof Range) return x.array();
  if (x === null || x === undefined || typeof x[Symbol.iterator] !== "function") {
    if (x?.$__iter__) return x.$__iter__();
    throw raise("TypeError", `${typeof x} is not iterable`);
  }
  return x;
}

/** The elements of anything that can be run over, as an array that nobody else holds. */
export function listOf(x: Any): Any[] {
  if (Array.isArray(x)) return x.slice();
  if (x instanceof Tuple) return x.a.slice();
  if (x instanceof Range) return x.array();
  return [...iter(x)];
}
