/** Reads the graph of a model from a stream, without weights and without inference: for where no server reads it. */
import type { Body, Call, Declared, Description, Size, Stored } from "./model.js";
import type { Stream } from "./stream.js";

const NODE_BYTES = 64 << 20;
const DEPTH = 32;
// TensorProto.DataType
const TYPES = [
  "unknown", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "float64", "uint32", "uint64",
  "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1",
  "float8e8m0", "uint2", "int2", "float6e2m3", "float6e3m2",
]; // prettier-ignore
const BITS: Readonly<Record<string, number>> = {
  bool: 8,
  complex64: 64,
  complex128: 128,
  string: 0,
  float4e2m1: 4,
  unknown: 0,
};

const bitsOf = (type: string): number =>
  BITS[type] ?? (Number(/^(?:float8|float6|\D+)?(\d+)?/.exec(type)?.[1]) || (type.startsWith("float8") ? 8 : 6));

/** The description of an `.onnx` or `.ponnx` file. */
export async function describe(stream: Stream, name: string): Promise<Description> {
  const head = await stream.peek(10);
  if (!head.length) throw new Error("the file is empty");
  if (head[8] === 0x7b && head[9] === 0x22) return compiled(stream, name);
  const text = new TextDecoder().decode(head);
  if (text.startsWith("version"))
    throw new Error("this is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`");
  if (text.startsWith("PK")) throw new Error("this is a zip archive, not an ONNX model");
  return onnx(stream, name);
}

type Field = readonly [number: number, wire: number, value: number, bytes: Uint8Array];

/** The fields of a message in memory: key, wire type, and a number or bytes. */
function* fields(bytes: Uint8Array): Generator<Field> {
  const none = new Uint8Array(0);
  let at = 0;
  const varint = (): number => {
    let [value, shift] = [0n, 0n];
    for (;;) {
      const byte = bytes[at++];
      if (byte === undefined || shift > 63n) throw new Error("a number in the file is damaged");
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return Number(BigInt.asIntN(64, value));
      shift += 7n;
    }
  };
  const small = (): number => {
    const byte = bytes[at];
    if (byte !== undefined && byte < 128) return (at++, byte);
    return varint();
  };
  while (at < bytes.length) {
    const key = small();
    const [number, wire] = [key >>> 3, key & 7];
    if (wire === 0) yield [number, wire, small(), none];
    else {
      const size = wire === 2 ? small() : wire === 5 ? 4 : wire === 1 ? 8 : -1;
      if (size < 0 || at + size > bytes.length || number < 1)
        throw new Error("the file is damaged, or is no ONNX model");
      yield [number, wire, 0, bytes.subarray(at, (at += size))];
    }
  }
}

const decoder = new TextDecoder();
const text = (bytes: Uint8Array): string => decoder.decode(bytes);

/** What people wrote: the graph's name, and documentation by the first output of a node. */
interface Written {
  name: string;
  about: string;
  nodes: Record<string, string>;
}

interface Open {
  inputs: Declared[];
  outputs: Declared[];
  nodes: Call[];
  weights: Record<string, Stored>;
  declared: Record<string, Declared>;
}

const opened = (): Open => ({
  inputs: [],
  outputs: [],
  nodes: [],
  weights: Object.create(null),
  declared: Object.create(null),
});

/** A varint of the stream, and the bytes that it took. */
async function number(stream: Stream): Promise<number> {
  const bytes = await stream.peek(10);
  let [value, scale] = [0, 1];
  for (const [k, byte] of bytes.entries()) {
    value += (byte & 127) * scale;
    scale *= 128;
    if (byte < 128) {
      await stream.skip(k + 1);
      return value;
    }
  }
  throw new Error(`byte ${stream.position}: the file is damaged, or is no ONNX model`);
}

