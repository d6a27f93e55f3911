/** The GPU section of a compiled model, checked. PROGRAM.md §7 specifies it. */
import type { Tables } from "../tables.js";

export interface GpuCase {
  readonly pipeline: number;
  readonly guard: number;
  /** Fits only if its workgroups keep the adapter busy. */
  readonly busy?: boolean;
  readonly grid: readonly number[];
  readonly uniforms: readonly number[];
}

/** Of a branch or a loop: which of what it takes is in the core's memory. */
export interface Walked {
  readonly on_core: readonly number[];
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
  | { readonly on: "upload" | "download"; readonly storages: readonly number[] }
  | { readonly on: "control"; readonly step: number }
  /** `onCore` are the registers that read the core's memory. */
  | { readonly on: "stage"; readonly stage: number; readonly onCore: readonly number[] };

/** How a GPU runs the steps of one Program. */
export interface Plan {
  /** Null: on the core. */
  readonly steps: readonly (readonly GpuCase[] | Walked | null)[];
  readonly schedule: readonly Action[];
  /** Outputs that end up in the core's memory. */
  readonly onCore: ReadonlySet<number>;
  /** Of the Programs within, with their tables. */
  readonly bodies: readonly Body[];
  /** A loop over this Program need not look at the condition that it gives. */
  readonly goesOn: boolean;
}

export interface Body {
  readonly plan: Plan;
  readonly tables: Tables;
  /** The first word and the number of words, from the begin of the outermost Program. */
  readonly at: number;
  readonly words: number;
}

export interface Section {
  readonly modules: readonly string[];
  readonly pipelines: readonly PipelineRow[];
  readonly plan: Plan;
}

interface PlanJson {
  steps: (GpuCase[] | Walked | null)[];
  schedule: [string, ...unknown[]][];
  on_core: number[];
  bodies?: PlanJson[];
  goes_on?: boolean;
}

function demand(holds: boolean, what: string): void {
  if (!holds) throw new Error(`the GPU section is damaged: ${what}`);
}

function inside(n: unknown, end: number): boolean {
  return Number.isInteger(n) && (n as number) >= 0 && (n as number) < end;
}

/**
 * Parses a section against its Program, which the core has verified; throws an error naming what is wrong.
 * `inner` reads the tables of a Program within.
 */
export function parseSection(bytes: Uint8Array, tables: Tables, inner: (at: number, words: number) => Tables): Section {
  const json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as PlanJson & {
    modules: unknown[];
    pipelines: PipelineRow[];
  };
  for (const key of ["modules", "pipelines"] as const) demand(Array.isArray(json[key]), `"${key}" must be a list`);
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
  const plan = parsePlan(json, tables, json.pipelines, 0, inner);
  return { modules: json.modules as string[], pipelines: json.pipelines, plan };
}

function parsePlan(
  json: PlanJson,
  tables: Tables,
  pipelines: readonly PipelineRow[],
  base: number,
  inner: (at: number, words: number) => Tables,
): Plan {
  for (const key of ["steps", "schedule", "on_core"] as const)
    demand(Array.isArray(json[key]), `"${key}" must be a list`);
  const register = (r: unknown): boolean =>
    Number.isInteger(r) && (r as number) >= -tables.registers && (r as number) < tables.registers;
  demand(json.steps.length === tables.steps.length, `${json.steps.length} steps for ${tables.steps.length}`);
  for (const [i, found] of json.steps.entries()) {
    const walked = found !== null && !Array.isArray(found);
    demand(walked === tables.controls.has(i), `step ${i}: how it runs`);
    if (walked) demand(Array.isArray(found.on_core), `step ${i}: what it takes`);
    else
      for (const { pipeline, guard, grid, uniforms } of found ?? []) {
        demand(inside(pipeline, pipelines.length), `step ${i}: no such pipeline`);
        demand(pipelines[pipeline]?.bindings === tables.steps[i]?.length, `step ${i}: its buffers`);
        demand(grid.length === 3 && [...grid, ...uniforms, guard].every(register), `step ${i}: no such register`);
      }
  }
  const within = json.bodies ?? [];
  demand(within.length === tables.programs.length, `${within.length} plans for ${tables.programs.length} Programs`);
  const bodies = tables.programs.map(({ at, words }, i): Body => {
    const own = inner(base + at, words);
    return { plan: parsePlan(within[i]!, own, pipelines, base + at, inner), tables: own, at: base + at, words };
  });
  const goesOn = json.goes_on === true;
  return { steps: json.steps, schedule: scheduleOf(json, tables), onCore: new Set(json.on_core), bodies, goesOn };
}

function scheduleOf({ schedule, steps }: PlanJson, tables: Tables): Action[] {
  let [at, stage] = [0, 0];
  const end = (): number => tables.stages[stage]!.last;
  const actions = schedule.map(([on, a, b]): Action => {
    switch (on) {
      case "gpu":
      case "core":
        demand(a === at && inside((b as number) - 1, end()) && (b as number) > at, `step ${at} is left out`);
        for (let i = at; i < (b as number); i++)
          demand(on === "core" ? steps[i] === null : Array.isArray(steps[i]), `step ${i}`);
        at = b as number;
        return { on, first: a as number, last: at };
      case "control":
        demand(a === at && at < end() && tables.controls.has(at), `step ${at} is left out`);
        return { on, step: at++ };
      case "stage":
        demand(at === end() && a === stage + 1 && inside(a, tables.stages.length), `stage ${String(a)}`);
        demand(Array.isArray(b), `stage ${String(a)}: what it reads`);
        stage++;
        return { on, stage, onCore: b as number[] };
      default:
        demand(on === "upload" || on === "download", `"${on}" in the schedule`);
        demand(Array.isArray(a) && a.every((s) => inside(s, tables.storages.length)), "no such storage");
        return { on: on as "upload" | "download", storages: a as number[] };
    }
  });
  demand(at === tables.steps.length && stage + 1 === tables.stages.length, "the schedule ends early");
  return actions;
}

/** The cases of a step that runs on the GPU. */
export function casesOf(plan: Plan, step: number): readonly GpuCase[] | undefined {
  const found = plan.steps[step];
  return Array.isArray(found) ? (found as readonly GpuCase[]) : undefined;
}

/** A plan and those within. */
export function plansOf(plan: Plan): Plan[] {
  return [plan, ...plan.bodies.flatMap((body) => plansOf(body.plan))];
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
