/** Compiles each .onnx file of a folder with the compiler as JavaScript: `node compile_models.mjs FOLDER PLAYER`. */
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, player] = process.argv.slice(2);
const { compile, useCore, NeedsCore, Refused } = await import(pathToFileURL(join(player, "compiler.mjs")).href);
const found = {};
for (const path of readdirSync(folder).filter((name) => name.endsWith(".onnx"))) {
  const bytes = new Uint8Array(readFileSync(join(folder, path)));
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const made = () => Buffer.concat(compile([{ path, bytes }], { optimise: true, sha256 }));
  try {
    let file;
    try {
      file = made();
    } catch (error) {
      if (!(error instanceof NeedsCore)) throw error;
      useCore(await WebAssembly.compile(readFileSync(join(player, "core.wasm"))));
      file = made();
    }
    found[path] = createHash("sha256").update(file).digest("hex");
  } catch (error) {
    found[path] = error instanceof Refused ? error.message : `${error.stack ?? error}`;
  }
}
writeFileSync(join(folder, "found.json"), JSON.stringify(found));
