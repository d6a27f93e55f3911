/** Builds js/dist: the player, its declarations and the cores. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, "js/dist");
const lib = join(root, "pyonnx_wasm/lib");

for (const file of ["core.wasm", "core-relaxed.wasm"]) {
  if (!existsSync(join(lib, file))) {
    console.error(`pyonnx_wasm/lib/${file} is missing: run \`python -m pyonnx_wasm.toolchain wasm\` first`);
    process.exit(1);
  }
}
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const core = createHash("sha256")
  .update(readFileSync(join(lib, "core.wasm")))
  .digest("hex");
const scripts = ["index.ts", "worker.mts", "gpu.mts", "thread.mts", "compile.mts", "compiler.worker.mts"];
await build({
  entryPoints: scripts.map((file) => join(root, "js/player", file)),
  outdir: dist,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  external: ["./worker.mjs", "./gpu.mjs", "./compile.mjs"],
  define: { VERSION: JSON.stringify(version), CORE: JSON.stringify(core.slice(0, 16)) },
  format: "esm",
  target: ["es2022", "chrome111", "firefox115", "safari16.4"],
  minify: true,
  sourcemap: true,
  legalComments: "none",
  logLevel: "warning",
});
const tsc = join(dirname(createRequire(import.meta.url).resolve("typescript/package.json")), "bin/tsc");
execFileSync(process.execPath, [tsc, "-p", "js", "--emitDeclarationOnly"], { cwd: root, stdio: "inherit" });

for (const file of ["core.wasm", "core-relaxed.wasm"]) copyFileSync(join(lib, file), join(dist, file));
for (const part of ["pyodide", "widget", "lab"]) {
  const script = join(root, "js", part, "build.mjs");
  if (existsSync(script)) await import(pathToFileURL(script).href);
}
const told = [
  "index.mjs",
  "worker.mjs",
  "gpu.mjs",
  "thread.mjs",
  "compile.mjs",
  "compiler.worker.mjs",
  "core.wasm",
].map((file) => {
  const bytes = readFileSync(join(dist, file));
  return `${file} ${bytes.length} (${gzipSync(bytes).length})`;
});
console.log(`Player, bytes (gzip): ${told.join(", ")}`);
