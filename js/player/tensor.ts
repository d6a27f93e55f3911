/** Tensors with onnxruntime's surface and types. */
import { readBuffer } from "./buffers.js";
import type * as ort from "onnxruntime-common";
import { toDataURL, toImageData } from "./image.js";
import { arrayOf, bytesOf, elements, isType, type Type, type TypedArray } from "./dtypes.js";

export type TensorData = TypedArray | string[];

/** Types of tensors: onnxruntime's, and those that travel as bits: bfloat16 in Uint16Array, what is smaller in Uint8Array. */
export type TensorType = Type | "string";

export type TensorLocation = ort.Tensor.DataLocation;

/** A tensor's data on the GPU, which lives beside the engine: in its worker, as a rule. */
export interface Remote {
  readonly id: number;
  /** Whose it is: a feed goes back to the engine that holds it. */
  readonly home: unknown;
  /** The buffer itself, where the engine runs in the page. */
  readonly buffer: ort.Tensor.GpuBufferType | undefined;
  download(): Promise<Uint8Array<ArrayBuffer>>;
  dispose(): void;
}

/** Data that is elsewhere than in the page's memory. */
interface Resource {
  readonly remote?: Remote | undefined;
  readonly gpuBuffer?: ort.Tensor.GpuBufferType | undefined;
  readonly texture?: ort.Tensor.TextureType | undefined;
  readonly mlTensor?: ort.Tensor.MLTensorType | undefined;
  readonly download?: (() => Promise<TensorData>) | undefined;
  readonly dispose?: (() => void) | undefined;
}

interface Located {
  readonly location: TensorLocation;
  readonly type: TensorType;
  readonly dims: readonly number[];
  readonly data?: unknown;
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
 * A dense, row-major tensor.
 *
 * `new Tensor(type, data, dims)` or, with the type taken from a typed array (booleans give `bool`, strings `string`),
 * `new Tensor(data, dims)`. Without dims the tensor has one dimension. A typed array of the type's class is kept, not copied;
 * anything else is converted. Throws TypeError for data that does not suit the type, RangeError for dims that do not suit the data.
 */
export class TensorImpl {
  readonly type: TensorType;
  // Not "#": reactive frameworks wrap proxies around objects, which cannot read such.
  private values: TensorData | undefined;
  private sizes: readonly number[];
  private place: TensorLocation;
  private resource: Resource | undefined;
  private coming: Promise<TensorData> | undefined;

  constructor(first: unknown, second?: unknown, third?: readonly number[]) {
    if (isLocated(first)) {
      this.type = checkType(first.type);
      this.place = first.location;
      this.values = first.location === "cpu-pinned" && !("remote" in first) ? pinned(first) : undefined;
      this.resource = this.values ? undefined : (first as Resource);
      this.sizes = checkDims(this.type, first.dims, this.values);
      return;
    }
    const named = typeof first === "string";
    const data = named ? second : first;
    const dims = (named ? third : second) as readonly number[] | undefined;
    this.type = checkType(named ? first : inferType(data));
    this.values = convert(this.type, data);
    this.place = "cpu";
    this.sizes = checkDims(this.type, dims ?? [this.values.length], this.values);
  }

  get dims(): readonly number[] {
    return this.sizes;
  }

  set dims(dims: readonly number[]) {
    this.sizes = this.values ? checkDims(this.type, dims, this.values) : sameSize(this.sizes, dims);
  }

  /** A tensor whose data an engine holds: on the GPU, or in the core's memory. */
  static onGpu(type: Type, dims: readonly number[], remote: Remote, location: TensorLocation): TensorImpl {
    const download = async (): Promise<TensorData> => new (arrayOf(type))((await remote.download()).buffer);
    const resource = { remote, download, dispose: () => remote.dispose() };
    return new TensorImpl({ location, type, dims, ...resource });
  }

  static async fromImage(image: never, options?: never): Promise<TensorImpl> {
    const { type, data, dims } = await (await import("./common.mjs")).Tensor.fromImage(image, options);
    return new TensorImpl(type, data, dims);
  }

  static fromTexture(
    texture: ort.Tensor.TextureType,
    { width, height, download, dispose }: ort.TensorFromTextureOptions<"float32">,
  ): TensorImpl {
    return new TensorImpl({
      location: "texture",
      type: "float32",
      texture,
      dims: [1, height, width, 4],
      download,
      dispose,
    });
  }