/** The fields of a message in the stream; the caller takes the payload of each before the next. */
async function* streamed(stream: Stream, end: number): AsyncGenerator<{ field: number; wire: number; size: number }> {
  while (stream.position < end && !(end === Infinity && (await stream.end()))) {
    const start = stream.position;
    const key = await number(stream);
    const wire = key % 8;
    const size = wire === 0 ? 0 : wire === 2 ? await number(stream) : wire === 5 ? 4 : wire === 1 ? 8 : -1;
    if (size < 0 || key < 8 || stream.position + size > Math.min(end, stream.total ?? Infinity))
      throw new Error(`byte ${start}: the file is truncated or damaged, or is no ONNX model`);
    yield { field: Math.floor(key / 8), wire, size };
  }
}

async function onnx(stream: Stream, name: string): Promise<Description> {
  const about: [string, string][] = [];
  const producer: string[] = [];
  const opsets: string[] = [];
  const versions: Record<string, number> = Object.create(null);
  const written: Written = { name: "", about: "", nodes: Object.create(null) };
  let graph: Open | null = null;
  for await (const { field, wire, size } of streamed(stream, Infinity)) {
    if (wire === 0) {
      const value = await number(stream);
      if (field === 1) about.push(["IR version", String(value)]);
      else if (field === 5 && value) about.push(["version", String(value)]);
    } else if (field === 7) graph = await graphIn(stream, stream.position + size, written);
    else if ([2, 3, 4, 6, 8, 14].includes(field) && size < NODE_BYTES) {
      const bytes = await stream.read(size);
      if (field < 4) producer.push(text(bytes));
      else if (field < 8) about.push([field === 4 ? "domain" : "description", cut(text(bytes))]);
      else {
        const parts = [...fields(bytes)];
        const first = text(parts.find(([n]) => n === 1)?.[3] ?? new Uint8Array(0));
        const second = parts.find(([n]) => n === 2);
        if (field === 8) {
          opsets.push(`${first || "ai.onnx"} ${second?.[2] ?? 0}`);
          versions[first === "ai.onnx" ? "" : first] = second?.[2] ?? 0;
        } else about.push([first, text(second?.[3] ?? new Uint8Array(0)).slice(0, 400)]);
      }
    } else await stream.skip(size);
  }
  if (!graph) throw new Error("there is no graph in the file; it is no ONNX model, or only its beginning");
  if (written.about) about.unshift(["about the graph", cut(written.about)]);
  if (written.name) about.unshift(["graph", written.name]);
  about.unshift(["opset", opsets.join(", ")], ["made by", producer.join(" ") || "unknown"]);
  const more = { opsets: versions, documentation: written.nodes };
  return { kind: "onnx", name, bytes: stream.position, about, ...more, ...sorted(graph) };
}

const cut = (words: string): string => (words.length > 400 ? `${words.slice(0, 400)} …` : words);

async function graphIn(stream: Stream, end: number, written: Written): Promise<Open> {
  const graph = opened();
  for await (const { field, wire, size } of streamed(stream, end)) {
    if (wire === 0) await number(stream);
    else if (field === 5) await weightIn(stream, size, graph);
    else if ([1, 11, 12, 13].includes(field)) {
      if (size > NODE_BYTES)
        throw new Error(`byte ${stream.position}: a node of ${size} bytes is too large to be read in the browser`);
      const bytes = await stream.read(size);
      addTo(graph, field, bytes, 0);
      if (field === 1) note(bytes, written);
    } else if ((field === 2 || field === 10) && size < NODE_BYTES)
      written[field === 2 ? "name" : "about"] = text(await stream.read(size));
    else await stream.skip(size);
  }
  return graph;
}

function note(node: Uint8Array, { nodes }: Written): void {
  let [output, words] = ["", ""];
  for (const [field, , , payload] of fields(node)) {
    if (field === 2) output ||= text(payload);
    else if (field === 6) words = text(payload);
  }
  if (words && output) nodes[output] = words.slice(0, 4000);
}

function addTo(graph: Open, field: number, bytes: Uint8Array, depth: number): void {
  if (depth > DEPTH) throw new Error(`graphs nest deeper than ${DEPTH}`);
  if (field === 1) {
    const call = node(bytes, depth);
    if (call) graph.nodes.push(call);
    else constant(bytes, graph);
  } else if (field === 5) {
    const [name, stored] = tensor(bytes);
    graph.weights[name] = stored;
  } else {
    const info = declared(bytes);
    if (field === 11) graph.inputs.push(info);
    else if (field === 12) graph.outputs.push(info);
    else graph.declared[info.name] = info;
  }
}

