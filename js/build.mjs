/** Builds js/dist: the player, its declarations and the cores. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, "js/dist");
const lib = join(root, "pyonnx_wasm/lib");

const cores = ["core.wasm", "core-relaxed.wasm", "core64.wasm", "core64-relaxed.wasm"];
for (const file of cores) {
  if (!existsSync(join(lib, file))) {
    console.error(`pyonnx_wasm/lib/${file} is missing: run \`python -m pyonnx_wasm.toolchain wasm\` first`);
    process.exit(1);
  }
}
const { builtFor, version } = await import("./core.mjs"); // reads a core
const hashOf = (...paths) => {
  const hash = createHash("sha256");
  for (const path of paths) hash.update(readFileSync(path));
  return hash.digest("hex").slice(0, 16);
};
const venv = join(root, ".venv/bin/python");
const python = process.env.PYTHON ?? (existsSync(venv) ? venv : "python3");
execFileSync(python, ["-m", "pyonnx_wasm.javascript", "build/gen/compiler.mjs", "../../js/compiler/runtime.js"], {
  cwd: root,
  stdio: "inherit",
});
const common = {
  outdir: dist,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  define: {
    ...builtFor,
    WHEEL: JSON.stringify(`./pyonnx_wasm-${version}-py3-none-any.whl`),
  },
  format: "esm",
  target: ["es2022", "chrome111", "firefox115", "safari16.4"],
  minify: true,
  sourcemap: true,
  legalComments: "none",
  logLevel: "warning",
};
await build({
  ...common,
  entryPoints: { compiler: join(root, "js/compiler/index.ts") },
  alias: { "compiler-modules": join(root, "build/gen/compiler.mjs") },
  sourcemap: false,
});
// What another compiler made, or one on another core, which computes constants, is not taken for this one's.
common.define.COMPILER = JSON.stringify(hashOf(join(dist, "compiler.mjs"), join(lib, "core.wasm")));
const player = (file) => join(root, "js/player", file);
const parts = ["engine.mts", "gpu.mts", "compile.mts", "common.mts"];
await build({
  ...common,
  entryPoints: ["index.ts", ...parts].map(player),
  external: parts.map((file) => `./${file.replace(".mts", ".mjs")}`),
});
await build({ ...common, entryPoints: [player("worker.mts")], external: ["./gpu.mjs"] });
const beside = {
  name: "beside the player",
  setup: ({ onResolve }) => onResolve({ filter: /\/index\.js$/ }, () => ({ path: "./index.mjs", external: true })),
};
await build({ ...common, entryPoints: [player("generate.mts")], plugins: [beside] });
// In one piece: for service workers, which cannot import later, and for pages without modules.
await build({ ...common, entryPoints: { all: player("index.ts") } });
await build({
  ...common,
  entryPoints: { "pyonnx-wasm": player("index.ts") },
  outExtension: {},
  format: "iife",
  globalName: "pyonnxWasm",
  define: { ...common.define, "import.meta.url": "SCRIPT" },
  banner: { js: "const SCRIPT = document.currentScript?.src ?? location.href;" },
});
// Minifying drops the comment by which webpack does not look for files behind an expression.
for (const file of ["compile.mjs", "all.mjs"]) {
  const text = readFileSync(join(dist, file), "utf8");
  writeFileSync(join(dist, file), text.replace(/\bimport\((\w+)\)/g, "import(/*webpackIgnore:true*/$1)"));
}
const tsc = join(dirname(createRequire(import.meta.url).resolve("typescript/package.json")), "bin/tsc");
execFileSync(process.execPath, [tsc, "-p", "js", "--emitDeclarationOnly"], { cwd: root, stdio: "inherit" });

for (const file of cores) copyFileSync(join(lib, file), join(dist, file));
for (const part of ["pyodide", "widget", "lab"]) {
  const script = join(root, "js", part, "build.mjs");
  if (existsSync(script)) await import(pathToFileURL(script).href);
}
const scripts = ["index", "worker", "compiler", "generate", ...parts.map((file) => file.split(".")[0]), "all"].map(
  (name) => `${name}.mjs`,
);
const told = [...scripts, ...cores].map((file) => {
  const bytes = readFileSync(join(dist, file));
  return `${file} ${bytes.length} (${gzipSync(bytes).length})`;
});
console.log(`Player, bytes (gzip): ${told.join(", ")}`);
