/** What goes into Programs on the GPU and comes out of them, and the commands that work on it. */
import type { Type } from "../dtypes.js";
import type { Gpu } from "./device.js";
import { pause } from "../pause.js";
import { Kept } from "./memory.js";

const MOST_PENDING = 256; // passes in one submission
/** Milliseconds of a run until it waits for the GPU and looks whether it was given up; as operations they depend on the GPU. */
const SLICE_MS = 100;
const [FIRST_SLICE, MOST_SLICE] = [2 ** 30, 2 ** 50];
/** What a dispatch takes in time besides its operations. */
export const DISPATCH = 2 ** 16;

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
  #signal: AbortSignal | undefined;
  #ahead = 0;
  /** When the first command came that is ahead; undefined: none is. */
  #since: number | undefined;
  /** Operations that take about SLICE_MS. */
  slice = FIRST_SLICE;

  constructor(readonly gpu: Gpu) {
    this.kept = new Kept(gpu);
    this.#pool = new Kept(gpu, true);
  }

  /** Begins a run, which ends early where the signal says so. */
  begin(operations: number, signal?: AbortSignal): void {
    this.kept.begin();
    this.#pool.begin();
    this.left = operations;
    this.#signal = signal;
    this.#waited();
  }

  /** Counts what commands take; where that is much they are waited for. Throws the signal's reason where the run was given up. */
  pace(operations: number): Promise<void> | undefined {
    this.#ahead += operations;
    const since = (this.#since ??= performance.now());
    return this.#ahead < this.slice && performance.now() - since < SLICE_MS ? undefined : this.#wait(since);
  }

  /** Nothing is ahead: a run waits for its commands, not for the shaders that it has compiled before them. */
  #waited(): void {
    this.#ahead = 0;
    this.#since = undefined;
  }

  async #wait(since: number): Promise<void> {
    this.flush();
    await this.gpu.device.queue.onSubmittedWorkDone();
    const taken = performance.now() - since;
    if (taken < SLICE_MS / 2) this.slice = Math.min(4 * this.slice, MOST_SLICE);
    else if (taken > 2 * SLICE_MS) this.slice /= 2;
    await pause(this.#signal);
    this.#waited();
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
