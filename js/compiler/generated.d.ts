/** What `python -m pyonnx_wasm.javascript` writes. */
declare module "compiler-modules" {
  /** What each of the compiler's modules runs, given what it is to define. */
  export const modules: Record<string, (module: Record<string, unknown>) => void>;
  /** Of tables of the registry: the keys that each module writes. */
  export const registered: Record<string, Record<string, (string | string[])[]>>;
  /** Sources of shaders, by file. */
  export const shaders: Record<string, string>;
}
