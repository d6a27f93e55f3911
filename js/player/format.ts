/** The header of a `.ponnx` file, checked. PROGRAM.md specifies the format. */
import type { Callback, Kind, WasmInfo } from "./asked.js";
import { bytesOf, elements, isType } from "./dtypes.js";
import { tensorsOf, type Face, type Faces } from "./faces.js";
import { metadataOf } from "./metadata.js";
import { partsOf } from "./strings.js";
import type { TensorType } from "./tensor.js";
import type { ModelMetadata } from "./types.js";

export interface ValueInfo {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly (number | string)[];
  /** The shape says nothing. */
  readonly anyRank?: boolean;
}

export interface ProgramInfo {
  readonly name: string;
  readonly start: number;
  readonly bytes: number;
  readonly messages: readonly string[];
  readonly origins: readonly string[];
  /** Operators that the host runs. */
  readonly callbacks: readonly Callback[];
}

/** Where a weight's bytes come from; "init" fills memory that has no source. */
export type WeightSource =
  | { readonly kind: "data"; readonly start: number }
  | { readonly kind: "file"; readonly file: number; readonly start: number }
  | { readonly kind: "over"; readonly weight: number }
  | { readonly kind: "init" };

export interface WeightInfo {
  readonly name: string;
  readonly bytes: number;
  readonly source: WeightSource;
}

export interface RunStep {
  readonly program: number;
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
}

export interface GpuInfo {
  readonly program: number;
  /** Computes derived weights before it. */
  readonly init: number | null;
  readonly start: number;
  readonly bytes: number;
}

export interface Blob {
  readonly start: number;
  readonly bytes: number;
}

export interface Header {
  readonly inputs: readonly ValueInfo[];
  readonly outputs: readonly ValueInfo[];
  /** The model's inputs and outputs where some are sequences or optionals, of which those above are the tensors. */
  readonly faces: Faces | undefined;
  /** The slots of the inputs come first; strings have two, their spans and their pool. */
  readonly programs: readonly ProgramInfo[];
  readonly init: number | null;
  readonly script: readonly RunStep[];
  readonly results: readonly number[];
  readonly slots: number;
  readonly weights: readonly WeightInfo[];
  readonly files: readonly string[];
  readonly metadata: ModelMetadata;
  /** WebAssembly modules that operators are in. */
  readonly modules: readonly Blob[];
  /** The Program for GPUs and the range of its section, if the model was compiled for them. */
  readonly gpu: GpuInfo | undefined;
  /** Why the core runs it where a GPU is wanted. */
  readonly onCore: string | undefined;
  /** Length of the data section as far as blobs reach into it. */
  readonly dataBytes: number;
}

export const PREFIX_BYTES = 8;
/** GPUs bind weights larger than this in parts (PROGRAM.md §7): every adapter binds as much. */
export const BINDING_BYTES = 2 ** 27;
const MAX_HEADER_BYTES = 2 ** 28;
const MAX_BLOB_BYTES = 2 ** 47;

/** The header's length from the file's first bytes; throws an error that says what the file is instead. */
export function headerLength(start: Uint8Array): number {
  if (start.length === 0) throw new Error("the file is empty");
  if (start[PREFIX_BYTES] === 0x7b) {
    const view = new DataView(start.buffer, start.byteOffset);
    const length = view.getUint32(4, true) * 2 ** 32 + view.getUint32(0, true);
    if (length >= 2 && length <= MAX_HEADER_BYTES) return length;
  }
  throw new Error(describe(start));
}

function describe(start: Uint8Array): string {
  const text = String.fromCharCode(...start.subarray(0, 40));
  const trimmed = text.trimStart();
  if (trimmed.startsWith("<")) return "the server sent an HTML page, not a model: check the address";
  if (text.startsWith("version https://git-lfs"))
    return "this is a Git LFS pointer, not the model: fetch it with `git lfs pull`";
  if (text.slice(4, 8) === "ORTM")
    return "this is an .ort file of onnxruntime: compile its .onnx instead: pyonnx-wasm compile model.onnx";
  // An onnx ModelProto starts with the field ir_version (tag 8, a small varint), then another field of the message.
  if (start[0] === 0x08 && (start[1] ?? 0) < 0x20 && [0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42].includes(start[2] ?? 0))
    return "this is an ONNX file; compile it first: pyonnx-wasm compile model.onnx";
  if (text.startsWith("GGUF")) return "this is a GGUF file; compile it first: pyonnx-wasm compile model.gguf";
  if (text.startsWith("PK\x03\x04")) return "this is a zip archive, not a compiled model (.ponnx)";
  if (text.startsWith("\x1f\x8b")) return "this is a gzip file: serve it with Content-Encoding: gzip, or unpack it";
  if (start.length <= PREFIX_BYTES) return `the file is truncated: it has only ${start.length} bytes`;
  return "this is not a compiled model (.ponnx): it does not start with a header length and JSON";
}