  static fromGpuBuffer(
    gpuBuffer: ort.Tensor.GpuBufferType,
    { dataType = "float32", dims, download, dispose }: ort.TensorFromGpuBufferOptions<ort.Tensor.GpuBufferDataTypes>,
  ): TensorImpl {
    return new TensorImpl({ location: "gpu-buffer", type: dataType, gpuBuffer, dims, download, dispose });
  }

  static fromMLTensor(
    mlTensor: ort.Tensor.MLTensorType,
    { dataType = "float32", dims, download, dispose }: ort.TensorFromMLTensorOptions<ort.Tensor.MLTensorDataTypes>,
  ): TensorImpl {
    return new TensorImpl({ location: "ml-tensor", type: dataType, mlTensor, dims, download, dispose });
  }

  static fromPinnedBuffer(type: Type, data: TypedArray, dims?: readonly number[]): TensorImpl {
    return new TensorImpl({ location: "cpu-pinned", type, data, dims: dims ?? [data.length] });
  }

  /** The handle of data that an engine holds. */
  get onGpu(): Remote | undefined {
    return this.place === "cpu" ? undefined : this.resource?.remote;
  }

  get data(): TensorData {
    this.ensureValid();
    const where = this.place === "cpu-pinned" ? "in the engine" : "on the GPU";
    if (!this.values) throw new Error(`Tensor: the data is ${where}; await getData() brings it here`);
    return this.values;
  }

  get cpuData(): TensorData {
    return this.data;
  }

  get size(): number {
    return elements(this.sizes);
  }

  get location(): TensorLocation {
    return this.place;
  }

  get gpuBuffer(): ort.Tensor.GpuBufferType {
    this.ensureValid();
    const { remote, gpuBuffer = remote?.buffer } = this.resource ?? {};
    if (gpuBuffer) return gpuBuffer;
    const cure = "; sessions with { worker: false } give their buffers to the page";
    throw new Error(`Tensor: the data is not in a GPUBuffer of this page${remote ? cure : ""}`);
  }

  get texture(): ort.Tensor.TextureType {
    this.ensureValid();
    if (this.resource?.texture) return this.resource.texture;
    throw new Error("Tensor: the data is not in a WebGL texture");
  }

  get mlTensor(): ort.Tensor.MLTensorType {
    this.ensureValid();
    if (this.resource?.mlTensor) return this.resource.mlTensor;
    throw new Error("Tensor: the data is not in an MLTensor");
  }

  /** The data, brought here if it is elsewhere; the tensor then has it here, and with `releaseData` no longer there. */
  async getData(releaseData = false): Promise<TensorData> {
    this.ensureValid();
    if (this.values) return this.values;
    this.coming ??= this.current();
    try {
      this.values = await this.coming;
    } finally {
      this.coming = undefined;
    }
    this.place = "cpu";
    if (releaseData) this.releaseResource();
    return this.values;
  }

  /** The data as it is now; the tensor stays where it is, as others may write there again. @internal */
  async current(): Promise<TensorData> {
    this.ensureValid();
    if (this.values) return this.values;
    const { download } = this.resource ?? {};
    if (download) return download();
    if (this.place !== "gpu-buffer")
      throw new Error("Tensor: the tensor was created without a way to download its data");
    return new (arrayOf(this.type as Type))((await readBuffer(this)).buffer);
  }

  /** A tensor of other dims over the same data. */
  reshape(dims: readonly number[]): TensorImpl {
    this.ensureValid();
    if (this.values) return new TensorImpl(this.type, this.values, dims);
    return new TensorImpl({
      ...this.resource,
      location: this.place,
      type: this.type,
      dims: sameSize(this.sizes, dims),
    });
  }

  toDataURL(options?: ort.TensorToDataUrlOptions): string {
    return toDataURL(this.toImageData(options));
  }

  toImageData(options?: ort.TensorToImageDataOptions): ImageData {
    return toImageData(this.data as Float32Array, this.dims, options);
  }

  dispose(): void {
    this.values = undefined;
    this.releaseResource();
    this.place = "none";
  }

  private releaseResource(): void {
    this.resource?.dispose?.();
    this.resource = undefined;
  }

