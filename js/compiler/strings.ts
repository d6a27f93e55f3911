/** Methods of text. */
import { Keywords } from "./calls.js";
import { methods } from "./methods.js";
import { Tuple, listOf, raise, type Any } from "./values.js";
import { format } from "./text.js";

const missing = (what: string): Any => raise("ValueError", `${what} is not there`);
const SPACE = /\s/;
const strip = (x: string, chars: Any, left: boolean, right: boolean): string => {
  const cut = (c: string): boolean => (chars === null ? SPACE.test(c) : chars.includes(c));
  let [a, b] = [0, x.length];
  while (left && a < b && cut(x[a] ?? "")) a++;
  while (right && b > a && cut(x[b - 1] ?? "")) b--;
  return x.slice(a, b);
};
const each = (x: Any): string[] => (x instanceof Tuple ? x.a : [x]);
const wordy = (x: string, re: RegExp): boolean => x.length > 0 && re.test(x);
const NAMED = /\{(\w*)(?::([^{}]*))?\}|\{\{|\}\}/g;

methods(
  String,
  {
    join(this: string, xs: Any) {
      return listOf(xs).join(String(this));
    },
    split(this: string, by: Any = null, most: Any = -1) {
      const text = String(this);
      if (by === null) return text.split(/\s+/).filter(Boolean);
      if (most < 0) return text.split(by);
      const found: string[] = [];
      let rest = text;
      while (found.length < most && rest.includes(by)) {
        const i = rest.indexOf(by);
        found.push(rest.slice(0, i));
        rest = rest.slice(i + by.length);
      }
      return [...found, rest];
    },
    rsplit(this: string, by: Any, most: Any = -1) {
      const parts = String(this).split(by);
      if (most < 0 || parts.length <= most + 1) return parts;
      return [parts.slice(0, parts.length - most).join(by), ...parts.slice(parts.length - most)];
    },
    splitlines(this: string) {
      const parts = String(this).split(/\r\n|\n|\r/);
      if (parts[parts.length - 1] === "") parts.pop();
      return parts;
    },
    startswith(this: string, x: Any, from: Any = 0) {
      return each(x).some((p) => this.startsWith(p, from));
    },
    endswith(this: string, x: Any) {
      return each(x).some((p) => this.endsWith(p));
    },
    replace(this: string, a: string, b: string, most: Any = -1) {
      if (most < 0) return this.split(a).join(b);
      const parts = this.split(a);
      return parts.slice(0, most + 1).join(b) + (parts.length > most + 1 ? a + parts.slice(most + 1).join(a) : "");
    },
    strip(this: string, c: Any = null) {
      return strip(String(this), c, true, true);
    },
    lstrip(this: string, c: Any = null) {
      return strip(String(this), c, true, false);
    },
    rstrip(this: string, c: Any = null) {
      return strip(String(this), c, false, true);
    },
    lower(this: string) {
      return this.toLowerCase();
    },
    upper(this: string) {
      return this.toUpperCase();
    },
    casefold(this: string) {
      return this.toLowerCase();
    },
    title(this: string) {
      const code = this.length === 1 ? this.charCodeAt(0) : 0;
      if (code >= 0x1f80 && code < 0x1fb0 && !(code & 8)) return String.fromCharCode(code + 8);
      if (code === 0x1fb3 || code === 0x1fc3 || code === 0x1ff3) return String.fromCharCode(code + 9);
      return this.toLowerCase().replace(/\p{L}+/gu, (w) => (w[0] ?? "").toUpperCase() + w.slice(1));
    },
    find(this: string, x: string, from: Any = 0) {
      return this.indexOf(x, from);
    },
    rfind(this: string, x: string) {
      return this.lastIndexOf(x);
    },
    index(this: string, x: string, from: Any = 0) {
      const i = this.indexOf(x, from);
      if (i < 0) throw missing("substring");
      return i;
    },
    rindex(this: string, x: string) {
      const i = this.lastIndexOf(x);
      if (i < 0) throw missing("substring");
      return i;
    },
    count(this: string, x: string, from: Any = 0, to: Any = this.length) {
      if (!x) return this.length + 1;
      let found = 0;
      for (let i = this.indexOf(x, from); i >= 0 && i + x.length <= to; i = this.indexOf(x, i + x.length)) found++;
      return found;
    },
    partition(this: string, by: string) {
      const i = this.indexOf(by);
      return new Tuple(i < 0 ? [String(this), "", ""] : [this.slice(0, i), by, this.slice(i + by.length)]);
    },
    rpartition(this: string, by: string) {
      const i = this.lastIndexOf(by);
      return new Tuple(i < 0 ? ["", "", String(this)] : [this.slice(0, i), by, this.slice(i + by.length)]);
    },
    removeprefix(this: string, x: string) {
      return this.startsWith(x) ? this.slice(x.length) : String(this);
    },
    removesuffix(this: string, x: string) {
      return x && this.endsWith(x) ? this.slice(0, -x.length) : String(this);
    },
    ljust(this: string, n: number, c = " ") {
      return this.padEnd(n, c);
    },
    rjust(this: string, n: number, c = " ") {
      return this.padStart(n, c);
    },
    isdigit(this: string) {
      return wordy(this, /^\p{Nd}+$/u);
    },
    isalpha(this: string) {
      return wordy(this, /^\p{L}+$/u);
    },
    isalnum(this: string) {
      return wordy(this, /^[\p{L}\p{N}]+$/u);
    },
    isidentifier(this: string) {
      return wordy(this, /^[\p{L}_][\p{L}\p{N}_]*$/u);
    },
    isupper(this: string) {
      return this.toUpperCase() === String(this) && this.toLowerCase() !== String(this);
    },
    islower(this: string) {
      return this.toLowerCase() === String(this) && this.toUpperCase() !== String(this);
    },
    isspace(this: string) {
      return wordy(this, /^\s+$/);
    },
    isascii(this: string) {
      // eslint-disable-next-line no-control-regex
      return /^[\x00-\x7f]*$/.test(this);
    },
    encode(this: string, _encoding: Any = "utf-8", errors: Any = "strict") {
      const text = String(this);
      if (!/\p{Cs}/u.test(text)) return new TextEncoder().encode(text);
      if (errors === "strict") throw raise("UnicodeEncodeError", "surrogates not allowed");
      const out: number[] = [];
      for (const c of text) {
        const code = c.codePointAt(0) ?? 0;
        if (code >= 0xdc80 && code <= 0xdcff && errors === "surrogateescape") out.push(code - 0xdc00);
        else if (code >= 0xd800 && code < 0xe000)
          out.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
        else out.push(...new TextEncoder().encode(c));
      }
      return Uint8Array.from(out);
    },
    format(this: string, ...args: Any[]) {
      const named = args.length && args[args.length - 1] instanceof Keywords ? args.pop() : {};
      let k = 0;
      return this.replace(NAMED, (whole, name, spec) => {
        if (whole === "{{" || whole === "}}") return whole[0] as string;
        const value = name === "" ? args[k++] : /^\d+$/.test(name) ? args[Number(name)] : named[name];
        return format(value, spec ?? "");
      });
    },
    translate(this: string, table: Any) {
      let out = "";
      for (const c of this) {
        const found = table.get(c.codePointAt(0));
        out +=
          found === undefined
            ? c
            : found === null
              ? ""
              : typeof found === "number"
                ? String.fromCodePoint(found)
                : found;
      }
      return out;
    },
  },
  { encode: ["encoding", "errors"], split: ["sep", "maxsplit"] },
);
(String.prototype as Any).$format.signature = {
  name: "format",
  pos: [],
  rest: "a",
};
