/**
 * Addresses of the player's other files. Bundlers know files by `new URL("…", import.meta.url)` and copy them; none of these
 * imports another, so that each works wherever it is put. Builds that hold the files inside replace this module.
 */
export const files = {
  /** The script of every worker: engines, their threads, the compiler. */
  get worker(): string {
    return new URL("./worker.mjs", import.meta.url).href;
  },
  get gpu(): string {
    return new URL("./gpu.mjs", import.meta.url).href;
  },
  get compile(): string {
    return new URL("./compile.mjs", import.meta.url).href;
  },
  /** The compiler that it runs first: translated from Python. */
  get compiler(): string {
    return new URL("./compiler.mjs", import.meta.url).href;
  },
  get core(): string {
    return new URL("./core.wasm", import.meta.url).href;
  },
  get relaxedCore(): string {
    return new URL("./core-relaxed.wasm", import.meta.url).href;
  },
  /** The Python package, which compiles. */
  get wheel(): string {
    return new URL(WHEEL, import.meta.url).href;
  },
};

declare const WHEEL: string;
