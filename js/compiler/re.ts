/** Regular expressions: Python's syntax is nearly JavaScript's. */
import { call } from "./calls.js";
import { Dict, Tuple, raise, type Any } from "./values.js";

class Match {
  constructor(
    private readonly m: RegExpExecArray,
    readonly $string: string,
  ) {}
  $group(...which: Any[]): Any {
    const one = (k: Any): Any => (typeof k === "string" ? this.m.groups?.[k] : this.m[k]) ?? null;
    return which.length === 0 ? this.m[0] : which.length === 1 ? one(which[0]) : new Tuple(which.map(one));
  }
  $groups(otherwise: Any = null): Tuple {
    return new Tuple(this.m.slice(1).map((g) => g ?? otherwise));
  }
  $groupdict(): Dict {
    const out = new Dict();
    for (const [k, v] of Object.entries(this.m.groups ?? {})) out.set(k, v ?? null);
    return out;
  }
  $start(): number {
    return this.m.index;
  }
  $end(): number {
    return this.m.index + (this.m[0] ?? "").length;
  }
  $span(): Tuple {
    return new Tuple([this.$start(), this.$end()]);
  }
  $__getitem__(k: Any): Any {
    return this.$group(k);
  }
  get $lastgroup(): Any {
    for (const [k, v] of Object.entries(this.m.groups ?? {}).reverse()) if (v !== undefined) return k;
    return null;
  }
}

const I = 2, M = 8, S = 16, X = 64, A = 256; // prettier-ignore

function translated(pattern: string): string {
  return pattern
    .replace(/\(\?P<(\w+)>/g, "(?<$1>")
    .replace(/\(\?P=(\w+)\)/g, "\\k<$1>")
    .replace(/\\Z/g, "(?![\\s\\S])")
    .replace(/\\A/g, "(?<![\\s\\S])");
}

class Pattern {
  private readonly letters: string;
  private readonly source: string;
  private readonly made = new Map<string, RegExp>();
  private captured: number | undefined;
  constructor(
    readonly $pattern: string,
    flags: number,
  ) {
    let source = translated($pattern);
    if (flags & X) source = source.replace(/\\.|\[(?:\\.|[^\]])*\]|\s+|#.*$/gm, (t) => (/^(\s|#)/.test(t) ? "" : t));
    // Without M, `$` is also before a last line's end.
    if (!(flags & M))
      source = source.replace(/\\.|\[(?:\\.|[^\]])*\]|\$/g, (t) => (t === "$" ? "(?=\\n?(?![\\s\\S]))" : t));
    this.source = source;
    this.letters = `${flags & I ? "i" : ""}${flags & M ? "m" : ""}${flags & S ? "s" : ""}`;
  }
  private run(given: Any, from: number, letter: string, source = this.source): Match | null {
    const key = letter + source;
    let made = this.made.get(key);
    if (!made) this.made.set(key, (made = new RegExp(source, this.letters + letter)));
    made.lastIndex = from;
    const text = letters(given);
    const found = made.exec(text);
    return found && new Match(found, text);
  }
  /** How many groups it captures. */
  private get groups(): number {
    return (this.captured ??= (new RegExp(`${this.source}|`).exec("") as RegExpExecArray).length - 1);
  }
  $match(text: string, from: Any = 0): Match | null {
    return this.run(text, Number(from), "y");
  }
  $search(text: string, from: Any = 0): Match | null {
    return this.run(text, Number(from), "g");
  }
  $fullmatch(text: string): Match | null {
    return this.run(text, 0, "y", `(?:${this.source})(?![\\s\\S])`);
  }
  *$finditer(text: string, from: Any = 0): Generator<Match> {
    const made = new RegExp(this.source, `${this.letters}g`);
    made.lastIndex = Number(from);
    for (const m of text.matchAll(made)) yield new Match(m as RegExpExecArray, text);
  }
  $findall(text: string): Any[] {
    if (!this.groups) return text.match(new RegExp(this.source, `${this.letters}g`)) ?? [];
    return [...this.$finditer(text)].map((m) => {
      const { a } = m.$groups("");
      return a.length === 0 ? m.$group() : a.length === 1 ? a[0] : new Tuple(a);
    });
  }
  $sub(by: Any, text: string): string {
    let out = "";
    let at = 0;
    for (const m of this.$finditer(text)) {
      out += text.slice(at, m.$start());
      out +=
        typeof by === "string"
          ? by.replace(/\\(?:g<(\w+)>|(\d)|n)/g, (w, name, digit) =>
              w === "\\n" ? "\n" : (m.$group(name ? (/^\d+$/.test(name) ? Number(name) : name) : Number(digit)) ?? ""),
            )
          : call(by, m);
      at = m.$end();
    }
    return out + text.slice(at);
  }
  $split(text: string): string[] {
    return text.split(new RegExp(this.source, this.letters));
  }
}

/** Bytes as the letters of their numbers. */
function letters(x: Any): string {
  if (typeof x === "string") return x;
  let out = "";
  for (const byte of x as Uint8Array) out += String.fromCharCode(byte);
  return out;
}

const known = new Map<string, Pattern>();
function compile(pattern: Any, flags: Any = 0): Pattern {
  if (pattern instanceof Pattern) return pattern;
  if (pattern instanceof Uint8Array) return compile(letters(pattern), flags);
  const key = `${Number(flags)}:${pattern}`;
  let found = known.get(key);
  if (!found) {
    try {
      known.set(key, (found = new Pattern(pattern, Number(flags))));
    } catch (e) {
      throw raise("ValueError", `regular expression ${pattern}: ${e}`);
    }
  }
  return found;
}
compile.takes = ["pattern", "flags"];

export const re: Any = {
  isModule: true, $__name__: "re", $compile: compile, $I: I, $IGNORECASE: I, $M: M, $MULTILINE: M, $S: S, $DOTALL: S, $X: X, $VERBOSE: X, $A: A, $ASCII: A,
  $Match: Match, $Pattern: Pattern,
  $match: (p: Any, t: string, f: Any = 0) => compile(p, f).$match(t),
  $search: (p: Any, t: string, f: Any = 0) => compile(p, f).$search(t),
  $fullmatch: (p: Any, t: string, f: Any = 0) => compile(p, f).$fullmatch(t),
  $findall: (p: Any, t: string, f: Any = 0) => compile(p, f).$findall(t),
  $finditer: (p: Any, t: string, f: Any = 0) => compile(p, f).$finditer(t),
  $sub: (p: Any, by: Any, t: string) => compile(p).$sub(by, t),
  $split: (p: Any, t: string) => compile(p).$split(t),
  $escape: (t: string) => t.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"),
}; // prettier-ignore
