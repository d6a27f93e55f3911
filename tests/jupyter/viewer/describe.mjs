/** Prints what the browser reads of a model: node describe.mjs FILE */
import { readFileSync } from "node:fs";
import { load } from "./bundle.mjs";

const { Stream, describe } = await load("stream.ts", "read.ts");
const [file] = process.argv.slice(2);
const address = `data:application/octet-stream;base64,${readFileSync(file).toString("base64")}`;
try {
  const stream = await Stream.open(() => Promise.resolve(address), AbortSignal.timeout(60_000), null, () => {});
  console.log(JSON.stringify(await describe(stream, "model")));
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
