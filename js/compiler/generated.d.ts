/** What `python -m pyonnx_wasm.javascript` writes. */
declare module "compiler-modules" {
  /** What each of the compiler's modules runs, given what it is to define. */
  export const modules: Record<string, (module: Record<string, unknown>) => void>;
  /** Sources of shaders, by file. */
  export const shaders: Record<string, string>;
}
