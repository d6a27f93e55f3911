// Code written for onnxruntime-web: every public member of onnxruntime-common 1.30, by alias.
import * as theirs from "onnxruntime-common";
import * as ort from "onnxruntime-web";
import { env, InferenceSession, Tensor, type TypedTensor } from "onnxruntime-web";

// What is ours stands wherever theirs is asked for.
export const factory: theirs.InferenceSessionFactory = InferenceSession;
export const tensors: theirs.TensorConstructor = Tensor;
export const register: typeof theirs.registerBackend = ort.registerBackend;
export const traces: [typeof theirs.TRACE, typeof theirs.TRACE_FUNC_BEGIN, typeof theirs.TRACE_EVENT_END] = [
  ort.TRACE,
  ort.TRACE_FUNC_BEGIN,
  ort.TRACE_EVENT_END,
];

export async function sessions(bytes: Uint8Array): Promise<void> {
  const options: InferenceSession.SessionOptions = {
    executionProviders: [
      "wasm",
      { name: "webgpu", preferredLayout: "NHWC", forceCpuNodeNames: ["a"], validationMode: "basic" },
      { name: "webnn", deviceType: "gpu", powerPreference: "default" },
      { name: "cpu", useArena: true },
    ],
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
    freeDimensionOverrides: { batch: 1 },
    graphOptimizationLevel: "all",
    enableCpuMemArena: true,
    enableMemPattern: true,
    executionMode: "sequential",
    optimizedModelFilePath: "a",
    enableProfiling: true,
    profileFilePrefix: "a",
    logId: "a",
    logSeverityLevel: 2,
    logVerbosityLevel: 0,
    preferredOutputLocation: { y: "gpu-buffer" },
    enableGraphCapture: false,
    extra: { session: { set_denormal_as_zero: "1" } },
    externalData: ["weights.bin", { path: "more.bin", data: bytes }],
  };
  const session: theirs.InferenceSession = await InferenceSession.create(bytes, options);
  await InferenceSession.create("model.onnx");
  await InferenceSession.create(bytes.buffer, 0, bytes.length, options);
  const feeds: InferenceSession.FeedsType = { x: new Tensor("float32", [1], [1]) };
  const runOptions: InferenceSession.RunOptions = { logSeverityLevel: 2, logVerbosityLevel: 0, terminate: false, tag: "a", extra: {} };
  const results: InferenceSession.ReturnType = await session.run(feeds, runOptions);
  const named: InferenceSession.OnnxValueMapType = await session.run(feeds, ["y"], runOptions);
  const fetches: InferenceSession.FetchesType = { y: null };
  await session.run(feeds, fetches);
  const metadata: readonly InferenceSession.ValueMetadata[] = session.inputMetadata;
  for (const value of metadata) if (value.isTensor) console.log(value.name, value.type, value.shape);
  session.startProfiling();
  session.endProfiling();
  console.log(results["y"]?.data, named, session.inputNames, session.outputNames, session.outputMetadata);
  await session.release();
}

export async function values(image: ImageData, picture: HTMLImageElement, bitmap: ImageBitmap): Promise<void> {
  const typed: TypedTensor<"float32"> = new Tensor(Float32Array.of(1, 2), [2]);
  const data: Float32Array = typed.data;
  const wide: TypedTensor<"int64"> = new Tensor("int64", [1n, 2n], [2]);
  const words: TypedTensor<"string"> = new Tensor("string", ["a"], [1]);
  const bools = new Tensor([true, false], [2]);
  const buffer: Tensor.GpuBufferType = { size: 4, mapState: "unmapped" } as unknown as Tensor.GpuBufferType;
  const onGpu = Tensor.fromGpuBuffer(buffer, { dataType: "float32", dims: [1], download: async () => data, dispose: () => {} });
  const pinned = Tensor.fromPinnedBuffer("float32", data, [2]);
  const options: ort.TensorFromImageDataOptions = { tensorLayout: "NCHW", tensorFormat: "RGB", dataType: "float32", resizedWidth: 2 };
  const images = [
    await Tensor.fromImage(image, options),
    await Tensor.fromImage(picture, { norm: { mean: 255, bias: [1, 2, 3] } }),
    await Tensor.fromImage("a.png", { width: 1, height: 1 }),
    await Tensor.fromImage(bitmap, { resizedHeight: 1 }),
  ];
  const url: string = pinned.toDataURL({ tensorLayout: "NCHW", format: "RGB", norm: { mean: 1 } });
  const back: ImageData = pinned.toImageData({ format: "RGBA" });
  const location: Tensor.DataLocation = onGpu.location;
  const type: Tensor.Type = onGpu.type;
  const all: Tensor.DataType = await (onGpu as Tensor).getData(true);
  const elements: Tensor.ElementTypeMap["int64"] = 1n;
  const map: Tensor.DataTypeMap["bool"] = bools.data;
  console.log(wide.data[0], words.data[0], bools.size, onGpu.gpuBuffer, images, url, back, location, type, all, elements, map);
  console.log(typed.reshape([1, 2]).dims, (onGpu as Tensor).texture, (onGpu as Tensor).mlTensor);
  const value: ort.OnnxValue = typed;
  (value as Tensor).dispose();
}

export function environment(): void {
  env.logLevel = "verbose";
  env.debug = true;
  env.trace = true;
  const wasm: ort.Env.WebAssemblyFlags = { numThreads: 1, simd: "relaxed", trace: true, initTimeout: 1, proxy: true };
  const paths: ort.Env.WasmPrefixOrFilePaths = { wasm: new URL("https://example.com/a.wasm"), mjs: "a.mjs" };
  Object.assign(env.wasm, wasm, { wasmPaths: paths });
  env.wasm.wasmPaths = "/ort/";
  env.wasm.wasmBinary = new ArrayBuffer(1);
  env.webgl.contextId = "webgl2";
  env.webgpu.powerPreference = "low-power";
  env.webgpu.forceFallbackAdapter = false;
  env.webgpu.profiling = { mode: "default", ondata: (data: ort.Env.WebGpuProfilingData) => console.log(data.kernelName) };
  env.webgpu.profilingMode = "off";
  env.webgpu.validateInputContent = true;
  console.log(env.versions.common, env.versions.web, env.webgpu.adapter, env["anything"]);
  void env.webgpu.device.then((device) => (env.webgpu.device = device));
}

export function backends(backend: ort.Backend, handler: ort.InferenceSessionHandler): void {
  ort.registerBackend("mine", backend, 1);
  const feeds: ort.SessionHandler.FeedsType = {};
  void handler.run(feeds, {}, {});
}
