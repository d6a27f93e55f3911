/**
 * Builds the JupyterLab extension, a container as module federation defines it: JupyterLab loads `remoteEntry.js`, hands over the modules that
 * it shares by `init`, and takes the plugin from `get`. What a page shares is looked up only then, so the bundle holds none of it.
 */
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const target = join(root, "pyonnx_wasm/lib/labextension/pyonnx-wasm");
const shared = { "@jupyterlab/application": "^4.0.0", "@jupyterlab/apputils": "^4.0.0", "@jupyterlab/docregistry": "^4.0.0", "@jupyterlab/services": "^7.0.0", "@jupyterlab/settingregistry": "^4.0.0", "@lumino/widgets": "^2.0.0" }; // prettier-ignore
const common = {
  bundle: true,
  minify: true,
  target: "es2022",
  write: false,
  logLevel: "warning",
  legalComments: "none",
};

const worker = await build({ ...common, entryPoints: [join(here, "layout.worker.ts")], format: "iife" });
const provided = {
  name: "provided",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^layout-worker$/ }, ({ path }) => ({ path, namespace: "worker" }));
    onLoad({ filter: /.*/, namespace: "worker" }, () => ({ contents: worker.outputFiles[0].text, loader: "text" }));
    onResolve({ filter: /^@/ }, ({ path }) => {
      if (!(path in shared))
        throw new Error(`${path} is not among the modules that JupyterLab shares with the extension`);
      return { path, namespace: "shared" };
    });
    onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => ({
      contents: `module.exports = shared[${JSON.stringify(path)}]`,
    }));
  },
};
const plugin = await build({
  ...common,
  entryPoints: [join(here, "index.ts")],
  format: "iife",
  globalName: "plugin",
  loader: { ".css": "text" },
  plugins: [provided],
});

const entry = `(() => {
const names = ${JSON.stringify(Object.keys(shared))};
let scope;
const newest = (versions) => Object.keys(versions).sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
const load = async (name) => {
  const versions = scope[name];
  if (!versions) throw new Error("pyonnx-wasm: this JupyterLab does not share " + name);
  return [name, (await versions[newest(versions)].get())()];
};
const start = (shared) => {
${plugin.outputFiles[0].text}
return plugin;
};
let started;
(window._JUPYTERLAB ??= {})["pyonnx-wasm"] = {
  init: (given) => { scope = given; },
  get: async (module) => {
    if (module !== "./extension") throw new Error("pyonnx-wasm has no module " + module);
    started ??= Promise.all(names.map(load)).then((loaded) => start(Object.fromEntries(loaded)));
    const found = await started;
    return () => found;
  },
};
})();
`;
const file = `remoteEntry.${createHash("sha256").update(entry).digest("hex").slice(0, 12)}.js`;
const { version, license, description } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const manifest = {
  name: "pyonnx-wasm",
  version,
  license,
  description,
  dependencies: shared,
  jupyterlab: { extension: true, schemaDir: "schemas", _build: { load: `static/${file}`, extension: "./extension" } },
};
rmSync(target, { recursive: true, force: true });
mkdirSync(join(target, "static"), { recursive: true });
writeFileSync(join(target, "static", file), entry);
mkdirSync(join(target, "schemas/pyonnx-wasm"), { recursive: true });
copyFileSync(join(here, "viewer.schema.json"), join(target, "schemas/pyonnx-wasm/viewer.json"));
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
writeFileSync(
  join(target, "install.json"),
  `${JSON.stringify({ packageManager: "python", packageName: "pyonnx-wasm", uninstallInstructions: "pip uninstall pyonnx-wasm" })}\n`,
);
console.log(`labextension\t${entry.length} bytes, ${gzipSync(entry).length} gzip`);
