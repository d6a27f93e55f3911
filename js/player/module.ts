/** Chooses, fetches and compiles the core; one compilation per page and address. */
import { ownFolder, type WasmEnv } from "./env.js";
import { messageOf } from "./errors.js";
import { files } from "./files.js";
import { absolute, asBytes, readAll, urlSource } from "./source.js";

const CSP_CURE = "the page's content security policy needs script-src 'wasm-unsafe-eval'";

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

/** Addresses of the core that suits this browser, the one that the settings ask for first; of a `wide` one, with 64-bit addresses. */
export function coreAddresses(wasm: WasmEnv, wide = false): string[] {
  const relaxed = wasm.simd !== false && wasm.simd !== "fixed" && hasRelaxedSimd();
  const own = wide ? (relaxed ? files.relaxedCore64 : files.core64) : relaxed ? files.relaxedCore : files.core;
  const { wasmPaths: paths } = wasm;
  if (!wide && typeof paths === "object" && paths.wasm && !isOnnxruntimes(paths.wasm))
    return [absolute(paths.wasm), own];
  const folder = folderOf(wasm);
  return folder ? [`${folder}core${wide ? "64" : ""}${relaxed ? "-relaxed" : ""}.wasm`, own] : [own];
}

/** The folder that `wasmPaths` says the player's files are in. Pages that came from onnxruntime-web may still name its files. */
export function folderOf({ wasmPaths: paths }: WasmEnv): string | undefined {
  if (typeof paths !== "string" || !paths || paths === ownFolder() || isOnnxruntimes(paths)) return undefined;
  return absolute(paths.endsWith("/") ? paths : `${paths}/`);
}

function isOnnxruntimes(path: string | URL): boolean {
  return /onnxruntime|\/ort[-.][^/]*$/.test(String(path));
}

/** The core with 64-bit addresses. */
export async function compileWideCore(wasm: WasmEnv): Promise<WebAssembly.Module> {
  if (!("core64" in files)) throw new Error("the player's core with 64-bit addresses is not beside it here");
  return fetchedCore(wasm, true);
}

export function compileCore(wasm: WasmEnv): Promise<WebAssembly.Module> {
  const binary = wasm.wasmBinary;
  if (!binary) return fetchedCore(wasm);
  let module = given.get(binary);
  if (!module) {
    module = compileBinary(binary, wasm);
    given.set(binary, module);
  }
  return module;
}

function fetchedCore(wasm: WasmEnv, wide = false): Promise<WebAssembly.Module> {
  const addresses = coreAddresses(wasm, wide);
  const key = addresses.join(" ");
  let module = compiled.get(key);
  if (!module) {
    module = fetchFirst(addresses);
    compiled.set(key, module);
    module.catch(() => compiled.delete(key));
  }
  return module;
}

/** The core from the first of several addresses that has it. */
export async function fetchFirst([address, ...others]: string[]): Promise<WebAssembly.Module> {
  try {
    return await fetchCore(address!);
  } catch (error) {
    if (!others.length || others[0] === address) throw error;
    console.warn(`pyonnx-wasm: ${messageOf(error)}; taking ${others[0]}`);
    return fetchFirst(others);
  }
}

async function compileBinary(binary: ArrayBufferLike | Uint8Array, wasm: WasmEnv): Promise<WebAssembly.Module> {
  const bytes = asBytes(binary);
  if (!bytes) throw new TypeError("env.wasm.wasmBinary must be an ArrayBuffer or a typed array of core.wasm");
  const module = await WebAssembly.compile(bytes.slice());
  // The core imports its memory and nothing else.
  if (WebAssembly.Module.imports(module).every(({ kind }) => kind === "memory")) return module;
  console.warn("pyonnx-wasm: env.wasm.wasmBinary is passed over: it is not core.wasm");
  return fetchedCore(wasm);
}

async function fetchCore(url: string): Promise<WebAssembly.Module> {
  const cure = url.includes("/.vite/deps/")
    ? 'set optimizeDeps: { exclude: ["pyonnx-wasm"] } in the configuration of Vite'
    : "env.wasm.wasmPaths says where core.wasm and core-relaxed.wasm are";
  let response: Response | undefined;
  let bytes: Uint8Array<ArrayBuffer> | undefined;
  try {
    // Pages fetch, so that the core compiles while it comes.
    if (url.startsWith("file:")) bytes = await readAll(await urlSource(url));
    else response = await fetch(url);
  } catch (error) {
    throw new Error(`the core ${url} cannot be fetched: ${messageOf(error)}; ${cure}`);
  }
  if (response && !response.ok) throw new Error(`the core ${url}: HTTP ${response.status}; ${cure}`);
  // compileStreaming insists on the media type, which some servers do not send.
  const streams = response?.headers.get("Content-Type")?.startsWith("application/wasm");
  try {
    return await (response && streams
      ? WebAssembly.compileStreaming(response)
      : WebAssembly.compile(bytes ?? (await response!.arrayBuffer())));
  } catch (error) {
    throw new Error(`the core ${url} does not compile: ${messageOf(error)}; ${isBlocked(error) ? CSP_CURE : cure}`);
  }
}

/** Content security policies forbid WebAssembly unless they name it. */
function isBlocked(error: unknown): boolean {
  return /content security policy|unsafe-eval|blocked by csp/i.test(messageOf(error));
}
