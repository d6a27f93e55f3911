/** Checks feeds and size overrides against a model's signature. */
import { bytesOf, elements, isType } from "./dtypes.js";
import type { ValueInfo } from "./format.js";
import type { Feed } from "./feed.js";
import { asBytes } from "./source.js";
import { encodeStrings } from "./strings.js";
import { TensorImpl, type TensorType } from "./tensor.js";

const SYMBOL = /^[A-Za-z_][\w.]*$/;

function isSymbol(dim: number | string): dim is string {
  return typeof dim === "string" && SYMBOL.test(dim);
}

/** The signature with symbolic dims replaced by fixed sizes. */
export function override(values: readonly ValueInfo[], sizes: Readonly<Record<string, number>>): ValueInfo[] {
  return values.map((value) => ({
    ...value,
    shape: value.shape.map((dim) => (Object.hasOwn(sizes, dim) ? sizes[dim]! : dim)),
  }));
}

export function checkOverrides(inputs: readonly ValueInfo[], sizes: Readonly<Record<string, number>>): void {
  const symbols = new Set(inputs.flatMap(({ shape }) => shape.filter((d) => typeof d === "string")));
  for (const [name, value] of Object.entries(sizes)) {
    if (symbols.has(name) && (!Number.isSafeInteger(value) || value < 0))
      throw new RangeError(`freeDimensionOverrides: "${name}" must be an integer >= 0, not ${String(value)}`);
  }
}

/** Feeds in the order of the signature. Throws an error that names the input and says what it takes. */
export function checkFeeds(inputs: readonly ValueInfo[], feeds: unknown, home?: unknown): Feed[] {
  if (typeof feeds !== "object" || feeds === null || Array.isArray(feeds) || feeds instanceof Map)
    throw new TypeError("feeds must be an object of tensors by input name");
  const given = feeds as Record<string, unknown>;
  for (const name of Object.keys(given))
    if (!inputs.some((input) => input.name === name))
      throw new Error(`there is no input "${name}"; the inputs are ${quoted(inputs.map((input) => input.name))}`);

  const sizes = new Map<string, { size: number; input: string }>();
  return inputs.flatMap((input): Feed[] => {
    const { name, shape, anyRank } = input;
    const takes = `it takes ${input.type} ${anyRank ? "of any shape" : `[${shape.join(", ")}]`}`;
    const fail = (text: string): never => {
      throw new Error(`input "${name}": ${text}; ${takes}`);
    };
    if (!Object.hasOwn(given, name) || given[name] === undefined)
      throw new Error(`input "${name}" is missing; ${takes}`);
    const tensor = given[name];
    const remote = tensor instanceof TensorImpl ? tensor.onGpu : undefined;
    const buffer =
      tensor instanceof TensorImpl && !remote && tensor.location === "gpu-buffer" ? tensor.gpuBuffer : undefined;
    if (remote && remote.home !== home)
      fail("the feed is on the GPU of another engine; pass a tensor of its data: await getData()");
    const { type, dims, data } =
      remote || buffer
        ? { type: (tensor as TensorImpl).type, dims: (tensor as TensorImpl).dims, data: new Uint8Array() }
        : (tensorParts(tensor) ?? fail("the feed is not a Tensor"));
    if (type !== input.type) fail(`the feed is ${String(type)}`);
    const bytes = asBytes(data);
    const text = input.type === "string";
    if (text ? !Array.isArray(data) : !bytes)
      return fail(`the feed's data is not ${text ? "an array of strings" : "a typed array"}`);
    const elsewhere = remote !== undefined || buffer !== undefined;
    if (!elsewhere && sizeOf(input.type, dims) !== (text ? (data as unknown[]) : (bytes as Uint8Array)).length)
      fail(`the feed's dims [${dims}] do not suit its data`);
    if (!anyRank && dims.length !== shape.length) fail(`the feed has rank ${dims.length} ([${dims}])`);
    for (const [axis, expected] of shape.entries()) {
      const size = dims[axis] as number;
      if (typeof expected === "number" && expected !== size) fail(`dim ${axis} is ${size}, expected ${expected}`);
      if (!isSymbol(expected)) continue;
      const known = sizes.get(expected);
      if (known && known.size !== size)
        fail(`dim ${axis} ("${expected}") is ${size}, but input "${known.input}" has ${expected} = ${known.size}`);
      sizes.set(expected, { size, input: name });
    }
    if (input.type !== "string") return [{ data: bytes!, type: input.type, dims, gpu: remote?.id, buffer }];
    const { spans, pool } = encodeStrings(data as unknown[], `input "${name}"`);
    return [
      { data: spans, type: "int64", dims },
      { data: pool, type: "uint8", dims: [pool.length] },
    ];
  });
}

/** Bytes of a tensor's data; of strings, how many they are. */
function sizeOf(type: TensorType, dims: readonly number[]): number {
  return type === "string" ? elements(dims) : bytesOf(type, elements(dims));
}

/** Tensors are recognised by their parts: another copy of the class, or onnxruntime-common's, will do. */
function tensorParts(value: unknown): { type: unknown; dims: readonly number[]; data: unknown } | undefined {
  if (typeof value !== "object" || value === null || !("type" in value && "dims" in value && "data" in value))
    return undefined;
  const { type, dims, data } = value;
  if (!(isType(type) || type === "string") || !Array.isArray(dims)) return undefined;
  if (!dims.every((d) => Number.isSafeInteger(d) && d >= 0)) return undefined;
  return { type, dims: [...(dims as number[])], data };
}

export function quoted(names: readonly string[]): string {
  return names.length ? names.map((name) => `"${name}"`).join(", ") : "none";
}
