/** A model on the GPU. */
import type { Core } from "../core.js";
import type { Type } from "../dtypes.js";
import type { StepTime } from "../types.js";
import { Commands, Data, type Value } from "./data.js";
import type { Gpu } from "./device.js";
import { Part, type Shared } from "./part.js";
import type { Pipelines } from "./pipelines.js";
import type { Plan } from "./section.js";
import type { Program } from "../program.js";
import type { Tables } from "../tables.js";

/** A tensor that stays on the GPU. Whoever holds it gives it back to its `owner`. */
export interface GpuTensor {
  readonly owner: GpuProgram;
  readonly buffer: GPUBuffer;
  readonly bytes: number;
  readonly type: Type;
  readonly dims: readonly number[];
}

/** An output: its bytes, or the buffer that it stays in. */
export type Result =
  GpuTensor | { readonly data: Uint8Array<ArrayBuffer>; readonly type: Type; readonly dims: readonly number[] };

export interface GpuFeed {
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
  ) {
    this.#weights = weights;
    this.#commands = new Commands(gpu);
    const shared: Shared = { core, commands: this.#commands, pipelines, weights };
    const made = (own: Program, rows: Tables, { bodies, ...rest }: Plan, outermost = false): Part => {
      const inner = bodies.map((body, i) => made(programs(own, i, body.at, body.words), body.tables, body.plan));
      return new Part(shared, own, rows, { bodies, ...rest }, inner, outermost);
    };
    this.#part = made(program, tables, plan, true);
  }

  /** Runs; outputs named in `keep` stay on the GPU. */
  async run(feeds: readonly GpuFeed[], wanted: readonly number[], keep: ReadonlySet<number>): Promise<Result[]> {
    const { gpu } = this;
    const kept = new Map<number, GPUBuffer>();
    const allocated: Promise<void>[] = [];
    const take = (output: number, bytes: number): GPUBuffer | undefined => {
      if (!keep.has(output)) return undefined;
      const made = gpu.guarded("outputs that stay on the GPU", () => {
        kept.set(output, this.#commands.kept.take(bytes, `output ${output}`));
      });
      // Waited for at the end: what lacks memory is known by then.
      made.catch(() => {});
      allocated.push(made);
      return kept.get(output);
    };
    return this.#running(async () => {
      try {
        const values = await this.#part.run(feeds.map(valueOf), undefined, take);
        const reads = wanted.filter((i) => !keep.has(i) && !values[i]!.data.local);
        const data = await this.#commands.read(
          reads.map((i) => ({ buffer: values[i]!.data.buffer as GPUBuffer, bytes: values[i]!.data.bytes })),
        );
        const results = wanted.map((i): Result => {
          const { type, dims, data: own } = values[i] as Value;
          if (!keep.has(i))
            return { data: data[reads.indexOf(i)] ?? (own.local as Uint8Array<ArrayBuffer>), type, dims };
          const buffer = kept.get(i) ?? (take(i, own.bytes) as GPUBuffer);
          if (own.local) gpu.write(buffer, own.local);
          return { owner: this, buffer, bytes: own.bytes, type, dims };
        });
        gpu.check("running the model");
        await Promise.all(allocated);
        return results;
      } catch (error) {
        for (const buffer of kept.values()) this.#commands.kept.drop(buffer);
        throw error;
      }
    });
  }

  /** Runs step by step, each between two timestamps, and returns what each took. */
  async profile(feeds: readonly GpuFeed[]): Promise<StepTime[]> {
    const times: StepTime[] = [];
    await this.#running(async () => {
      await this.#part.run(feeds.map(valueOf), times, () => undefined);
      this.#commands.flush();
      this.gpu.check("running the model");
    });
    return times;
  }

  async #running<T>(run: () => Promise<T>): Promise<T> {
    this.gpu.check("the GPU");
    this.#commands.begin(this.#part.program.limits.maxOperations);
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
  dispose({ buffer }: GpuTensor): void {
    this.#commands.kept.give(buffer);
  }

  free(): void {
    this.#part.free();
    this.#commands.free();
    for (const buffer of this.#weights.values()) buffer.destroy();
  }
}

function valueOf({ data, bytes, type, dims }: GpuFeed): Value {
  const own = data instanceof Uint8Array ? new Data(bytes, data, undefined) : new Data(bytes, undefined, data);
  return { data: own, type, dims };
}
