// bundle.mjs OUT TOOLS ONNXRUNTIME: transformers.js twice, on pyonnx-wasm and on onnxruntime-web, which the server has under /player and /ort.
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [out, tools, onnxruntime] = process.argv.slice(2);
const { build } = createRequire(join(onnxruntime, "package.json"))("esbuild");
const here = fileURLToPath(new URL(".", import.meta.url));
const web = "/player/index.mjs";
const kinds = {
  ours: { "onnxruntime-web/webgpu": web, "onnxruntime-common": web },
  theirs: {
    "onnxruntime-web/webgpu": "/ort/ort.webgpu.min.mjs",
    "onnxruntime-common": join(onnxruntime, "../onnxruntime-common/dist/esm/index.js"),
  },
};
for (const [name, alias] of Object.entries(kinds))
  await build({
    entryPoints: { [name]: join(here, "pipelines.mjs") },
    bundle: true,
    format: "esm",
    outdir: out,
    alias,
    nodePaths: [join(tools, "node_modules")],
    external: [web, "/ort/*"],
    logLevel: "error",
  });