/** A large weight: its data is skipped. */
async function weightIn(stream: Stream, size: number, graph: Open): Promise<void> {
  const end = stream.position + size;
  const kept: number[] = [];
  for await (const part of streamed(stream, end)) {
    if (part.wire === 0) {
      const value = await number(stream);
      if (part.field === 1 || part.field === 2) kept.push(part.field * 8, ...varint(value));
    } else if ((part.field === 8 || part.field === 1) && part.size < 1 << 16)
      kept.push(part.field * 8 + 2, ...varint(part.size), ...(await stream.read(part.size)));
    else await stream.skip(part.size);
  }
  const [name, stored] = tensor(Uint8Array.from(kept));
  graph.weights[name] = stored;
}

function varint(value: number): number[] {
  const bytes = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return [...bytes, value];
}

function tensor(bytes: Uint8Array): [string, Stored] {
  const shape: number[] = [];
  let [name, type] = ["", "unknown"];
  for (const [field, wire, value, payload] of fields(bytes)) {
    if (field === 1 && wire === 0) shape.push(value);
    else if (field === 1) shape.push(...packed(payload));
    else if (field === 2) type = TYPES[value] ?? "unknown";
    else if (field === 8) name = text(payload);
  }
  const count = shape.reduce((a, b) => a * b, 1);
  return [name, { dtype: type, shape, bytes: Math.ceil((count * bitsOf(type)) / 8) }];
}

function packed(bytes: Uint8Array): number[] {
  // Each number of a packed list looks like the value of a field with key 8.
  const found: number[] = [];
  let start = 0;
  bytes.forEach((byte, k) => {
    if (byte >= 128) return;
    for (const [, , value] of fields(Uint8Array.of(8, ...bytes.subarray(start, k + 1)))) found.push(value);
    start = k + 1;
  });
  return found;
}

/** A call; null for a constant, which is a weight here. */
function node(bytes: Uint8Array, depth: number): Call | null {
  const call = { name: "", op: "", domain: "", inputs: [] as string[], outputs: [] as string[] };
  const attrs: [string, string][] = [];
  const bodies: [string, Body][] = [];
  let tensors = 0;
  for (const [field, wire, , payload] of fields(bytes)) {
    if (wire !== 2) continue;
    if (field === 1) call.inputs.push(text(payload));
    else if (field === 2) call.outputs.push(text(payload));
    else if (field === 3) call.name = text(payload);
    else if (field === 4) call.op = text(payload);
    else if (field === 7) call.domain = text(payload) === "ai.onnx" ? "" : text(payload);
    else if (field === 5) {
      const { name, shown, graphs, isTensor } = attribute(payload, depth);
      attrs.push([name, shown]);
      tensors += Number(isTensor);
      for (const graph of graphs) bodies.push([name, graph]);
    }
  }
  if (!call.op) throw new Error("a node has no operator type; the file is damaged, or is no ONNX model");
  return !call.inputs.length && call.outputs.length === 1 && attrs.length === 1 && tensors
    ? null
    : { ...call, attrs, bodies };
}

function constant(bytes: Uint8Array, graph: Open): void {
  let [name, stored]: [string, Stored | null] = ["", null];
  for (const [field, , , payload] of fields(bytes)) {
    if (field === 2) name = text(payload);
    else if (field === 5) for (const [f, , , inner] of fields(payload)) if (f === 5) stored = tensor(inner)[1];
  }
  if (stored) graph.weights[name] = stored;
}

