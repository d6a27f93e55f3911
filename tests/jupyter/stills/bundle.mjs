/** Writes a script that shows widgets on fixed figures: `node bundle.mjs FOLDER [--check]`. */
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

await build({
  entryPoints: [fileURLToPath(new URL("stage.ts", import.meta.url))],
  bundle: true,
  format: "iife",
  globalName: "stage",
  outdir: process.argv[2],
  loader: { ".css": "text" },
  define: { BUILD: '""', VERSION: '""', COMPILER: '""', "import.meta.url": '"https://localhost/"' },
  logLevel: "warning",
});