/** Parses the JSON header; throws an error naming the key that is wrong. */
export function parseHeader(bytes: Uint8Array): Header {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new Error(`the header is damaged: ${error instanceof Error ? error.message : String(error)}`);
  }
  const header = object(json, "header");
  const meta = object(header["__metadata__"] ?? {}, "__metadata__");
  if (meta["format"] !== "ponnx")
    throw new Error("this is not a compiled model (.ponnx); a safetensors file has no program");
  if (meta["version"] !== "1")
    throw new Error(
      `the file has format version ${String(meta["version"])}; this player reads version 1: compile it again`,
    );

  const inputs = list(header, "inputs").map(valueInfo("inputs"));
  const outputs = list(header, "outputs").map(valueInfo("outputs"));
  const faces = header["faces"] === undefined ? undefined : facesOf(list(header, "faces"), inputs, outputs);
  const modules = (header["wasm"] === undefined ? [] : list(header, "wasm")).map((row, i): Blob => {
    const [start, bytes] = list({ wasm: row }, "wasm").map((n) => integer(n, `wasm[${i}]`));
    return { start: integer(start, `wasm[${i}]`), bytes: integer(bytes, `wasm[${i}]`) };
  });
  const programs = list(header, "programs").map((row, i) => programInfo(row, i, modules.length));
  const weights = list(header, "weights").map(weightInfo);
  const files = header["files"] === undefined ? [] : list(header, "files").map((f, i) => string(f, `files[${i}]`));
  for (const { name, source, bytes } of weights) {
    if (source.kind === "file" && source.file >= files.length)
      fail(`weight "${name}": there is no file ${source.file}`);
    if (source.kind === "over" && !(bytes <= (weights[homeOf(weights, source.weight)]?.bytes ?? -1)))
      fail(`weight "${name}" cannot lie over weight ${source.weight}`);
  }
  const init = initOf(header["init"] ?? null, programs.length);

  const parts = (values: readonly ValueInfo[]): number => values.reduce((n, { type }) => n + partsOf(type), 0);
  let slots = parts(inputs);
  const known = (slot: unknown, where: string): number => {
    const s = integer(slot, where);
    if (s >= slots) fail(`${where}: slot ${s} is not computed before`);
    return s;
  };
  const script = list(header, "script").map((step, i): RunStep => {
    const where = `script[${i}]`;
    const s = object(step, where);
    if (s["run"] === undefined) fail(`${where}: this player knows only "run" steps, not "${Object.keys(s)[0] ?? ""}"`);
    const program = integer(s["run"], `${where}.run`);
    if (!programs[program]) fail(`${where}: there is no program ${program}`);
    const ins = list(s, "in").map((slot) => known(slot, `${where}.in`));
    const outs = list(s, "out").map((slot) => {
      if (integer(slot, `${where}.out`) !== slots) fail(`${where}.out: expected slot ${slots}`);
      return slots++;
    });
    return { program, inputs: ins, outputs: outs };
  });
  const results = list(header, "results").map((slot) => known(slot, "results"));
  if (results.length !== parts(outputs)) fail(`results: ${results.length} slots for ${outputs.length} outputs`);

  const gpu = header["gpu"] === undefined ? undefined : gpuInfo(header["gpu"], init, programs.length);
  const onCore = header["on_core"] === undefined ? undefined : string(header["on_core"], "on_core");
  const ends = [
    ...(gpu ? [gpu.start + gpu.bytes] : []),
    ...[...programs, ...modules].map(({ start, bytes }) => start + bytes),
    ...weights.map((w) => (w.source.kind === "data" ? w.source.start + w.bytes : 0)),
  ];
  const dataBytes = ends.reduce((a, b) => Math.max(a, b), 0);
  return {
    inputs,
    outputs,
    faces,
    programs,
    init,
    script,
    results,
    slots,
    weights,
    files,
    metadata: metadataOf(header["provenance"]),
    modules,
    gpu,
    onCore,
    dataBytes,
  };
}

