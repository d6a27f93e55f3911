/** Imports TypeScript modules of js/lab into Node. */
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("../../../js/lab/", import.meta.url));

export async function load(...files) {
  const { outputFiles } = await build({
    stdin: { contents: files.map((file) => `export * from "./${file}";`).join(""), resolveDir: folder, loader: "ts" },
    bundle: true,
    format: "esm",
    write: false,
    logLevel: "silent",
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}
