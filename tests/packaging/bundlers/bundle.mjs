// Bundles a page with one tool: bundle.mjs TOOL PAGE OUT. Runs from the folder that the tools are installed in.
import { execFileSync } from "node:child_process";
import { cpSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const [tool, page, out] = process.argv.slice(2);
const here = fileURLToPath(new URL(".", import.meta.url));
const quiet = { root: page, configFile: false, logLevel: "warn", base: "./" };
const isolated = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

/** Vite's development server; says where it listens and serves until it is ended. */
async function serve(vite, options = {}) {
  const server = await vite.createServer({
    ...quiet,
    ...options,
    server: { port: 0, host: "127.0.0.1", headers: isolated },
  });
  await server.listen();
  console.log(`http://127.0.0.1:${server.httpServer.address().port}/`);
}

const tools = {
  "vite 8": async () => (await import("vite-8")).build({ ...quiet, build: { outDir: out } }),
  "vite 8, configured": async () =>
    (await import("vite-8")).build({ ...quiet, configFile: join(page, "vite.config.js"), build: { outDir: out } }),
  "vite 7": async () => (await import("vite-7")).build({ ...quiet, build: { outDir: out } }),
  "vite 6": async () => (await import("vite-6")).build({ ...quiet, build: { outDir: out } }),
  "vite 5": async () => (await import("vite-5")).build({ ...quiet, build: { outDir: out } }),
  "vite 8, development": async () => serve(await import("vite-8")),
  // As the package's README says.
  "vite 5, development": async () => serve(await import("vite-5"), { optimizeDeps: { exclude: ["pyonnx-wasm"] } }),
  async webpack() {
    const webpack = (await import("webpack")).default;
    const options = {
      mode: "production",
      context: page,
      entry: "./main.js",
      output: { path: out, filename: "main.js" },
    };
    const stats = await promisify(webpack)({ ...options, performance: { hints: false } });
    if (stats.hasErrors() || stats.hasWarnings()) throw new Error(stats.toString());
  },
  async rollup() {
    const { rollup } = await import("rollup");
    const { nodeResolve } = await import("@rollup/plugin-node-resolve");
    const { importMetaAssets } = await import("@web/rollup-plugin-import-meta-assets");
    const onLog = (level, { message }) => {
      if (level === "warn") throw new Error(message);
    };
    const bundle = await rollup({
      input: join(page, "main.js"),
      plugins: [nodeResolve({ browser: true }), importMetaAssets()],
      onLog,
    });
    await bundle.write({ dir: out, format: "es" });
  },
  async esbuild() {
    const { build } = await import("esbuild");
    const entry = {
      entryPoints: [join(page, "main.js")],
      bundle: true,
      format: "esm",
      outdir: out,
      logLevel: "silent",
    };
    const { warnings } = await build(entry);
    if (warnings.length) throw new Error(warnings[0].text);
    // As the package's README says.
    const files = (path) => !/\.(d\.m?ts|map)$/.test(path);
    cpSync(join(page, "node_modules/pyonnx-wasm/dist"), out, { recursive: true, filter: files });
  },
  async parcel() {
    const command = [
      join(here, "node_modules/parcel/lib/bin.js"),
      "build",
      "index.html",
      "--dist-dir",
      out,
      "--public-url",
      "./",
    ];
    const cache = ["--cache-dir", join(out, "../parcel"), "--no-autoinstall", "--no-source-maps"];
    execFileSync(process.execPath, [...command, ...cache], { cwd: page, stdio: ["ignore", "ignore", "inherit"] });
  },
};
await tools[tool]();
if (!tool.startsWith("vite") && tool !== "parcel") cpSync(resolve(page, "index.html"), join(out, "index.html"));
