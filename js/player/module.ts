/** Chooses, fetches and compiles the core; one compilation per page and address. */
import type { WasmEnv } from "./env.js";
import { messageOf } from "./errors.js";
import { absolute, asBytes } from "./source.js";

// (func (result v128) (i8x16.relaxed_swizzle (i8x16.splat (i32.const 1)) (i8x16.splat (i32.const 2))))
const RELAXED_PROBE = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15,
  253, 128, 2, 11,
];

const compiled = new Map<string, Promise<WebAssembly.Module>>();
const given = new WeakMap<object, Promise<WebAssembly.Module>>();

/** Whether this browser compiles core-relaxed.wasm. */
export function hasRelaxedSimd(): boolean {
  return WebAssembly.validate(new Uint8Array(RELAXED_PROBE));
}

/** Address of the core that suits this browser and these settings. */
export function coreAddress(wasm: WasmEnv): string {
  const relaxed = wasm.simd !== false && wasm.simd !== "fixed" && hasRelaxedSimd();
  const paths = wasm.wasmPaths;
  if (typeof paths === "object" && paths.wasm) return absolute(paths.wasm);
  if (typeof paths === "string") {
    const folder = paths.endsWith("/") ? paths : `${paths}/`;
    return absolute(folder + (relaxed ? "core-relaxed.wasm" : "core.wasm"));
  }
  return (relaxed ? new URL("./core-relaxed.wasm", import.meta.url) : new URL("./core.wasm", import.meta.url)).href;
}

export function compileCore(wasm: WasmEnv): Promise<WebAssembly.Module> {
  if (wasm.wasmBinary) return compileBinary(wasm.wasmBinary);
  const url = coreAddress(wasm);
  let module = compiled.get(url);
  if (!module) {
    module = fetchCore(url);
    compiled.set(url, module);
    module.catch(() => compiled.delete(url));
  }
  return module;
}

function compileBinary(binary: ArrayBuffer | Uint8Array): Promise<WebAssembly.Module> {
  let module = given.get(binary);
  if (!module) {
    const bytes = asBytes(binary);
    if (!bytes) throw new TypeError("env.wasm.wasmBinary must be an ArrayBuffer or a typed array of core.wasm");
    module = WebAssembly.compile(bytes.slice());
    given.set(binary, module);
  }
  return module;
}

async function fetchCore(url: string): Promise<WebAssembly.Module> {
  const cure = "env.wasm.wasmPaths says where core.wasm and core-relaxed.wasm are";
  let response: Response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new Error(`the core ${url} cannot be fetched: ${messageOf(error)}; ${cure}`);
  }
  if (!response.ok) throw new Error(`the core ${url}: HTTP ${response.status}; ${cure}`);
  // compileStreaming insists on the media type, which some servers do not send.
  const streams = response.headers.get("Content-Type")?.startsWith("application/wasm");
  try {
    return await (streams ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer()));
  } catch (error) {
    throw new Error(`the core ${url} does not compile: ${messageOf(error)}; ${cure}`);
  }
}
