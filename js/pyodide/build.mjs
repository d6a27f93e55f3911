/** Builds pyonnx_wasm/lib/pyodide: scripts of one expression each, which Python evaluates, so that nothing has to be awaited. */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { builtFor } from "../core.mjs";
import { licences } from "../licences.mjs";

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
for (const name of ["glue", "tokenizer"])
  await build({
    ...options,
    entryPoints: [join(js, "pyodide", `${name}.ts`)],
    outfile: join(dirname(js), `pyonnx_wasm/lib/pyodide/${name}.js`),
    format: "iife",
    globalName: name,
    footer: { js: name },
    plugins: [licences(join(dirname(js), `pyonnx_wasm/lib/pyodide/${name}.licences.txt`))],
    define: {
      ...builtFor,
      THREAD_SCRIPT: JSON.stringify(thread.outputFiles[0].text),
      WHEEL: '""',
      "import.meta.url": '"about:blank"',
    },
  });
