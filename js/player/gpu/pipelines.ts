/** The pipelines of a model, and which storages its steps touch on either side. */
import { WEIGHT, type Tables } from "../tables.js";
import type { Gpu, Pipeline, PipelineSpec } from "./device.js";
import { casesOf, plansOf, variantOf, type GpuCase, type Plan, type Section } from "./section.js";

/** Storages that steps of each side touch; weights that stages read are the GPU's. */
export interface Readers {
  readonly gpu: ReadonlySet<number>;
  readonly core: ReadonlySet<number>;
}

export function readersOf(tables: Tables, plan: Plan): Readers {
  const gpu = new Set<number>();
  const core = new Set<number>();
  for (const [i, buffers] of tables.steps.entries())
    for (const b of buffers) {
      const { storage } = tables.buffers[b]!;
      if (!tables.controls.has(i)) (casesOf(plan, i) ? gpu : core).add(storage);
      else if (tables.storages[storage]!.kind === WEIGHT) gpu.add(storage);
    }
  for (const { size, from } of tables.stages.flatMap(({ reads }) => reads)) {
    const storage = size ? undefined : tables.buffers[from]!.storage;
    if (storage !== undefined && tables.storages[storage]!.kind === WEIGHT) gpu.add(storage);
  }
  return { gpu, core };
}

/** Weights that steps of each side read, those of the Programs within too. */
export function weightReaders(tables: Tables, plan: Plan): { gpu: Set<number>; core: Set<number> } {
  const found = { gpu: new Set<number>(), core: new Set<number>() };
  const readers = readersOf(tables, plan);
  for (const side of ["gpu", "core"] as const) {
    for (const s of readers[side]) {
      const { kind, index } = tables.storages[s]!;
      if (kind === WEIGHT) found[side].add(index);
    }
    for (const body of plan.bodies)
      for (const index of weightReaders(body.tables, body.plan)[side]) found[side].add(index);
  }
  return found;
}

/** The pipelines of a section, compiled at the same time. */
export class Pipelines {
  readonly #specs: readonly PipelineSpec[];
  readonly #made: (Promise<Pipeline> | undefined)[];
  /** Resolves when a model can be used; rejects with what does not compile. */
  readonly ready: Promise<unknown>;

  /** Throws what this GPU lacks for any of them. */
  constructor(
    private readonly gpu: Gpu,
    { modules, pipelines, plan }: Section,
  ) {
    this.#specs = pipelines.map((row) => {
      const { kernel, outputs, bindings } = row;
      gpu.demandBindings(bindings, kernel);
      return { kernel, outputs, bindings, code: modules[variantOf(row, gpu.speaks).module] as string };
    });
    this.#made = pipelines.map(() => undefined);
    // A processor that plays GPU has no time for shaders that other sizes would use.
    const sure = plansOf(plan).flatMap((each) =>
      [...each.steps.keys()].flatMap((i) => casesOf(each, i)?.slice(0, 1).filter(isSure) ?? []),
    );
    const wanted = gpu.info.isFallbackAdapter ? sure.map(({ pipeline }) => pipeline) : [...pipelines.keys()];
    this.ready = Promise.all(wanted.map((i) => this.at(i)));
    this.ready.catch(() => {});
  }

  at(index: number): Promise<Pipeline> {
    return (this.#made[index] ??= this.gpu.pipeline(this.#specs[index] as PipelineSpec));
  }
}

function isSure({ guard, busy }: GpuCase): boolean {
  return guard < 0 && !busy;
}