function attribute(
  bytes: Uint8Array,
  depth: number,
): { name: string; shown: string; graphs: Body[]; isTensor: boolean } {
  let name = "";
  const values: (string | number)[] = [];
  const graphs: Body[] = [];
  let [isTensor, list] = [false, false];
  const float = (at: Uint8Array, k = 0): number =>
    Number(new DataView(at.buffer, at.byteOffset).getFloat32(4 * k, true).toPrecision(7));
  for (const [field, wire, value, payload] of fields(bytes)) {
    list ||= [7, 8, 9, 10, 11].includes(field);
    if (field === 1) name = text(payload);
    else if (field === 2) values.push(float(payload));
    else if (field === 3) values.push(value);
    else if (field === 4 || field === 9) values.push(text(payload));
    else if (field === 5 || field === 10) {
      const [, { dtype, shape }] = tensor(payload);
      values.push(`${dtype} [${shape.join(", ")}]`);
      isTensor ||= field === 5;
    } else if (field === 6 || field === 11) {
      const graph = opened();
      for (const [f, w, , inner] of fields(payload))
        if (w === 2 && [1, 5, 11, 12, 13].includes(f)) addTo(graph, f, inner, depth + 1);
      values.push(`graph of ${graph.nodes.length} nodes`);
      graphs.push(sorted(graph));
    } else if (field === 7) for (let k = 0; 4 * k + 4 <= payload.length; k++) values.push(float(payload, k));
    else if (field === 8) values.push(...(wire === 0 ? [value] : packed(payload)));
  }
  const shown = values.slice(0, 100).join(", ").slice(0, 400);
  return { name, shown: list ? `[${shown}${values.length > 100 ? ", …" : ""}]` : shown, graphs, isTensor };
}

function declared(bytes: Uint8Array): Declared {
  let [name, dtype]: [string, string] = ["", "unknown"];
  let shape: Size[] | null = null;
  for (const [field, , , payload] of fields(bytes)) {
    if (field === 1) name = text(payload);
    if (field !== 2) continue;
    for (const [kind, , , type] of fields(payload)) {
      if (kind !== 1) dtype = ["", "", "", "", "sequence", "map", "", "", "sparse", "optional"][kind] || "opaque";
      else
        for (const [part, , value, inner] of fields(type)) {
          if (part === 1) dtype = TYPES[value] ?? "unknown";
          else if (part === 2) shape = [...fields(inner)].filter(([n]) => n === 1).map(([, , , dim]) => size(dim));
        }
    }
  }
  return { name, dtype, shape: shape?.map((d, axis) => (d === "?" ? `${name}[${axis}]` : d)) ?? null };
}

function size(bytes: Uint8Array): Size {
  for (const [field, , value, payload] of fields(bytes)) {
    if (field === 1) return value >= 0 ? value : "?";
    if (field === 2) return text(payload) || "?";
  }
  return "?";
}

/** The graph with weights taken out of its inputs and its nodes in an order that can be run. */
function sorted(graph: Open): Body {
  const inputs = graph.inputs.filter(({ name }) => !(name in graph.weights));
  const producer = new Map(graph.nodes.flatMap((call, k) => call.outputs.map((name) => [name, k] as const)));
  const waiting = new Int32Array(graph.nodes.length);
  const after: number[][] = graph.nodes.map(() => []);
  graph.nodes.forEach((call, k) => {
    for (const p of new Set(call.inputs.map((name) => producer.get(name)))) {
      if (p === undefined || p === k || !call.inputs.length) continue;
      after[p]!.push(k);
      waiting[k]!++;
    }
  });
  const order = [...graph.nodes.keys()].filter((k) => !waiting[k]);
  const inOrder = graph.nodes.every((call, k) => call.inputs.every((name) => (producer.get(name) ?? -1) < k));
  if (inOrder) return { ...graph, inputs };
  for (const k of order) for (const next of after[k]!) if (--waiting[next]! === 0) order.push(next);
  if (order.length < graph.nodes.length) throw new Error("the graph is cyclic");
  return { ...graph, inputs, nodes: order.map((k) => graph.nodes[k]!) };
}

