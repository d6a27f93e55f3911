/** A model on the GPU. */
import type { Core } from "../core.js";
import { bytesOf, elements, type Type } from "../dtypes.js";
import type { Program } from "../program.js";
import { Held, Keeper } from "../state.js";
import type { Tables } from "../tables.js";
import type { StepTime } from "../types.js";
import { Commands, Data, type Range, type Value } from "./data.js";
import type { Gpu } from "./device.js";
import { Part, type Shared } from "./part.js";
import type { Pipelines } from "./pipelines.js";
import type { Plan } from "./section.js";
import { GpuRoom, joined } from "./state.js";

/** A tensor that stays on the GPU. Whoever holds it gives it back to its `owner`. */
export interface GpuTensor {
  readonly owner: GpuProgram;
  readonly buffer: GPUBuffer;
  readonly bytes: number;
  readonly type: Type;
  readonly dims: readonly number[];
  /** Where it is the rows of a room. */
  readonly held?: Held<GpuRoom> | undefined;
}

/** An output: its bytes, or the buffer that it stays in. */
export type Result =
  GpuTensor | { readonly data: Uint8Array<ArrayBuffer>; readonly type: Type; readonly dims: readonly number[] };

export interface GpuFeed {
  readonly held?: Held<GpuRoom> | undefined;
  readonly data: Uint8Array | GPUBuffer;
  readonly bytes: number;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** Makes the Program of a number within another, whose words begin at `at` within the outermost one. */
export type Programs = (outer: Program, index: number, at: number, words: number) => Program;

export class GpuProgram {
  readonly #commands: Commands;
  readonly #part: Part;
  readonly #weights: ReadonlyMap<number, GPUBuffer>;
  readonly #keeper: Keeper<GpuRoom>;
  /** Of the run under way. */
  readonly #allocated: Promise<void>[] = [];
  /** In the place of what is held, which nothing reads. */
  readonly #nothing: GPUBuffer;