  private ensureValid(): void {
    if (this.place === "none") throw new Error("Tensor: the tensor was disposed");
  }
}

// onnxruntime's names: a constructor, an interface and a namespace of types.
export interface TypedTensor<T extends Tensor.Type> extends ort.TypedTensor<T> {}
export interface Tensor extends ort.Tensor {}
export interface TensorConstructor extends ort.TensorConstructor {
  new (type: Exclude<Type, ort.Tensor.Type>, data: TypedArray | readonly number[], dims?: readonly number[]): Tensor;
}
export const Tensor = TensorImpl as unknown as TensorConstructor;
export declare namespace Tensor {
  type DataTypeMap = ort.Tensor.DataTypeMap;
  type ElementTypeMap = ort.Tensor.ElementTypeMap;
  type DataType = ort.Tensor.DataType;
  type ElementType = ort.Tensor.ElementType;
  type CpuPinnedDataTypes = ort.Tensor.CpuPinnedDataTypes;
  type TextureType = ort.Tensor.TextureType;
  type TextureDataTypes = ort.Tensor.TextureDataTypes;
  type GpuBufferTypeFallback = ort.Tensor.GpuBufferTypeFallback;
  type GpuBufferType = ort.Tensor.GpuBufferType;
  type GpuBufferDataTypes = ort.Tensor.GpuBufferDataTypes;
  type MLTensorTypeFallback = ort.Tensor.MLTensorTypeFallback;
  type MLTensorType = ort.Tensor.MLTensorType;
  type MLTensorDataTypes = ort.Tensor.MLTensorDataTypes;
  type DataLocation = ort.Tensor.DataLocation;
  type Type = ort.Tensor.Type;
}

function isLocated(value: unknown): value is Located {
  return typeof value === "object" && value !== null && "location" in value && "dims" in value && "type" in value;
}

function pinned({ type, data }: Located): TensorData {
  const array = arrayOf(checkType(type) as Type);
  if (!ArrayBuffer.isView(data) || data.constructor.name !== array.name)
    throw new TypeError(`Tensor: a pinned buffer of ${type} is a ${array.name}`);
  return data as unknown as TensorData;
}

function checkType(type: unknown): TensorType {
  if (type === "string" || isType(type)) return type;
  throw new TypeError(`Tensor: unknown type "${String(type)}"`);
}

function inferType(data: unknown): TensorType {
  if (Array.isArray(data)) {
    if (data.every((v) => typeof v === "boolean")) return "bool";
    if (data.every((v) => typeof v === "string")) return "string";
    throw new TypeError('Tensor: numbers in a plain array need a type, as in new Tensor("float32", [1, 2])');
  }
  const name = ArrayBuffer.isView(data) ? data.constructor.name : "";
  const type = INFERRED[name];
  if (!type) throw new TypeError(`Tensor: data must be a typed array, got ${name || typeof data}`);
  return type;
}

function convert(type: TensorType, data: unknown): TensorData {
  if (type === "string") {
    if (Array.isArray(data) && data.every((v) => typeof v === "string")) return data;
    throw new TypeError("Tensor: string data must be an array of strings");
  }
  const array = arrayOf(type);
  if (ArrayBuffer.isView(data)) {
    if (data.constructor.name === array.name) return data as TypedArray;
    const { buffer, byteOffset, byteLength } = data;
    if (data instanceof Uint8ClampedArray && type === "uint8") return new Uint8Array(buffer, byteOffset, byteLength);
    if (data instanceof Int8Array && type === "int4") return new Uint8Array(buffer, byteOffset, byteLength);
    if (data instanceof Uint16Array && type === "float16") return data;
    throw new TypeError(`Tensor: ${type} data must be a ${array.name}, got ${data.constructor.name}`);
  }
  if (!Array.isArray(data)) throw new TypeError(`Tensor: ${type} data must be a ${array.name} or an array`);
  if (type === "float16" && array.name === "Uint16Array")
    throw new TypeError("Tensor: this browser has no Float16Array; pass float16 bits as a Uint16Array");
  const wide = array.name.startsWith("Big");
  return array.from((wide ? data.map(BigInt) : data.map(Number)) as number[]);
}

function checkDims(type: TensorType, dims: readonly number[], data: TensorData | undefined): readonly number[] {
  if (!Array.isArray(dims)) throw new TypeError("Tensor: dims must be an array of integers");
  for (const dim of dims)
    if (!Number.isSafeInteger(dim) || dim < 0) throw new RangeError(`Tensor: dims [${dims}] must be integers >= 0`);
  if (!data) return [...dims];
  const count = elements(dims);
  const expected = type === "string" || Array.isArray(data) ? count : bytesOf(type, count) / data.BYTES_PER_ELEMENT;
  if (expected !== data.length)
    throw new RangeError(`Tensor: dims [${dims}] of ${type} need ${expected} elements, data has ${data.length}`);
  return [...dims];
}

function sameSize(have: readonly number[], wanted: readonly number[]): readonly number[] {
  if (elements(wanted) !== elements(have)) throw new RangeError(`Tensor: [${have}] cannot become [${wanted}]`);
  return [...wanted];
}
