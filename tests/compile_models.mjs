/** Compiles each .onnx and .gguf file of a folder with the compiler as JavaScript: `node compile_models.mjs FOLDER PLAYER`. */
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, player] = process.argv.slice(2);
const { compile, useCore, NeedsBytes, NeedsCore, Refused } = await import(
  pathToFileURL(join(player, "compiler.mjs")).href
);
const found = {};
for (const path of readdirSync(folder).filter((name) => /\.(onnx|gguf)$/.test(name))) {
  const bytes = new Uint8Array(readFileSync(join(folder, path)));
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const pieces = [];
  const made = () => Buffer.concat(compile([{ path, size: bytes.length, pieces }], { optimise: true, sha256 }));
  try {
    let file;
    while (!file) {
      try {
        file = made();
      } catch (error) {
        if (error instanceof NeedsBytes) pieces.push({ at: error.start, bytes: bytes.slice(error.start, error.end) });
        else if (error instanceof NeedsCore)
          useCore(await WebAssembly.compile(readFileSync(join(player, "core.wasm"))));
        else throw error;
      }
    }
    found[path] = createHash("sha256").update(file).digest("hex");
  } catch (error) {
    found[path] = error instanceof Refused ? error.message : `${error.stack ?? error}`;
  }
}
writeFileSync(join(folder, "found.json"), JSON.stringify(found));
