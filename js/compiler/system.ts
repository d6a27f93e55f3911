/** Files, paths and texts, of which a page has those that it is given. */
import type { Sparse } from "./sparse.js";
import { Dict, raise, type Any } from "./values.js";

export const library = (name: string, found: Record<string, Any>): Any => {
  const made: Any = { isModule: true, $__name__: name };
  for (const [key, value] of Object.entries(found)) made[`$${key}`] = value;
  return made;
};

/** The files that a model is read from, and the texts that the compiler is made with. */
export const files = new Map<string, Sparse>();
export const texts = new Map<string, string>();

export const normal = (path: string): string => {
  const out: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") out.pop();
    else if (part && part !== ".") out.push(part);
  }
  return (path.startsWith("/") ? "/" : "") + out.join("/");
};
const path = library("os.path", {
  normpath: normal,
  join: (...parts: string[]) => parts.reduce((a, p) => (p.startsWith("/") || !a ? p : `${a.replace(/\/$/, "")}/${p}`)),
  dirname: (p: string) => p.split("/").slice(0, -1).join("/"),
  basename: (p: string) => p.split("/").pop() ?? "",
  realpath: (p: string) => normal(p || "."),
  abspath: normal,
  exists: (p: string) => files.has(normal(p)) || files.has(p),
  isfile: (p: string) => files.has(normal(p)) || files.has(p),
});
const PathLike = Object.assign(function () {}, { isOf: () => false, base: null });
export const os = library("os", {
  path,
  PathLike,
  fspath: (p: Any) => p,
  curdir: ".",
  stat: (p: string) => {
    if (!files.has(p)) throw raise("FileNotFoundError", `no file ${p}`);
    return { $st_mode: 0 };
  },
  environ: new Dict(),
  listdir: () => [],
});

export function open(name: string): Any {
  const data = files.get(name);
  if (!data) throw raise("FileNotFoundError", `no file ${name}`);
  const stream = {
    $read: (most: Any = -1) => (most < 0 ? data : data.range(0, Math.min(most, data.size))),
    $fileno: () => 0,
    $__enter__: () => stream,
    $__exit__: () => false,
  };
  return stream;
}

export class Path {
  constructor(readonly p: string) {}
  $resolve(): Path {
    return this;
  }
  get $parents(): Path[] {
    const parts = this.p.split("/");
    return parts.slice(1).map((_, i) => new Path(parts.slice(0, parts.length - 1 - i).join("/") || "/"));
  }
  get $parent(): Path {
    return this.$parents[0] as Path;
  }
  $__truediv__(name: string): Path {
    return new Path(`${this.p.replace(/\/$/, "")}/${name}`);
  }
  $exists(): boolean {
    return texts.has(this.p);
  }
  $is_file(): boolean {
    return texts.has(this.p);
  }
  $read_text(): string {
    return texts.get(this.p) ?? "";
  }
}