/** The weight whose memory weight `k` has; -1 where there is none. */
export function homeOf(weights: readonly WeightInfo[], k: number): number {
  for (let hops = 0; hops <= weights.length; hops++) {
    const source = weights[k]?.source;
    if (!source) return -1;
    if (source.kind !== "over") return k;
    k = source.weight;
  }
  return -1;
}

function fail(text: string): never {
  throw new Error(`the header is damaged: ${text}`);
}

function object(value: unknown, where: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) fail(`${where} must be an object`);
  return value as Record<string, unknown>;
}

function list(of: Record<string, unknown>, key: string): unknown[] {
  const value = of[key];
  if (!Array.isArray(value)) fail(`"${key}" must be a list`);
  return value;
}

function string(value: unknown, where: string): string {
  if (typeof value !== "string") fail(`${where} must be text`);
  return value;
}

function integer(value: unknown, where: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0 || (value as number) > MAX_BLOB_BYTES)
    fail(`${where} must be an integer >= 0, not ${String(value)}`);
  return value as number;
}

function texts(of: Record<string, unknown>, key: string): string[] {
  return list({ [key]: of[key] ?? [] }, key).map((t) => string(t, key));
}

const valueInfo =
  (key: string) =>
  (value: unknown, i: number): ValueInfo => {
    const v = object(value, `${key}[${i}]`);
    const name = string(v["name"], `${key}[${i}].name`);
    const type = string(v["dtype"], `${key}[${i}].dtype`);
    if (type !== "string" && !isType(type))
      throw new Error(`"${name}" has type ${type}, which this player does not support`);
    const shape = list(v, "shape").map((d) => (typeof d === "string" ? d : integer(d, `shape of "${name}"`)));
    return { name, type, shape };
  };

function keysOf(face: Record<string, unknown>, shape: readonly (number | string)[]): (string | bigint)[] {
  const keys = list(face, "keys").map((key) => string(key, "keys"));
  if (!keys.length || shape.length !== 2 || shape[1] !== keys.length) fail("the keys of maps do not fit");
  return face["key"] === "string" ? keys : keys.map(BigInt);
}

function facesOf(given: readonly unknown[], inputs: readonly ValueInfo[], outputs: readonly ValueInfo[]): Faces {
  const side = (rows: unknown, tensors: readonly ValueInfo[]): Face[] => {
    const faces = list({ faces: rows }, "faces").map((row, i): Face => {
      const face = object(row, `faces[${i}]`);
      const { name, type, shape } = valueInfo("faces")({ ...face, shape: face["shape"] ?? [] }, i);
      const known = face["shape"] === null ? undefined : shape;
      const of = { name, type, shape: known, sequence: face["sequence"] === true, optional: face["optional"] === true };
      if (face["keys"] !== undefined) return { ...of, keys: keysOf(face, shape) };
      const key = face["key"];
      if (key !== undefined && key !== "int64" && key !== "string") fail("the keys of a map are of no known type");
      return key === undefined ? of : { ...of, key: key as "int64" | "string" };
    });
    const names = faces.flatMap(tensorsOf);
    if (names.length !== tensors.length || names.some((name, i) => tensors[i]?.name !== name))
      fail("the tensors are not those of the faces");
    return faces;
  };
  return { inputs: side(given[0], inputs), outputs: side(given[1], outputs) };
}

function programInfo(value: unknown, i: number, modules: number): ProgramInfo {
  const where = `programs[${i}]`;
  const p = object(value, where);
  if (p["target"] !== "core" && p["target"] !== "gpu")
    fail(`${where}: target "${String(p["target"])}" is neither "core" nor "gpu"`);
  const code = list(p, "code");
  const [start, bytes] = [integer(code[0], `${where}.code`), integer(code[1], `${where}.code`)];
  if (bytes % 4 !== 0 || bytes === 0) fail(`${where}.code: ${bytes} bytes are no list of words`);
  return {
    name: string(p["name"], `${where}.name`),
    start,
    bytes,
    messages: texts(p, "messages"),
    origins: texts(p, "origins"),
    callbacks: (p["callbacks"] === undefined ? [] : list(p, "callbacks")).map((c, k) =>
      callbackOf(c, `${where}.callbacks[${k}]`, modules),
    ),
  };
}

