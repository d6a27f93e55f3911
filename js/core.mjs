/** What everything that has the player in it is built for. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
export const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

const memory = new WebAssembly.Memory({ initial: 64, maximum: 65535, shared: true });
const core = new WebAssembly.Module(readFileSync(join(root, "pyonnx_wasm/lib/core.wasm")));

/** The version, and the number by which the player knows a core of another build. */
export const builtFor = {
  VERSION: JSON.stringify(version),
  CORE_BUILD: String(new WebAssembly.Instance(core, { env: { memory } }).exports.pwx_build()),
};
