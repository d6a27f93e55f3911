// Bundles the demo pages beside the built player: node js/pages/build.mjs build/site
import { build } from "esbuild";
import { cp, mkdir, readdir } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { licences } from "../licences.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const [target] = process.argv.slice(2);
if (!target) throw new Error("usage: node js/pages/build.mjs FOLDER");

const copied = new Set([".html", ".css", ".svg", ".txt", ".csv"]);
const files = await readdir(here, { recursive: true });
for (const file of files.filter((file) => copied.has(extname(file)))) {
  await mkdir(dirname(join(target, file)), { recursive: true });
  await cp(join(here, file), join(target, file));
}
const entries = files.filter((file) => /(main|\.worker)\.ts$/.test(file));
await build({
  entryPoints: entries.map((file) => join(here, file)),
  outbase: here,
  outdir: target,
  bundle: true,
  minify: true,
  sourcemap: true,
  format: "esm",
  target: "es2022",
  external: ["pyonnx-wasm", "pyonnx-wasm/generate"],
  plugins: [licences(join(target, "licences.txt"))],
  logLevel: "warning",
});
await cp(join(here, "../dist"), join(target, "player"), {
  recursive: true,
  filter: (path) => !/\.(d\.m?ts|whl)$/.test(path),
});
