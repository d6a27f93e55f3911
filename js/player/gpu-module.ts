/** The part of the player that only models on WebGPU need, loaded when one does. */
type GpuModule = typeof import("./gpu.mjs");

let load = (): Promise<GpuModule> => import("./gpu.mjs");

export function loadGpu(): Promise<GpuModule> {
  return load();
}

/** In a worker, which bundlers do not look into: where the page's bundler put that part. */
export function gpuIsAt(address: string): void {
  load = () => import(/* webpackIgnore: true */ /* @vite-ignore */ address) as Promise<GpuModule>;
}
