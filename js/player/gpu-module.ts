/** The part of the player that only models on WebGPU need, loaded when one does. */
import type { Gpu } from "./gpu/device.js";
import type { Pipelines } from "./gpu/pipelines.js";
import type { Section } from "./gpu/section.js";
import type { Tables } from "./tables.js";

type GpuModule = typeof import("./gpu.mjs");

let load = (): Promise<GpuModule> => import("./gpu.mjs");

export function loadGpu(): Promise<GpuModule> {
  return load();
}

/** In a worker, which bundlers do not look into: where the page's bundler put that part. */
export function gpuIsAt(address: string): void {
  load = () => import(/* webpackIgnore: true */ /* @vite-ignore */ address) as Promise<GpuModule>;
}

/** What is known of a model's part for GPUs before its weights arrive. */
export interface GpuPlan {
  readonly gpu: Gpu;
  readonly tables: Tables;
  readonly section: Section;
  readonly pipelines: Pipelines;
  /** Weights that steps on the GPU read. */
  readonly uses: ReadonlySet<number>;
  /** Weights that steps on the core read. */
  readonly core: ReadonlySet<number>;
  /** Weights that have to be in core memory: init or the core's steps touch them. */
  readonly inCore: ReadonlySet<number>;
}
