/** Python's import: a module runs when it is first asked for. */
import { ImportError } from "./errors.js";
import { LIBRARIES } from "./libraries.js";
import { raise, type Any } from "./values.js";

type Run = (module: Any) => void;

const sources = new Map<string, Run>();
const loaded = new Map<string, Any>();

export function install(modules: Record<string, Run>): void {
  for (const [name, run] of Object.entries(modules)) sources.set(name, run);
  LIBRARIES.importlib = {
    isModule: true,
    $import_module: (name: string, from: Any = null) => importModule(name.startsWith(".") ? `${from}${name}` : name),
    $resources: { $files: () => ({ $joinpath: () => ({ $is_file: () => false }) }) },
  };
  LIBRARIES.pkgutil = {
    isModule: true,
    $walk_packages: (_path: Any, prefix: string) =>
      [...sources.keys()].filter((n) => n.startsWith(prefix)).map(($name) => ({ $name })),
  };
  LIBRARIES.pkgutil.$walk_packages.takes = ["path", "prefix"];
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
    if ([...sources.keys()].some((n) => n.startsWith(`${name}.`))) {
      loaded.set(name, empty);
      return empty;
    }
    throw ImportError(`no module named ${name}`);
  }
  const isPackage = [...sources.keys()].some((n) => n.startsWith(`${name}.`));
  found = {
    isModule: true,
    $__name__: name,
    $__file__: `/${name.replaceAll(".", "/")}${isPackage ? "/__init__" : ""}.py`,
    $__package__: isPackage ? name : name.slice(0, name.lastIndexOf(".")),
    $__path__: [],
  };
  loaded.set(name, found);
  run(found);
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
