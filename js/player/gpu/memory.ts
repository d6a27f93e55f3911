/** A Program's buffers on the GPU: grown to what its sizes ask, reused for all of them. */
import { GpuError, type Gpu } from "./device.js";

const IDLE_RUNS = 2;

interface Room {
  readonly buffer: GPUBuffer;
  readonly bytes: number;
}

/** What some sizes ask of one buffer. */
export interface Need {
  readonly bytes: number;
  readonly what: string;
}

/** One buffer per place, for inputs, outputs and the arena; other sizes use the same ones, as runs are served one by one. */
export class Rooms {
  readonly #rooms: (Room | undefined)[] = [];
  /** Rises when a buffer is replaced. */
  version = 0;

  constructor(readonly gpu: Gpu) {}

  /** Makes every place as large as is needed; when memory runs out, places that could not grow are left empty. */
  fit(needs: ReadonlyMap<number, Need>): Promise<void> | undefined {
    const small = this.#small(needs);
    if (small.length === 0) return undefined;
    this.version++;
    const old = small.map((i) => this.#rooms[i]?.bytes ?? 0);
    this.#drop(small);
    return this.gpu
      .guarded("memory for these sizes", () => {
        for (const [k, i] of small.entries()) {
          const { bytes, what } = needs.get(i)!;
          // Sizes that grew once, as a decoder's past, will grow again.
          const ahead = Math.max(bytes, Math.min(Math.ceil(old[k]! * 1.5), this.gpu.maxBytes));
          this.#rooms[i] = { buffer: this.gpu.buffer(ahead, what), bytes: ahead };
        }
      })
      .catch((error: unknown) => {
        this.#drop(small);
        throw error;
      });
  }

  /** Whether any place is too small. */
  wants(needs: ReadonlyMap<number, Need>): boolean {
    return this.#small(needs).length > 0;
  }

  #small(needs: ReadonlyMap<number, Need>): number[] {
    return [...needs].filter(([i, { bytes }]) => (this.#rooms[i]?.bytes ?? -1) < bytes).map(([i]) => i);
  }

  at(place: number): GPUBuffer | undefined {
    return this.#rooms[place]?.buffer;
  }

  #drop(places: Iterable<number>): void {
    for (const i of places) {
      this.#rooms[i]?.buffer.destroy();
      this.#rooms[i] = undefined;
    }
  }

  free(): void {
    this.#drop(this.#rooms.keys());
  }
}

/**
 * Buffers of outputs that stay on the GPU. Those that were disposed serve the next runs first come, first served, so that a
 * decoder whose past goes around meets the same buffers, and bind groups, again.
 */
export class Kept {
  #idle: { buffer: GPUBuffer; since: number }[] = [];
  readonly #live = new Set<GPUBuffer>();
  #run = 0;
  #freed = false;

  /** A `patient` one waits for the next runs even when nothing is out any more. */
  constructor(
    readonly gpu: Gpu,
    readonly patient = false,
  ) {}

  /** Begins a run: buffers that the last runs did not want are given back to the GPU. */
  begin(): void {
    this.#run++;
    this.#idle = this.#idle.filter(({ buffer, since }) => {
      if (since + IDLE_RUNS >= this.#run) return true;
      buffer.destroy();
      return false;
    });
  }

  take(bytes: number, what: string): GPUBuffer {
    const size = Math.max(bytes, Math.min(roomFor(bytes), this.gpu.maxBytes));
    const at = this.#idle.findIndex(({ buffer }) => buffer.size === size);
    const buffer = at >= 0 ? this.#idle.splice(at, 1)[0]!.buffer : this.gpu.buffer(size, what);
    this.#live.add(buffer);
    return buffer;
  }

  give(buffer: GPUBuffer): void {
    this.#live.delete(buffer);
    this.#idle.push({ buffer, since: this.#run });
    if ((this.#live.size === 0 && !this.patient) || this.#freed) this.#empty();
  }

  /** Destroys a buffer whose run failed. */
  drop(buffer: GPUBuffer): void {
    this.#live.delete(buffer);
    buffer.destroy();
  }

  #empty(): void {
    for (const { buffer } of this.#idle.splice(0)) buffer.destroy();
  }

  /** Gives idle buffers back; the others when their tensors are disposed. */
  free(): void {
    this.#freed = true;
    this.#empty();
  }
}

/** Sizes in steps of an eighth, so that what grows slowly finds buffers that fit. */
function roomFor(bytes: number): number {
  const step = Math.max(2 ** (Math.floor(Math.log2(Math.max(bytes, 1))) - 3), 16);
  return Math.ceil(Math.max(bytes, 1) / step) * step;
}

/** Bind groups of each step, by the buffers in them. */
export class Groups {
  readonly #ids = new WeakMap<GPUBuffer, number>();
  readonly #groups: Map<string, GPUBindGroup>[] = [];
  #next = 1;

  constructor(readonly most: number) {}

  get(step: number, layout: string, buffers: readonly GPUBuffer[], make: () => GPUBindGroup): GPUBindGroup {
    const key = `${layout}:${buffers.map((b) => this.#id(b)).join()}`;
    const groups = (this.#groups[step] ??= new Map());
    const group = groups.get(key) ?? make();
    groups.delete(key);
    groups.set(key, group);
    if (groups.size > this.most) groups.delete(groups.keys().next().value as string);
    return group;
  }

  #id(buffer: GPUBuffer): number {
    let id = this.#ids.get(buffer);
    if (id === undefined) this.#ids.set(buffer, (id = this.#next++));
    return id;
  }
}

/** 32-bit integers, and float32 where the register holds the bits of an f64. */
export function uniformBlock(
  kernel: string,
  head: readonly number[],
  numbers: readonly number[],
  registers: BigInt64Array,
): Uint32Array {
  const block = new Uint32Array(blockWords(head.length, numbers.length));
  const floats = new Float32Array(block.buffer);
  const doubles = new Float64Array(registers.buffer);
  const put = (i: number, value: number): void => {
    if (value < -(2 ** 31) || value >= 2 ** 32)
      throw new GpuError(`kernel ${kernel}: the size ${value} does not fit in 32 bits; run this shape on wasm`);
    block[i] = value;
  };
  head.forEach((value, i) => put(i, value));
  numbers.forEach((r, i) => {
    if (r >= 0) put(head.length + i, Number(registers[r]));
    else floats[head.length + i] = doubles[~r] as number;
  });
  return block;
}

export function blockWords(head: number, numbers: number): number {
  return Math.ceil((head + numbers) / 4) * 4;
}
