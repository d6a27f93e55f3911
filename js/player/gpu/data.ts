/** What goes into Programs on the GPU and comes out of them, and the commands that work on it. */
import type { Type } from "../dtypes.js";
import type { Gpu } from "./device.js";
import { Kept } from "./memory.js";

const MOST_PENDING = 256; // passes in one submission

/** Bytes in this process, on the GPU, or on both; they do not change. */
export class Data {
  constructor(
    readonly bytes: number,
    public local: Uint8Array | undefined,
    public buffer: GPUBuffer | undefined,
  ) {}
}

export interface Value {
  readonly data: Data;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** Bytes of a buffer, from its start unless told otherwise. */
export interface Range {
  readonly buffer: GPUBuffer;
  readonly bytes: number;
  readonly offset?: number;
}

/** What the Programs of a model share: the queue of commands, which gather until something has to be submitted, and buffers. */
export class Commands {
  /** Of outputs that stay on the GPU. */
  readonly kept: Kept;
  /** Of what runs take and give back. */
  readonly #pool: Kept;
  #encoder: GPUCommandEncoder | undefined;
  #pending = 0;
  /** Of the run under way. */
  readonly #taken = new Set<GPUBuffer>();
  /** Elementary operations that the run may still take. */
  left = 0;

  constructor(readonly gpu: Gpu) {
    this.kept = new Kept(gpu);
    this.#pool = new Kept(gpu, true);
  }

  begin(operations: number): void {
    this.kept.begin();
    this.#pool.begin();
    this.left = operations;
  }

  /** Ends a run: what it took serves the next ones. */
  end(): void {
    for (const buffer of this.#taken) this.#pool.give(buffer);
    this.#taken.clear();
  }

  /** Ends a run that failed. */
  drop(): void {
    this.#encoder = undefined;
    for (const buffer of this.#taken) this.#pool.drop(buffer);
    this.#taken.clear();
  }

  take(bytes: number, what: string): GPUBuffer {
    const buffer = this.#pool.take(bytes, what);
    this.#taken.add(buffer);
    return buffer;
  }

  /** Takes a buffer back before the run ends; others than those that `take` gave are left alone. */
  give(buffer: GPUBuffer | undefined): void {
    if (buffer && this.#taken.delete(buffer)) this.#pool.give(buffer);
  }

  free(): void {
    this.kept.free();
    this.#pool.free();
  }

  /** Takes commands, which run in their order. */
  get encoder(): GPUCommandEncoder {
    if (this.#pending >= MOST_PENDING) this.flush();
    this.#pending++;
    return (this.#encoder ??= this.gpu.device.createCommandEncoder());
  }

  /** Submits what is pending. */
  flush(): void {
    if (this.#encoder) this.gpu.device.queue.submit([this.#encoder.finish()]);
    this.#encoder = undefined;
    this.#pending = 0;
  }

  /** Writes to the start of a buffer, behind what is pending. */
  write(buffer: GPUBuffer, bytes: Uint8Array): void {
    this.flush();
    this.gpu.write(buffer, bytes);
  }

  /** Copies bytes of a buffer, from `first` on, to byte `at` of another; all numbers are multiples of 4. */
  copy(from: GPUBuffer, to: GPUBuffer, at: number, bytes: number, first = 0): void {
    if (bytes) this.encoder.copyBufferToBuffer(from, first, to, at, bytes);
  }

  /** What is in the ranges behind what is pending: one submission and one wait for all. */
  read(wanted: readonly Range[]): Promise<Uint8Array<ArrayBuffer>[]> {
    const encoder = this.#encoder;
    this.#encoder = undefined;
    this.#pending = 0;
    return this.gpu.read(wanted, encoder);
  }

  /** The bytes of data in this process. */
  async here(data: Data): Promise<Uint8Array> {
    data.local ??= data.buffer ? (await this.read([{ buffer: data.buffer, bytes: data.bytes }]))[0] : new Uint8Array();
    return data.local as Uint8Array;
  }

  /** The buffer of data on the GPU. */
  there(data: Data, what: string): GPUBuffer {
    if (data.buffer) return data.buffer;
    data.buffer = this.take(data.bytes, what);
    if (data.local) this.write(data.buffer, data.local);
    return data.buffer;
  }
}
