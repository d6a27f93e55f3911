// Runs a model with the package outside of pages and prints what came: runtime.mjs PLAYER SOURCE KIND OPTIONS
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [player, path, kind, settings] = process.argv.slice(2);
const { pyodide, threads, release = true, ...options } = JSON.parse(settings);
const { InferenceSession, Tensor, env } = await import(player);
env.wasm.numThreads = threads;
env.pyodide.indexURL = pyodide;
const sources = {
  path: () => path,
  url: () => pathToFileURL(path),
  "url as text": () => pathToFileURL(path).href,
  bytes: () => readFile(path),
  stream: async () => new Blob([await readFile(path)]).stream(),
};
try {
  const session = await InferenceSession.create(await sources[kind](), options);
  const x = Float32Array.from({ length: 3 * 67 }, (_, i) => ((i * 37) % 101) / 50 - 1);
  const runs = await Promise.all([1, 2].map(() => session.run({ x: new Tensor("float32", x, [3, 67]) })));
  if (release) await session.release();
  console.log(JSON.stringify({ y: runs.map(({ y }) => [...y.data]), threads: session.threads }));
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
