/** What runs models on WebGPU; fetched when a session asks for it. */
export { Gpu } from "./gpu/device.js";
export { Pipelines, weightReaders } from "./gpu/pipelines.js";
export { GpuProgram } from "./gpu/program.js";
export { parseSection } from "./gpu/section.js";
