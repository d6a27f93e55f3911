/** What runs models on WebGPU; fetched when a session asks for it. */
export { Gpu } from "./gpu/device.js";
export { GpuProgram, Pipelines, readersOf } from "./gpu/program.js";
export { parseSection } from "./gpu/section.js";
