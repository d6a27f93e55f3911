/** Functions that take keywords, and classes. */
import { Dict, Tuple, raise, type Any } from "./values.js";

/** What the translation tells of a function. */
interface Signature {
  name: string;
  pos?: string[];
  skip?: number;
  only?: string[];
  defaults?: number;
  given?: string[];
  rest?: string;
  others?: string;
  kinds?: Record<string, string>;
}

export class Keywords {
  [name: string]: Any;
}

export function sig(fn: Any, signature: Signature, home?: Any): Any {
  fn.signature = signature;
  if (home !== undefined) fn.home = home;
  return fn;
}

/** The keywords that a function with a variable number of arguments was given, taken off its arguments. */
export function keywords(rest: Any[]): Keywords {
  return rest.length && rest[rest.length - 1] instanceof Keywords ? rest.pop() : new Keywords();
}

/** The keywords that have no parameter of their own. */
export function others(given: Keywords, known: string[]): Dict {
  const found = new Dict();
  for (const [k, v] of Object.entries(given)) if (!known.includes(k)) found.set(k, v);
  return found;
}

export function spread(named: Record<string, Any>, ...more: Any[]): Record<string, Any> {
  for (const d of more) {
    if (d instanceof Dict) for (const e of d.m.values()) named[e.k] = e.v;
    else for (const k of d.$keys()) named[k] = d.$__getitem__(k);
  }
  return named;
}

/** Calls anything. */
export function call(fn: Any, ...args: Any[]): Any;
export function call(fn: Any, a?: Any, b?: Any, c?: Any): Any {
  if (typeof fn === "function") {
    switch (arguments.length) {
      case 1:
        return fn();
      case 2:
        return fn(a);
      case 3:
        return fn(a, b);
      case 4:
        return fn(a, b, c);
    }
    return fn(...Array.prototype.slice.call(arguments, 1));
  }
  if (fn?.$__call__) return fn.$__call__(...Array.prototype.slice.call(arguments, 1));
  throw raise("TypeError", `${fn === null ? "None" : fn?.constructor?.typeName} is not callable`);
}

export function callk(fn: Any, args: Any[], named: Record<string, Any>): Any {
  return typeof fn === "function" ? fn(...arranged(fn, args, named)) : callm(fn, "$__call__", args, named);
}

export function callm(o: Any, name: string, args: Any[], named: Record<string, Any>): Any {
  const fn = o[name];
  if (typeof fn !== "function") {
    if (fn === undefined) throw raise("AttributeError", `no attribute ${name.slice(1)}`);
    return callk(fn, args, named);
  }
  return fn.call(o, ...arranged(fn, args, named));
}

/** Arguments in the order of the parameters. */
function arranged(fn: Any, args: Any[], named: Record<string, Any>): Any[] {
  const signature: Signature | undefined = fn.signature ?? fn.prototype?.$__init__?.signature;
  const names = Object.keys(named);
  if (!names.length) return args;
  if (!signature) {
    const taken = fn.takes as string[] | undefined;
    if (!taken) throw raise("TypeError", `${fn.typeName ?? fn.name} takes no keyword arguments (${names})`);
    const all = args.slice();
    for (const name of names) {
      const at = taken.indexOf(name);
      if (at < 0) throw raise("TypeError", `${fn.typeName ?? fn.name} takes no ${name}`);
      while (all.length < at) all.push(undefined);
      all[at] = named[name];
    }
    return all;
  }
  const { pos = [], skip = 0, only = [] } = signature;
  const places = pos.length - skip;
  const all = args.slice();
  const rest = new Keywords();
  let more: Dict | undefined;
  for (const name of names) {
    const at = pos.indexOf(name, skip) - skip;
    if (at >= 0) {
      if (at < args.length) throw raise("TypeError", `${signature.name}() got multiple values for argument '${name}'`);
      while (all.length < at) all.push(undefined);
      all[at] = named[name];
    } else if (signature.rest) {
      rest[name] = named[name];
    } else if (only.includes(name)) {
      const k = places + only.indexOf(name);
      while (all.length < k) all.push(undefined);
      all[k] = named[name];
    } else if (signature.others) {
      (more ??= new Dict()).set(name, named[name]);
    } else {
      throw raise("TypeError", `${signature.name}() got an unexpected keyword argument '${name}'`);
    }
  }
  if (signature.rest && Object.keys(rest).length) {
    while (all.length < places) all.push(undefined);
    all.push(rest);
  } else if (more) {
    const k = places + only.length;
    while (all.length < k) all.push(undefined);
    all[k] = more;
  }
  return all;
}

/** Of classes with a `__getattr__`. */
const FOUND: ProxyHandler<Any> = {
  get(target, name) {
    if (name in target || typeof name !== "string" || !name.startsWith("$") || name.startsWith("$__"))
      return target[name];
    try {
      return target.$__getattr__(name.slice(1));
    } catch {
      return undefined;
    }
  },
};

let classes = 0;
/** Given to a class alone: its instance is to be filled by who made it. */
const EMPTY = {};

