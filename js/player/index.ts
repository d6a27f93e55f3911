/** pyonnx-wasm: compiled ONNX models in a web page, with onnxruntime-web's surface. */
export { env, type Env, type PyodideEnv, type WasmEnv, type WebgpuEnv } from "./env.js";
export {
  InferenceSession,
  type Feeds,
  type Fetches,
  type Results,
  type RunOptions,
  type SessionOptions,
  type ValueMetadata,
} from "./session.js";
export { Tensor, type TensorData, type TensorLocation } from "./tensor.js";
export type { CompileProgress } from "./compile.mjs";
export type { Type } from "./dtypes.js";
export type { Progress } from "./model.js";
export type { StepTime } from "./program.js";
export { traceEvents, type TraceEvent } from "./trace.js";
export type { AdapterInfo } from "./gpu/device.js";
export type { ModelSource } from "./source.js";

import { env } from "./env.js";
import { InferenceSession } from "./session.js";
import { Tensor } from "./tensor.js";
export default { env, InferenceSession, Tensor };
