/** What is onnxruntime's own, fetched when it is asked for: pictures as tensors, backends of a page's own. */
export { InferenceSession, registerBackend, Tensor } from "onnxruntime-common";
