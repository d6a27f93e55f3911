/**
 * Makes build/npm, the npm package as it is published: `npm publish build/npm`. It is whole: scripts, cores, the Python package's
 * wheel, which compiles .onnx models, the declarations that index.d.ts leads to, a README of its own.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, "js/dist");
const target = join(root, "build/npm");
const {
  private: _,
  files: __,
  scripts: ___,
  prettier: ____,
  devDependencies: _____,
  ...published
} = JSON.parse(readFileSync(join(root, "package.json"), "utf8").replaceAll("./js/dist/", "./dist/"));

rmSync(target, { recursive: true, force: true });
mkdirSync(join(target, "dist"), { recursive: true });
const built = readdirSync(dist).filter((file) => /\.(mjs|js|map|wasm)$/.test(file));
for (const file of [...built, ...declarations("generate.d.mts", declarations("index.d.ts"))])
  cpSync(join(dist, file), join(target, "dist", file));
for (const file of [
  "engine.mjs",
  "worker.mjs",
  "gpu.mjs",
  "compile.mjs",
  "compiler.mjs",
  "common.mjs",
  "generate.mjs",
  "all.mjs",
  "core.wasm",
  "core-relaxed.wasm",
  "core64.wasm",
  "core64-relaxed.wasm",
])
  if (!built.includes(file)) throw new Error(`js/dist/${file} is missing: npm run build`);

const venv = join(root, ".venv/bin/python");
const python = process.env.PYTHON ?? (existsSync(venv) ? venv : "python3");
execFileSync(python, ["-m", "hatchling", "build", "-t", "wheel", "-d", join(target, "dist")], {
  cwd: root,
  env: { ...process.env, PYONNX_WASM_WHEEL: "pure" },
  stdio: ["ignore", "ignore", "inherit"],
});

const wheel = `pyonnx_wasm-${published.version}-py3-none-any.whl`;
if (!existsSync(join(target, "dist", wheel)))
  throw new Error(`${wheel} was not built: the player asks for it by this name`);

cpSync(join(root, "LICENSE"), join(target, "LICENSE"));
cpSync(join(root, "js/npm.md"), join(target, "README.md"));
writeFileSync(join(target, "package.json"), `${JSON.stringify({ ...published, files: ["dist"] }, null, 2)}\n`);

/** A declaration file and those that it leads to. */
function declarations(file, found = new Set()) {
  if (found.has(file)) return found;
  found.add(file);
  const text = readFileSync(join(dist, file), "utf8");
  for (const [, name] of text.matchAll(/(?:from|import\()\s*"\.\/([\w./-]+)"/g))
    declarations(join(dirname(file), name.replace(/\.(m?)js$/, ".d.$1ts")), found);
  return found;
}
