/** The GPU section of a compiled model, checked. PROGRAM.md §7 specifies it. */
import type { Tables } from "../program.js";

export interface GpuCase {
  readonly pipeline: number;
  readonly guard: number;
  /** Fits only if its workgroups keep the adapter busy. */
  readonly busy?: boolean;
  readonly grid: readonly number[];
  readonly uniforms: readonly number[];
}

export interface Variant {
  readonly needs: readonly string[];
  readonly module: number;
}

export interface PipelineRow {
  readonly kernel: string;
  readonly outputs: number;
  readonly bindings: number;
  readonly variants: readonly Variant[];
}

export type Action =
  | { readonly on: "gpu"; readonly first: number; readonly last: number }
  | { readonly on: "core"; readonly first: number; readonly last: number }
  | { readonly on: "upload" | "download"; readonly storages: readonly number[] };

export interface Section {
  readonly modules: readonly string[];
  readonly pipelines: readonly PipelineRow[];
  readonly steps: readonly (readonly GpuCase[] | null)[];
  readonly schedule: readonly Action[];
  /** Outputs that end up in the core's memory. */
  readonly onCore: ReadonlySet<number>;
}

/** Parses a section against its Program; throws an error naming what is wrong. */
export function parseSection(bytes: Uint8Array, tables: Tables): Section {
  const json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as {
    modules: unknown[];
    pipelines: PipelineRow[];
    steps: (GpuCase[] | null)[];
    schedule: [string, ...unknown[]][];
    on_core: number[];
  };
  const demand = (holds: boolean, what: string): void => {
    if (!holds) throw new Error(`the GPU section is damaged: ${what}`);
  };
  for (const key of ["modules", "pipelines", "steps", "schedule", "on_core"] as const)
    demand(Array.isArray(json[key]), `"${key}" must be a list`);
  const inside = (n: unknown, end: number): boolean => Number.isInteger(n) && (n as number) >= 0 && (n as number) < end;
  const register = (r: unknown): boolean =>
    Number.isInteger(r) && (r as number) >= -tables.registers && (r as number) < tables.registers;

  demand(
    json.modules.every((m) => typeof m === "string"),
    "a module is no text",
  );
  for (const { kernel, outputs, bindings, variants } of json.pipelines) {
    demand(inside(outputs - 1, bindings) && bindings <= 16, `pipeline "${kernel}": its bindings`);
    demand(
      variants.every(({ module, needs }) => inside(module, json.modules.length) && Array.isArray(needs)),
      `pipeline "${kernel}": no such module`,
    );
  }
  demand(json.steps.length === tables.steps.length, `${json.steps.length} steps for ${tables.steps.length}`);
  for (const [i, cases] of json.steps.entries())
    for (const { pipeline, guard, grid, uniforms } of cases ?? []) {
      demand(inside(pipeline, json.pipelines.length), `step ${i}: no such pipeline`);
      demand(json.pipelines[pipeline]?.bindings === tables.steps[i]?.length, `step ${i}: its buffers`);
      demand(grid.length === 3 && [...grid, ...uniforms, guard].every(register), `step ${i}: no such register`);
    }
  let at = 0;
  const schedule = json.schedule.map(([on, a, b]): Action => {
    if (on === "gpu" || on === "core") {
      demand(
        a === at && inside((b as number) - 1, tables.steps.length) && (b as number) > at,
        `step ${at} is left out`,
      );
      for (let i = at; i < (b as number); i++) demand((json.steps[i] === null) === (on === "core"), `step ${i}`);
      at = b as number;
      return { on, first: a as number, last: at };
    }
    demand(on === "upload" || on === "download", `"${on}" in the schedule`);
    demand(Array.isArray(a) && a.every((s) => inside(s, tables.storages.length)), "no such storage");
    return { on: on as "upload" | "download", storages: a as number[] };
  });
  demand(at === tables.steps.length, "the schedule ends early");
  return {
    modules: json.modules as string[],
    pipelines: json.pipelines,
    steps: json.steps,
    schedule,
    onCore: new Set(json.on_core),
  };
}

/** The first variant whose needs the device has. */
export function variantOf({ kernel, variants }: PipelineRow, features: ReadonlySet<string>): Variant {
  const found = variants.find(({ needs }) => needs.every((n) => features.has(n)));
  if (!found)
    throw new Error(
      `kernel ${kernel}: this GPU has none of ${variants.map(({ needs }) => needs.join("+")).join(", ")}`,
    );
  return found;
}
