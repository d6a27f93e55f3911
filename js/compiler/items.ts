/** What brackets do: elements and slices, read, written and removed. */
import { isInt, kind, plain } from "./operators.js";
import { Dict, Range, Slice, Tuple, keyOf, listOf, raise, type Any } from "./values.js";

function place(i: Any, length: number, what: string): number {
  const at = Number(plain(i));
  const found = at < 0 ? at + length : at;
  if (!(found >= 0 && found < length)) throw raise("IndexError", `${what} index out of range`);
  return found;
}

const WHOLE = "indices must be integers or slices";

export function get(o: Any, k: Any): Any {
  if (k instanceof Slice && !o.$__getitem__) return slice(o, k.$start, k.$stop, k.$step);
  if (Array.isArray(o)) {
    if (!isInt(k)) throw raise("TypeError", `list ${WHOLE}`);
    return o[place(k, o.length, "list")];
  }
  if (o instanceof Tuple) {
    if (!isInt(k)) throw raise("TypeError", `tuple ${WHOLE}`);
    return o.a[place(k, o.a.length, "tuple")];
  }
  if (o instanceof Dict) {
    const entry = o.m.get(keyOf(k));
    if (entry === undefined) throw raise("KeyError", k);
    return entry.v;
  }
  if (typeof o === "string") return o[place(k, o.length, "string")];
  if (o instanceof Uint8Array) return o[place(k, o.length, "index")];
  if (o instanceof Range) return o.array()[place(k, o.length, "range")];
  if (o.$__getitem__) return o.$__getitem__(k);
  if (typeof o === "function" && o.members) return get(o.members, k);
  if (typeof o === "function" || o.isTyping) return o;
  throw raise("TypeError", `${kind(o)} is not subscriptable`);
}

function limits(length: number, a: Any, b: Any, c: Any): [number, number, number] {
  const step = c === null ? 1 : Number(c);
  const fit = (x: Any, otherwise: number): number => {
    if (x === null) return otherwise;
    const at = Number(plain(x));
    const low = step > 0 ? 0 : -1;
    return Math.min(Math.max(at < 0 ? at + length : at, low), step > 0 ? length : length - 1);
  };
  return [fit(a, step > 0 ? 0 : length - 1), fit(b, step > 0 ? length : -1), step];
}

export function slice(o: Any, a: Any, b: Any, c: Any): Any {
  if (o.$__getitem__) return o.$__getitem__(new Slice(a, b, c));
  const items = o instanceof Tuple ? o.a : o instanceof Range ? o.array() : o;
  const [start, stop, step] = limits(items.length, a, b, c);
  if (step === 1) {
    if (o instanceof Tuple) return new Tuple(items.slice(start, Math.max(start, stop)));
    if (o instanceof Uint8Array) return o.subarray(start, Math.max(start, stop));
    return items.slice(start, Math.max(start, stop));
  }
  const found: Any[] = [];
  for (let i = start; step > 0 ? i < stop : i > stop; i += step) found.push(items[i]);
  if (typeof o === "string") return found.join("");
  if (o instanceof Uint8Array) return Uint8Array.from(found);
  return o instanceof Tuple ? new Tuple(found) : found;
}

export function set(o: Any, k: Any, v: Any): void {
  if (Array.isArray(o) && isInt(k)) o[place(k, o.length, "list assignment")] = v;
  else if (Array.isArray(o) && k instanceof Slice) setslice(o, k.$start, k.$stop, k.$step, v);
  else if (o instanceof Dict) o.set(k, v);
  else if (o instanceof Uint8Array) o[place(k, o.length, "index")] = v;
  else if (o.$__setitem__) o.$__setitem__(k, v);
  else throw raise("TypeError", `${kind(o)} does not support item assignment`);
}

export function setslice(o: Any, a: Any, b: Any, c: Any, v: Any): void {
  if (o.$__setitem__) return o.$__setitem__(new Slice(a, b, c), v);
  const [start, stop] = limits(o.length, a, b, c);
  if (o instanceof Uint8Array) o.set(v, start);
  else {
    const items = listOf(v);
    const tail = o.slice(Math.max(start, stop));
    o.length = start;
    for (const item of items) o.push(item);
    for (const item of tail) o.push(item);
  }
}

export function remove(o: Any, k: Any): void {
  if (o instanceof Dict) {
    if (!o.delete(k)) throw raise("KeyError", k);
  } else o.splice(place(k, o.length, "list"), 1);
}
