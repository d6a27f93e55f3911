/** Builds pyonnx_wasm/lib/widget: one self-contained module per widget, with the player and its workers' scripts inside. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { builtFor } from "../core.mjs";
import { licences } from "../licences.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const player = join(dirname(here), "player");
const lib = join(dirname(dirname(here)), "pyonnx_wasm/lib");
const options = {
  bundle: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox115", "safari16.4"],
  minify: true,
  legalComments: "none",
  logLevel: "warning",
  define: builtFor,
};

const worker = (await build({ ...options, entryPoints: [join(player, "worker.mts")], write: false })).outputFiles[0]
  .text;

/** Files beside the player become files inside it. */
const inside = {
  name: "inside",
  setup(build) {
    build.onLoad({ filter: /player[\\/]files\.ts$/ }, () => ({
      contents: `
        const text = ${JSON.stringify(worker)};
        const type = "text/javascript";
        let address;
        // A page from a disk has no origin, and Chromium loads its modules from data: addresses, not from blob: ones.
        const make = () =>
          globalThis.origin === "null"
            ? \`data:\${type};charset=utf-8,\${encodeURIComponent(text)}\`
            : URL.createObjectURL(new Blob([text], { type }));
        // The core comes as bytes; it has no address.
        export const files = { core: "", get worker() { return (address ??= make()); } };`,
    }));
  },
};

/** The layout of the viewer's graphs runs in a worker of its own. */
const layout = await build({
  ...options,
  entryPoints: [join(dirname(here), "lab/layout.worker.ts")],
  format: "iife",
  write: false,
});
const worked = {
  name: "worked",
  setup(build) {
    build.onResolve({ filter: /^layout-worker$/ }, ({ path }) => ({ path, namespace: "worker" }));
    build.onLoad({ filter: /.*/, namespace: "worker" }, () => ({
      contents: layout.outputFiles[0].text,
      loader: "text",
    }));
  },
};

const cores = ["core.wasm", "core-relaxed.wasm"].filter((file) => existsSync(join(lib, file)));
const hash = createHash("sha256").update(worker);
for (const file of cores) hash.update(readFileSync(join(lib, file)));

/** `bridge.ts`, and `main.ts` of every folder. */
const entries = { bridge: join(here, "bridge.ts") };
for (const name of readdirSync(here)) {
  const main = join(here, name, "main.ts");
  if (existsSync(main)) entries[name] = main;
}
await build({
  ...options,
  entryPoints: entries,
  outdir: join(lib, "widget"),
  plugins: [inside, worked, licences(join(lib, "widget/licences.txt"))],
  define: {
    BUILD: JSON.stringify(hash.digest("hex").slice(0, 16)),
    ...builtFor,
    COMPILER: '""',
    "import.meta.url": '"about:blank"',
  },
  loader: { ".css": "text" },
});
