import { arrayOf, bytesOf, elements, isType, type Type, type TypedArray } from "./dtypes.js";

export type TensorData = TypedArray;

/** Where a tensor's data is: `none` after `dispose()`. */
export type TensorLocation = "cpu" | "gpu-buffer" | "none";

/** A tensor's data on the GPU, which lives beside the engine: in its worker, as a rule. */
export interface Remote {
  readonly id: number;
  /** Whose it is: a feed goes back to the engine that holds it. */
  readonly home: unknown;
  download(): Promise<Uint8Array<ArrayBuffer>>;
  dispose(): void;
}

const INFERRED: Record<string, Type> = {
  Float32Array: "float32",
  Float64Array: "float64",
  Float16Array: "float16",
  Int8Array: "int8",
  Uint8Array: "uint8",
  Uint8ClampedArray: "uint8",
  Int16Array: "int16",
  Uint16Array: "uint16",
  Int32Array: "int32",
  Uint32Array: "uint32",
  BigInt64Array: "int64",
  BigUint64Array: "uint64",
};

/**
 * A dense, row-major tensor with onnxruntime's surface.
 *
 * `new Tensor(type, data, dims)` or, with the type taken from a typed array (booleans give `bool`), `new Tensor(data, dims)`.
 * Without dims the tensor has one dimension. A typed array of the type's class is kept, not copied; anything else is
 * converted. Throws TypeError for data that does not suit the type, RangeError for dims that do not suit the data.
 */
export class Tensor {
  readonly type: Type;
  private values: TensorData | undefined;
  private sizes: readonly number[];
  private remote: Remote | undefined;

  constructor(type: Type, data: TensorData | ArrayLike<number | bigint | boolean>, dims?: readonly number[]);
  constructor(data: TensorData | Uint8ClampedArray | readonly boolean[], dims?: readonly number[]);
  constructor(first: unknown, second?: unknown, third?: readonly number[]) {
    const named = typeof first === "string";
    const data = named ? second : first;
    const dims = (named ? third : second) as readonly number[] | undefined;
    const type = named ? first : inferType(data);
    if (type === "string") throw new TypeError("Tensor: string tensors are not supported");
    if (!isType(type)) throw new TypeError(`Tensor: unknown type "${String(type)}"`);
    this.type = type;
    this.values = convert(type, data);
    this.sizes = checkDims(type, dims ?? [this.values.length], this.values);
  }

  get dims(): readonly number[] {
    return this.sizes;
  }

  set dims(dims: readonly number[]) {
    this.sizes = checkDims(this.type, dims, this.data);
  }

  /** A tensor whose data is on the GPU. */
  static onGpu(type: Type, dims: readonly number[], remote: Remote): Tensor {
    const tensor = new Tensor(type, new (arrayOf(type))(0), [0]);
    tensor.values = undefined;
    tensor.sizes = [...dims];
    tensor.remote = remote;
    return tensor;
  }

  /** The handle of data on the GPU. @internal */
  get onGpu(): Remote | undefined {
    return this.remote;
  }

  get data(): TensorData {
    if (this.remote) throw new Error("Tensor: the data is on the GPU; await getData() brings it here");
    if (!this.values) throw new Error("Tensor: the tensor was disposed");
    return this.values;
  }

  get cpuData(): TensorData {
    return this.data;
  }

  get size(): number {
    return elements(this.sizes);
  }

  get location(): TensorLocation {
    return this.remote ? "gpu-buffer" : this.values ? "cpu" : "none";
  }

  async getData(releaseData = false): Promise<TensorData> {
    const data = this.remote ? new (arrayOf(this.type))((await this.remote.download()).buffer) : this.data;
    if (releaseData) this.dispose();
    return data;
  }

  /** A tensor of other dims over the same data. */
  reshape(dims: readonly number[]): Tensor {
    if (this.remote) {
      if (elements(dims) !== this.size) throw new RangeError(`Tensor: [${this.sizes}] cannot become [${dims}]`);
      return Tensor.onGpu(this.type, dims, this.remote);
    }
    return new Tensor(this.type, this.data, dims);
  }

  dispose(): void {
    this.values = undefined;
    this.remote?.dispose();
    this.remote = undefined;
  }
}

function inferType(data: unknown): Type {
  if (Array.isArray(data)) {
    if (data.every((v) => typeof v === "boolean")) return "bool";
    if (data.every((v) => typeof v === "string")) throw new TypeError("Tensor: string tensors are not supported");
    throw new TypeError('Tensor: numbers in a plain array need a type, as in new Tensor("float32", [1, 2])');
  }
  const name = ArrayBuffer.isView(data) ? data.constructor.name : "";
  const type = INFERRED[name];
  if (!type) throw new TypeError(`Tensor: data must be a typed array, got ${name || typeof data}`);
  return type;
}

function convert(type: Type, data: unknown): TensorData {
  const array = arrayOf(type);
  if (ArrayBuffer.isView(data)) {
    if (data.constructor.name === array.name) return data as TensorData;
    const { buffer, byteOffset, byteLength } = data;
    if (data instanceof Uint8ClampedArray && type === "uint8") return new Uint8Array(buffer, byteOffset, byteLength);
    if (data instanceof Uint16Array && type === "float16") return data;
    throw new TypeError(`Tensor: ${type} data must be a ${array.name}, got ${data.constructor.name}`);
  }
  if (!Array.isArray(data)) throw new TypeError(`Tensor: ${type} data must be a ${array.name} or an array`);
  if (type === "float16" && array.name === "Uint16Array")
    throw new TypeError("Tensor: this browser has no Float16Array; pass float16 bits as a Uint16Array");
  const wide = array.name.startsWith("Big");
  return array.from((wide ? data.map(BigInt) : data.map(Number)) as number[]);
}

function checkDims(type: Type, dims: readonly number[], data: TensorData): readonly number[] {
  if (!Array.isArray(dims)) throw new TypeError("Tensor: dims must be an array of integers");
  for (const dim of dims)
    if (!Number.isSafeInteger(dim) || dim < 0) throw new RangeError(`Tensor: dims [${dims}] must be integers >= 0`);
  const expected = bytesOf(type, elements(dims));
  if (expected !== data.byteLength)
    throw new RangeError(
      `Tensor: dims [${dims}] of ${type} need ${expected / data.BYTES_PER_ELEMENT} elements, data has ${data.length}`,
    );
  return [...dims];
}