  /** `weights` are the buffers of the weights that GPU steps read, by index. */
  constructor(
    readonly gpu: Gpu,
    core: Core,
    program: Program,
    tables: Tables,
    plan: Plan,
    pipelines: Pipelines,
    weights: ReadonlyMap<number, GPUBuffer>,
    programs: Programs,
    answer: Shared["answer"],
  ) {
    this.#weights = weights;
    this.#commands = new Commands(gpu);
    this.#keeper = new Keeper(program, (...room) => this.#guarded(() => new GpuRoom(this.#commands, ...room)));
    this.#nothing = gpu.buffer(16, "nothing");
    const shared: Shared = { core, commands: this.#commands, pipelines, weights, answer };
    const made = (own: Program, rows: Tables, { bodies, ...rest }: Plan, outermost = false): Part => {
      const inner = bodies.map((body, i) => made(programs(own, i, body.at, body.words), body.tables, body.plan));
      return new Part(shared, own, rows, { bodies, ...rest }, inner, outermost);
    };
    this.#part = made(program, tables, plan, true);
  }

  /** Runs; outputs named in `keep` stay on the GPU. */
  async run(
    feeds: readonly GpuFeed[],
    wanted: readonly number[],
    keep: ReadonlySet<number>,
    signal?: AbortSignal,
  ): Promise<Result[]> {
    const { gpu } = this;
    const kept = new Map<number, GPUBuffer>();
    const take = (output: number, bytes: number): GPUBuffer | undefined => {
      if (!keep.has(output)) return undefined;
      const buffer = this.#guarded(() => this.#commands.kept.take(bytes, `output ${output}`));
      kept.set(output, buffer);
      return buffer;
    };
    this.#allocated.length = 0;
    return this.#running(async () => {
      let rooms: ReadonlyMap<number, GpuRoom> = new Map();
      try {
        const held = new Map(
          feeds.flatMap(({ held }, i) => (held && this.#keeper.takes(i, held.room) ? [[i, held]] : [])),
        );
        const given = feeds.map((feed, i) => this.#valueOf(feed, held.has(i)));
        const sizes = held.size || keep.size ? await this.#part.sizes(given) : () => [];
        const found = this.#keeper.rooms(held, keep, sizes);
        rooms = found?.byOutput ?? rooms;
        const into = (i: number, bytes: number): GPUBuffer | undefined => rooms.get(i)?.buffer ?? take(i, bytes);
        const values = await this.#part.run(given, undefined, into, found?.told);
        const rows = (i: number): number => values[i]!.dims[rooms.get(i)!.axis]!;
        const reads = wanted.map((i): Range[] => {
          if (keep.has(i) || values[i]!.data.local) return [];
          const { buffer, bytes } = values[i]!.data;
          return rooms.get(i)?.ranges(rows(i)) ?? [{ buffer: buffer!, bytes }];
        });
        const data = await this.#commands.read(reads.flat());
        const results = wanted.map((i, k): Result => {
          const { type, dims, data: own } = values[i]!;
          const pieces = data.splice(0, reads[k]!.length);
          const room = rooms.get(i);
          if (!keep.has(i))
            return { data: own.local ?? (pieces.length === 1 ? pieces[0]! : joined(pieces)), type, dims } as Result;
          const bytes = bytesOf(type, elements(dims));
          if (room)
            return { owner: this, buffer: room.buffer, bytes, type, dims, held: new Held(room, (room.rows = rows(i))) };
          const buffer = kept.get(i) ?? take(i, own.bytes)!;
          if (own.local) gpu.write(buffer, own.local);
          return { owner: this, buffer, bytes: own.bytes, type, dims };
        });
        gpu.check("running the model");
        await Promise.all(this.#allocated);
        return results;
      } catch (error) {
        for (const buffer of kept.values()) this.#commands.kept.drop(buffer);
        throw error;
      } finally {
        for (const room of rooms.values()) room.drop();
      }
    }, signal);
  }

  /** Makes what stays on the GPU; what lacks memory is known at the end of the run. */
  #guarded<T>(make: () => T): T {
    let made: T | undefined;
    const done = this.gpu.guarded("outputs that stay on the GPU", () => {
      made = make();
    });
    done.catch(() => {});
    this.#allocated.push(done);
    return made!;
  }

  /** The bytes of a tensor. */
  async read({ buffer, bytes, held }: GpuTensor): Promise<Uint8Array<ArrayBuffer>> {
    return joined(await this.gpu.read(held?.room.ranges(held.rows) ?? [{ buffer, bytes }]));
  }

  /** Runs step by step, each between two timestamps, and returns what each took. */
  async profile(feeds: readonly GpuFeed[]): Promise<StepTime[]> {
    const times: StepTime[] = [];
    await this.#running(async () => {
      const given = feeds.map((feed) => this.#valueOf(feed, false));
      await this.#part.run(given, times, () => undefined);
      this.#commands.flush();
      this.gpu.check("running the model");
    });
    return times;
  }

  async #running<T>(run: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    this.gpu.check("the GPU");
    this.#commands.begin(this.#part.program.limits.maxOperations, signal);
    try {
      const result = await run();
      this.#commands.end();
      return result;
    } catch (error) {
      this.#commands.drop();
      throw error;
    }
  }

  /** Takes a tensor's buffer back. */
  dispose({ buffer, held }: GpuTensor): void {
    if (held) held.release();
    else this.#commands.kept.give(buffer);
  }

  #valueOf({ data, bytes, type, dims, held }: GpuFeed, stays: boolean): Value {
    if (stays) return { data: new Data(0, undefined, this.#nothing), type, dims };
    const buffer = held?.room.plain(held.rows) ?? data;
    const own = buffer instanceof Uint8Array ? new Data(bytes, buffer, undefined) : new Data(bytes, undefined, buffer);
    return { data: own, type, dims };
  }

  free(): void {
    this.#nothing.destroy();
    this.#part.free();
    this.#commands.free();
    for (const buffer of this.#weights.values()) buffer.destroy();
  }
}