/** A row of callbacks, of a file with so many modules. */
export function callbackOf(value: unknown, where: string, modules: number): Callback {
  const row = object(value, where);
  const [domain, op, node] = ["domain", "op", "node"].map((key) => string(row[key], `${where}.${key}`)) as [
    string,
    string,
    string,
  ];
  const given = Object.entries(object(row["attributes"], `${where}.attributes`));
  return {
    domain,
    op,
    node,
    present: list(row, "present").map(Boolean),
    attributes: Object.fromEntries(given.map(([name, each]) => [name, attributeOf(each)])),
    tensors: texts(row, "tensors"),
    outputs: (row["outputs"] === undefined ? [] : list(row, "outputs")).map((kind) => kindOf(kind, where)),
    wasm: row["wasm"] === undefined ? undefined : wasmOf(row, where, modules),
    wgsl: row["wgsl"] === true,
  };
}

/** Numbers that JSON does not hold, or JavaScript not exactly, are texts there. */
function attributeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(attributeOf);
  if (typeof value !== "object" || value === null) return value;
  const { float, int } = value as { float?: string; int?: string };
  return int === undefined ? Number(String(float).replace("inf", "Infinity")) : BigInt(int);
}

function kindOf(value: unknown, where: string): Kind {
  const [type, rank] = list({ outputs: value }, "outputs");
  if (!isType(type)) fail(`${where}: unknown dtype "${String(type)}"`);
  return { type, rank: integer(rank, `${where}: rank`) };
}

function wasmOf(row: Record<string, unknown>, where: string, modules: number): WasmInfo {
  const [module, name, attributes] = list(row, "wasm");
  if (integer(module, `${where}.wasm`) >= modules) fail(`${where}: there is no module ${String(module)}`);
  return {
    module: module as number,
    name: string(name, `${where}.wasm`),
    attributes: texts({ attributes }, "attributes"),
  };
}

function initOf(value: unknown, programs: number): number | null {
  if (value !== null && integer(value, "init") >= programs) fail(`init: there is no program ${String(value)}`);
  return value as number | null;
}

/** `init` is the core's, which runs here, too, where the model has no other. */
function gpuInfo(value: unknown, init: number | null, programs: number): GpuInfo {
  const g = object(value, "gpu");
  const program = integer(g["program"], "gpu.program");
  if (program >= programs) fail(`gpu: there is no program ${program}`);
  const [start, bytes] = list(g, "section");
  return {
    program,
    init: g["init"] === undefined ? init : initOf(g["init"], programs),
    start: integer(start, "gpu.section"),
    bytes: integer(bytes, "gpu.section"),
  };
}

function weightInfo(value: unknown, i: number): WeightInfo {
  const w = object(value, `weights[${i}]`);
  const name = string(w["name"], `weights[${i}].name`);
  const where = `weight "${name}"`;
  const bytes = integer(w["bytes"], `${where}: bytes`);
  const type = w["dtype"];
  if (!isType(type)) fail(`${where}: unknown dtype "${String(type)}"`);
  const shape = list(w, "shape").map((d) => integer(d, `${where}: shape`));
  if (bytesOf(type, elements(shape)) !== bytes) fail(`${where}: [${shape}] of ${type} is not ${bytes} bytes`);
  return { name, bytes, source: weightSource(w, where) };
}

function weightSource(w: Record<string, unknown>, where: string): WeightSource {
  if (w["at"] !== undefined) return { kind: "data", start: integer(w["at"], `${where}: at`) };
  if (w["over"] !== undefined) return { kind: "over", weight: integer(w["over"], `${where}: over`) };
  if (w["from"] === undefined) return { kind: "init" };
  const [file, start] = list(w, "from");
  return { kind: "file", file: integer(file, `${where}: from`), start: integer(start, `${where}: from`) };
}