/** A class: a function that makes an instance. */
export function makeClass(name: string, base: Any, home: Any): Any {
  const cls: Any = function (this: Any, first: Any) {
    if (first === EMPTY) return this;
    const made = new.target ? this : new cls(EMPTY);
    // eslint-disable-next-line prefer-rest-params
    made.$__init__?.apply(made, arguments);
    return made.$__getattr__ ? new Proxy(made, FOUND) : made;
  };
  cls.isClass = true;
  Object.defineProperty(cls, "name", { value: name });
  if (base) {
    Object.setPrototypeOf(cls, base);
    Object.setPrototypeOf(cls.prototype, base.prototype);
  }
  cls.base = base ?? Object;
  cls.$__name__ = cls.typeName = name;
  cls.home = home;
  cls.classId = ++classes;
  Object.defineProperty(cls.prototype, Symbol.iterator, {
    get() {
      return this.$__iter__ ? () => this.$__iter__()[Symbol.iterator]() : base?.prototype[Symbol.iterator];
    },
    configurable: true,
  });
  return cls;
}

export function namedtuple(name: string, _base: Any, home: Any): Any {
  const cls = makeClass(name, Tuple, home);
  delete cls.prototype[Symbol.iterator];
  return cls;
}

/** What equality and keys of a data class are made of. */
export function fields(cls: Any, names: string[], eq: boolean): void {
  cls.fieldNames = names;
  cls.prototype.eqFields = eq ? names.map((n) => `$${n}`) : undefined;
  if (cls.prototype instanceof Tuple) {
    names.forEach((n, i) => {
      Object.defineProperty(cls.prototype, `$${n}`, {
        get() {
          return this.a[i];
        },
        configurable: true,
      });
    });
    cls.prototype.$_replace = function (...args: Any[]) {
      const given = args.pop() as Keywords;
      return new cls(...names.map((n, i) => (n in given ? given[n] : this.a[i])));
    };
    cls.prototype.$_replace.signature = {
      name: "_replace",
      pos: [],
      rest: "_",
    };
  }
}

export function replace(x: Any, ...args: Any[]): Any {
  const given = args.length ? (args.pop() as Keywords) : new Keywords();
  const cls = x.constructor;
  return new cls(...cls.fieldNames.map((n: string) => (n in given ? given[n] : x[`$${n}`])));
}
(replace as Any).signature = { name: "replace", pos: ["x"], rest: "_" };

export function property(cls: Any, key: string, get: () => Any): void {
  Object.defineProperty(cls.prototype, key, { get, configurable: true });
}

export function cached(cls: Any, key: string, get: () => Any): void {
  Object.defineProperty(cls.prototype, key, {
    get() {
      const value = get.call(this);
      Object.defineProperty(this, key, { value, writable: true, configurable: true });
      return value;
    },
    configurable: true,
  });
}

/** A class of numbers with names. */
export function enumeration(name: string, _base: Any, home: Any): Any {
  const cls: Any = function (x: Any) {
    for (const e of cls.members.m.values()) if (e.v.$value === Number(x)) return e.v;
    throw raise("ValueError", `${x} is not a valid ${name}`);
  };
  cls.$__name__ = cls.typeName = name;
  cls.home = home;
  cls.classId = ++classes;
  cls.members = cls.$__members__ = new Dict();
  cls[Symbol.iterator] = () => [...cls.members.m.values()].map((e: Any) => e.v)[Symbol.iterator]();
  cls.prototype.valueOf = function () {
    return this.$value;
  };
  cls.prototype.enumMember = true;
  return cls;
}

export function member(cls: Any, name: string, value: Any): void {
  const made = Object.create(cls.prototype);
  made.$name = name;
  made.$value = value;
  cls[`$${name}`] = made;
  cls.members.set(name, made);
}

/** An attribute that may be a method, where it was looked up already. */
export function value(found: Any, o: Any, name: string): Any {
  return found === undefined || typeof found === "function" ? attr(o, name) : found;
}

const bound = new WeakMap<object, Map<string, Any>>();

/** An attribute that may be a method. */
export function attr(o: Any, name: string): Any {
  if (o === null || o === undefined) throw raise("AttributeError", `None has no attribute ${name.slice(1)}`);
  const found = o[name];
  if (found === undefined) {
    if (typeof o === "function" && o.prototype?.[name]) {
      const inner = o.prototype[name];
      return (self: Any, ...args: Any[]) => inner.apply(self, args);
    }
    if (name === "$__class__") return o.constructor;
    if (name === "$__name__" && typeof o === "function") return o.signature?.name ?? o.name;
    if (o.$__getattr__) return o.$__getattr__(name.slice(1));
    throw raise("AttributeError", `${o.constructor?.typeName ?? typeof o} has no attribute ${name.slice(1)}`);
  }
  if (typeof found !== "function" || found.home || found.base || typeof o === "function" || o.isModule) return found;
  if (typeof o === "object" && Object.hasOwn(o, name)) return found;
  if (typeof o !== "object") return Object.assign(found.bind(o), { signature: found.signature });
  let table = bound.get(o);
  if (!table) bound.set(o, (table = new Map()));
  let method = table.get(name);
  if (!method || method.$fn !== found)
    table.set(name, (method = Object.assign(found.bind(o), { signature: found.signature, $fn: found })));
  return method;
}
