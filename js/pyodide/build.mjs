/** Builds pyonnx_wasm/lib/pyodide/glue.js: one expression, which Python evaluates, so that nothing has to be awaited. */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const js = dirname(dirname(fileURLToPath(import.meta.url)));
const options = {
  bundle: true,
  target: ["es2022", "chrome119", "firefox115", "safari16.4"],
  minify: true,
  legalComments: "none",
  logLevel: "warning",
};
const serve =
  'import { serveThread } from "./thread.js"; onmessage = ({ data }) => serveThread(data, postMessage).then(close);';
const thread = await build({
  ...options,
  stdin: { contents: serve, resolveDir: join(js, "player") },
  format: "esm",
  write: false,
});
await build({
  ...options,
  entryPoints: [join(js, "pyodide/glue.ts")],
  outfile: join(dirname(js), "pyonnx_wasm/lib/pyodide/glue.js"),
  format: "iife",
  globalName: "glue",
  footer: { js: "glue" },
  define: {
    THREAD_SCRIPT: JSON.stringify(thread.outputFiles[0].text),
    WHEEL: '""',
    "import.meta.url": '"about:blank"',
  },
});
