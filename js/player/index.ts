/** pyonnx-wasm: ONNX models in web pages, Node.js, Deno and Bun, with onnxruntime-web's surface. */
export { registerOperator, type OperatorFunction, type OperatorOutput } from "./callbacks.js";
export { env, type Env, type PyodideEnv, type WasmEnv, type WebgpuEnv } from "./env.js";
export {
  InferenceSession,
  registerBackend,
  type Feed,
  type Feeds,
  type Fetches,
  type MapFeed,
  type MapResult,
  type Result,
  type Results,
  type RunOptions,
  type ValueMetadata,
} from "./session.js";
export {
  Tensor,
  type TensorConstructor,
  type TensorData,
  type TensorLocation,
  type TensorType,
  type TypedTensor,
} from "./tensor.js";
export { TRACE, TRACE_EVENT_BEGIN, TRACE_EVENT_END, TRACE_FUNC_BEGIN, TRACE_FUNC_END } from "./tracing.js";
export type {
  Backend,
  ConversionUtils,
  CpuPinnedConstructorParameters,
  ExternalDataFileDescription,
  ExternalDataFileType,
  FileBlob,
  FileData,
  FileType,
  FileUrlOrPath,
  GpuBufferConstructorParameters,
  ImageFormat,
  ImageTensorLayout,
  InferenceSessionFactory,
  InferenceSessionHandler,
  MLTensorConstructorParameters,
  NonTensorType,
  OnnxModelOptions,
  OnnxValue,
  OnnxValueDataLocation,
  OptionResizedDimensions,
  OptionsDimensions,
  OptionsFormat,
  OptionsNormalizationParameters,
  OptionsTensorDataType,
  OptionsTensorFormat,
  OptionsTensorLayout,
  SessionHandler,
  TensorFactory,
  TensorFromGpuBufferOptions,
  TensorFromImageBitmapOptions,
  TensorFromImageDataOptions,
  TensorFromImageElementOptions,
  TensorFromMLTensorOptions,
  TensorFromTextureOptions,
  TensorFromUrlOptions,
  TensorToDataUrlOptions,
  TensorToImageDataOptions,
  TextureConstructorParameters,
} from "onnxruntime-common";
export type { Type } from "./dtypes.js";
export { traceEvents, type TraceEvent } from "./trace.js";
export type { AdapterInfo, CompileProgress, ModelMetadata, Progress, SessionOptions, StepTime } from "./types.js";
export type { ModelSource } from "./source.js";

import { env } from "./env.js";
import { InferenceSession } from "./session.js";
import { Tensor } from "./tensor.js";
export default { env, InferenceSession, Tensor };