/** A compiled model from its header and the words of its main Program. */
async function compiled(stream: Stream, name: string): Promise<Description> {
  const head = new DataView((await stream.read(8)).buffer);
  const length = head.getUint32(0, true) + head.getUint32(4, true) * 2 ** 32;
  if (length > NODE_BYTES) throw new Error("the header of the file is damaged");
  const header = JSON.parse(text(await stream.read(length)));
  const version = header.__metadata__?.version;
  if (version !== "1") throw new Error(`the file has format version ${version}; this viewer reads version 1`);
  const program = header.programs[header.script[0].run];
  const [offset, bytes] = program.code;
  await stream.skip(offset);
  const code = await stream.read(bytes);
  const words = new Int32Array(code.buffer, 0, code.length >> 2);
  const made = header.provenance ?? {};
  const opset = Object.entries(made.opset ?? {}).map(([domain, v]) => `${domain || "ai.onnx"} ${v}`);
  const about: [string, string][] = [
    ["made from", String(made.source || "unknown")],
    ["source sha256", String(made.sha256 || "unknown")],
    ["opset", opset.join(", ")],
    ["made by", String(made.producer || "unknown")],
  ];
  const body = { inputs: header.inputs, outputs: header.outputs, ...steps(words, program.origins, header) };
  return { kind: "ponnx", name, bytes: stream.total ?? stream.position, about, ...body };
}

/** The names of what a Program takes or gives: strings are spans and a pool. */
function partNames(values: any[]): string[] {
  return values.flatMap(({ name, dtype }) => (dtype === "string" ? [name, `${name}.bytes`] : [name]));
}

/** The steps of a Program (PROGRAM.md, section 2); what a step writes is its first buffer and whatever comes to life with it. */
function steps(words: Int32Array, origins: string[], header: any): Pick<Body, "nodes" | "weights" | "declared"> {
  const word = (k: number): number => {
    const value = words[k];
    if (value === undefined) throw new Error("the Program is damaged: a table lies outside it");
    return value;
  };
  const kernels: string[] = [];
  for (let k = 0, at = word(4); k < word(3); k++) {
    const size = word(at + 1);
    kernels.push(text(new Uint8Array(words.buffer, 4 * (at + 2), size)));
    at += 2 + Math.ceil(size / 4);
  }
  const current = new Map<number, string>();
  const weights: Record<string, Stored> = Object.create(null);
  const firsts: number[] = [];
  const outputs = new Map<number, string>();
  const [inputNames, outputNames] = [header.inputs, header.outputs].map(partNames) as [string[], string[]];
  for (let k = 0; k < word(11); k++) {
    const [kind, index, , first] = [0, 1, 2, 3].map((c) => word(word(12) + 6 * k + c)) as [
      number,
      number,
      number,
      number,
    ];
    firsts.push(kind === 0 || kind === 3 ? first : -1);
    if (kind === 1) {
      const { name, dtype, shape, bytes } = header.weights[index];
      weights[name] = { dtype, shape, bytes };
      current.set(k, name);
    } else if (kind === 2) current.set(k, inputNames[index] as string);
    else if (kind === 3) outputs.set(k, outputNames[index] as string);
  }
  const nodes: Call[] = [];
  for (let i = 0, at = word(16); i < word(15); i++) {
    const [kernel, count, params, origin] = [0, 1, 2, 3].map((c) => word(at + c)) as [number, number, number, number];
    const touched = Array.from({ length: count }, (_, k) => word(at + 4 + k)).map((b) =>
      b < 0 ? -1 : word(word(14) + 4 * b),
    );
    const writes = touched.filter((s, k) => s >= 0 && (k === 0 || firsts[s] === i));
    const inputs = touched.filter((s) => s >= 0 && current.has(s)).map((s) => current.get(s)!);
    for (const s of writes) current.set(s, `storage ${s}, step ${i}`);
    const outs = writes.map((s) => current.get(s)!);
    const op = kernels[kernel] ?? "?";
    nodes.push({
      name: origins[origin] ?? "",
      op,
      domain: "",
      family: op,
      inputs,
      outputs: outs,
      attrs: [["step", `${i}`]],
      bodies: [],
    });
    at += 4 + count + params;
  }
  const results = new Map([...outputs].map(([s, name]) => [current.get(s) ?? "", name]));
  const renamed = nodes.map((call) => ({
    ...call,
    inputs: call.inputs.map((v) => results.get(v) ?? v),
    outputs: call.outputs.map((v) => results.get(v) ?? v),
  }));
  return { nodes: renamed, weights, declared: {} };
}
