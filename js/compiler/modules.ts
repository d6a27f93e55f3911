/** Python's import: a module runs when it is first asked for, one of operators when an operator of its own is. */
import { ImportError } from "./errors.js";
import { LIBRARIES } from "./libraries.js";
import { Tuple, keyOf, raise, type Any } from "./values.js";

type Run = (module: Any) => void;

const sources = new Map<string, Run>();
const packages = new Set<string>();
const loaded = new Map<string, Any>();
let running = 0;

/** The keys that each module writes into a table. */
type Homes = Readonly<Record<string, readonly (string | readonly string[])[]>>;

/** A table that modules write themselves into: they run when one of their keys is looked for, all when the whole is. */
class Registered extends Map<Any, Any> {
  private readonly homes = new Map<Any, string[]>();
  constructor(homes: Homes) {
    super();
    for (const [module, keys] of Object.entries(homes))
      for (const key of keys) {
        const at = keyOf(typeof key === "string" ? key : new Tuple(key as Any));
        this.homes.set(at, [...(this.homes.get(at) ?? []), module]);
      }
  }
  private load(modules: readonly string[]): void {
    if (!running) modules.forEach(importModule);
  }
  private all(): void {
    this.load([...this.homes.values()].flat());
  }
  override get(key: Any): Any {
    this.load(this.homes.get(key) ?? []);
    return super.get(key);
  }
  override has(key: Any): boolean {
    this.load(this.homes.get(key) ?? []);
    return super.has(key);
  }
  override get size(): number {
    this.all();
    return super.size;
  }
  override keys(): MapIterator<Any> {
    this.all();
    return super.keys();
  }
  override values(): MapIterator<Any> {
    this.all();
    return super.values();
  }
  override entries(): MapIterator<[Any, Any]> {
    this.all();
    return super.entries();
  }
  override [Symbol.iterator](): MapIterator<[Any, Any]> {
    return this.entries();
  }
}

/** Makes modules known; `tables` of the registry are written by those that say so. */
export function install(modules: Record<string, Run>, tables: Readonly<Record<string, Homes>>): void {
  for (const [name, run] of Object.entries(modules)) {
    sources.set(name, run);
    for (let end = name.lastIndexOf("."); end > 0; end = name.lastIndexOf(".", end - 1))
      packages.add(name.slice(0, end));
  }
  LIBRARIES.importlib = {
    isModule: true,
    $import_module: (name: string, from: Any = null) => importModule(name.startsWith(".") ? `${from}${name}` : name),
    $resources: { $files: () => ({ $joinpath: () => ({ $is_file: () => false }) }) },
  };
  LIBRARIES.pkgutil = { isModule: true, $walk_packages: () => [] };
  const registry = importModule("pyonnx_wasm.registry");
  for (const [name, homes] of Object.entries(tables)) registry[`$${name}`].m = new Registered(homes);
}

/** Modules of the package that are no part of the compiler: what it asks of them when it needs them. */
export const stand = new Map<string, Any>();

export function importModule(name: string): Any {
  const library = LIBRARIES[name] ?? stand.get(name);
  if (library) return library;
  let found = loaded.get(name);
  if (found) return found;
  const run = sources.get(name);
  if (!run) {
    const empty = { isModule: true, $__name__: name };
    if (packages.has(name)) {
      loaded.set(name, empty);
      return empty;
    }
    throw ImportError(`no module named ${name}`);
  }
  const isPackage = packages.has(name);
  found = {
    isModule: true,
    $__name__: name,
    $__file__: `/${name.replaceAll(".", "/")}${isPackage ? "/__init__" : ""}.py`,
    $__package__: isPackage ? name : name.slice(0, name.lastIndexOf(".")),
    $__path__: [],
  };
  loaded.set(name, found);
  running++;
  try {
    run(found);
  } finally {
    running--;
  }
  const [parent, own] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
  if (parent) {
    const around = importModule(parent);
    around[`$${own}`] ??= found;
  }
  return found;
}

export function importFrom(name: string, what: string): Any {
  const module = importModule(name);
  const found = module[`$${what}`];
  if (found !== undefined) return found;
  if (sources.has(`${name}.${what}`) || stand.has(`${name}.${what}`)) return importModule(`${name}.${what}`);
  if (`$${what}` in module) return null;
  throw raise("ImportError", `cannot import name ${what} from ${name}`);
}
