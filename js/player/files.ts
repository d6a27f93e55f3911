/** What Turbopack makes of such an expression is no URL but has its members; its href is a path. */
const address = (url: URL): string => new URL(url.href, globalThis.location?.href).href;

/**
 * Addresses of the player's other files. Bundlers know files by `new URL("…", import.meta.url)` and copy them; none of these
 * imports another, so that each works wherever it is put. Builds that hold the files inside replace this module.
 */
export const files = {
  /** The script of every worker: engines, their threads, the compiler. */
  get worker(): string {
    return address(new URL("./worker.mjs", import.meta.url));
  },
  get gpu(): string {
    return address(new URL("./gpu.mjs", import.meta.url));
  },
  get compile(): string {
    return address(new URL("./compile.mjs", import.meta.url));
  },
  /** The compiler that it runs first: translated from Python. */
  get compiler(): string {
    return address(new URL("./compiler.mjs", import.meta.url));
  },
  get core(): string {
    return address(new URL("./core.wasm", import.meta.url));
  },
  get relaxedCore(): string {
    return address(new URL("./core-relaxed.wasm", import.meta.url));
  },
  /** With 64-bit addresses, for models that 4 GB do not hold. */
  get core64(): string {
    return address(new URL("./core64.wasm", import.meta.url));
  },
  get relaxedCore64(): string {
    return address(new URL("./core64-relaxed.wasm", import.meta.url));
  },
  /** The Python package, which compiles. */
  get wheel(): string {
    return address(new URL(WHEEL, import.meta.url));
  },
};

declare const WHEEL: string;
