/** Texts of values: `str`, `repr` and `format`. */
import { Dict, Float, FrozenSet, PySet, Range, Tuple, identity, raise, type Any } from "./values.js";

/** A float as Python writes it. */
export function floatText(v: number): string {
  if (v !== v) return "nan";
  if (!Number.isFinite(v)) return v < 0 ? "-inf" : "inf";
  if (Object.is(v, -0)) return "-0.0";
  const text = String(v);
  const [digits = "", exponent] = text.includes("e") ? text.split("e") : v.toExponential().split("e");
  const e = Number(exponent);
  if (e < -4 || e >= 16) {
    const mantissa = text.includes("e") ? digits : v.toExponential().split("e")[0];
    return `${mantissa}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
  }
  if (text.includes("e")) {
    const sign = v < 0 ? "-" : "";
    const all = digits.replace("-", "").replace(".", "");
    return e < 0 ? `${sign}0.${"0".repeat(-e - 1)}${all}` : `${sign}${all.padEnd(e + 1, "0")}.0`;
  }
  return text.includes(".") ? text : `${text}.0`;
}

function quoted(x: string): string {
  const quote = x.includes("'") && !x.includes('"') ? '"' : "'";
  let out = quote;
  for (const c of x) {
    const code = c.codePointAt(0) ?? 0;
    if (c === quote || c === "\\") out += `\\${c}`;
    else if (c === "\n") out += "\\n";
    else if (c === "\r") out += "\\r";
    else if (c === "\t") out += "\\t";
    else if (code < 32 || (code >= 127 && code < 161) || code === 173)
      out += `\\x${code.toString(16).padStart(2, "0")}`;
    else if (code >= 0xd800 && code < 0xe000) out += `\\u${code.toString(16)}`;
    else out += c;
  }
  return out + quote;
}

const joined = (items: Iterable<Any>): string => [...items].map(repr).join(", ");

export function repr(x: Any): string {
  if (typeof x === "string") return quoted(x);
  if (x instanceof Uint8Array) {
    let out = "";
    for (const c of x) {
      if (c === 92) out += "\\\\";
      else if (c === 39) out += "\\'";
      else if (c >= 32 && c < 127) out += String.fromCharCode(c);
      else out += c === 10 ? "\\n" : c === 13 ? "\\r" : c === 9 ? "\\t" : `\\x${c.toString(16).padStart(2, "0")}`;
    }
    return `b'${out}'`;
  }
  if (Array.isArray(x)) return `[${joined(x)}]`;
  if (x instanceof Tuple && !x.constructor.hasOwnProperty("fieldNames"))
    return `(${joined(x.a)}${x.a.length === 1 ? "," : ""})`;
  if (x instanceof Dict) return `{${[...x.m.values()].map((e) => `${repr(e.k)}: ${repr(e.v)}`).join(", ")}}`;
  if (x instanceof FrozenSet) return x.m.size ? `frozenset({${joined(x)}})` : "frozenset()";
  if (x instanceof PySet) return x.m.size ? `{${joined(x)}}` : "set()";
  if (x instanceof Range) return `range(${x.start}, ${x.stop}${x.step === 1 ? "" : `, ${x.step}`})`;
  if (x?.$__repr__) return x.$__repr__();
  if (x?.enumMember) return `<${x.constructor.typeName}.${x.$name}: ${x.$value}>`;
  if (x?.constructor?.fieldNames) {
    return `${x.constructor.typeName}(${x.constructor.fieldNames.map((n: string) => `${n}=${repr(x[`$${n}`])}`).join(", ")})`;
  }
  return str(x);
}

export function str(x: Any): string {
  switch (typeof x) {
    case "string":
      return x;
    case "number":
    case "bigint":
      return String(x);
    case "boolean":
      return x ? "True" : "False";
    case "function":
      return x.base ? `<class '${x.typeName}'>` : `<function ${x.signature?.name ?? x.name}>`;
  }
  if (x === null || x === undefined) return "None";
  if (x instanceof Float) return floatText(x.v);
  if (x.$__str__) return x.$__str__();
  if (x.enumMember) return String(x.$value);
  if (x.$__repr__ || Array.isArray(x) || x instanceof Tuple || x instanceof Dict || x instanceof PySet) return repr(x);
  if (x instanceof Uint8Array || x instanceof Range || x.constructor?.fieldNames) return repr(x);
  return `<${x.constructor?.typeName ?? typeof x} object at 0x${identity(x).toString(16)}>`;
}

const SPEC = /^(?:(.)?([<>^=]))?([-+ ]?)(#?)(0?)(\d*)([,_]?)(?:\.(\d+))?([a-zA-Z%]?)$/;

/** `%g` with so many digits. */
function general(v: number, digits: number): string {
  if (!Number.isFinite(v)) return floatText(v);
  if (v === 0) return Object.is(v, -0) ? "-0" : "0";
  const precise = v.toExponential(Math.max(0, digits - 1));
  const e = Number(precise.split("e")[1]);
  const trim = (t: string): string => (t.includes(".") ? t.replace(/\.?0+$/, "") : t);
  if (e < -4 || e >= digits) {
    return `${trim(precise.split("e")[0] ?? "")}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
  }
  return trim(v.toFixed(Math.max(0, digits - 1 - e)));
}

export function format(x: Any, spec: string): string {
  if (!spec) return str(x);
  const found = SPEC.exec(spec);
  if (!found) throw raise("ValueError", `format ${spec}`);
  const [, fill, align, sign, alternate, zero, width, group, precision, type] = found;
  let text: string;
  const isNumber = typeof x === "number" || typeof x === "bigint" || x instanceof Float || x?.enumMember;
  if (type === "x" || type === "X" || type === "b" || type === "o" || type === "d") {
    const base = type === "x" || type === "X" ? 16 : type === "b" ? 2 : type === "o" ? 8 : 10;
    text = (typeof x === "bigint" ? x : Number(x)).toString(base);
    if (type === "X") text = text.toUpperCase();
    if (alternate) text = `0${type}${text}`;
  } else if (type === "f" || type === "F") text = Number(x).toFixed(precision === undefined ? 6 : Number(precision));
  else if (type === "g") text = general(Number(x), precision === undefined ? 6 : Number(precision) || 1);
  else if (type === "%") text = `${(Number(x) * 100).toFixed(precision === undefined ? 6 : Number(precision))}%`;
  else if (type === "e") {
    const [mantissa, e = "0"] = Number(x)
      .toExponential(precision === undefined ? 6 : Number(precision))
      .split("e");
    text = `${mantissa}e${e.startsWith("-") ? "-" : "+"}${e.replace(/^[-+]/, "").padStart(2, "0")}`;
  } else {
    text = str(x);
    if (precision !== undefined)
      text = isNumber ? general(Number(x), Number(precision)) : [...text].slice(0, Number(precision)).join("");
  }
  if (group) text = text.replace(/^(-?\d+)/, (digits) => digits.replace(/\B(?=(\d{3})+$)/g, group));
  if (sign === "+" && isNumber && !text.startsWith("-")) text = `+${text}`;
  const missing = Number(width || 0) - [...text].length;
  if (missing <= 0) return text;
  if (zero && !align) {
    const negative = /^[-+]/.test(text);
    return negative ? text[0] + "0".repeat(missing) + text.slice(1) : "0".repeat(missing) + text;
  }
  const by = align ?? (isNumber ? ">" : "<");
  const pad = fill ?? " ";
  if (by === "<") return text + pad.repeat(missing);
  if (by === ">") return pad.repeat(missing) + text;
  return pad.repeat(missing >> 1) + text + pad.repeat(missing - (missing >> 1));
}
