// node tests/generate.mjs MODEL.ponnx REQUESTS.json: what js/dist/generate.mjs gives for each request, as JSON.
import { readFileSync } from "node:fs";
import { ContextError, Generator, uniform } from "../js/dist/generate.mjs";

const [, , path, asked] = process.argv;
const bytes = readFileSync(path);
const model = () => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
const words = { encode: (text) => ({ ids: Array.from(text, (c) => c.charCodeAt(0) - 97) }), decode: (ids) => ids.map((i) => `<${i}>`).join("") };
const generator = await Generator.create(model(), { tokenizer: words, chunk: 2 });
const found = { context: generator.context, uniform: [uniform(0n, 0), uniform(2n ** 40n + 3n, 7)], texts: [], errors: [] };
for (const { prompt, seed, settings } of JSON.parse(readFileSync(asked, "utf8"))) {
  const text = generator.generate(prompt, { ...settings, seed: BigInt(seed) });
  const told = [];
  for await (const token of text) told.push(token);
  found.texts.push({ ids: text.ids, text: text.text, told: told.map((t) => t.text).join(""), reason: text.reason, likely: told.map((t) => t.likely), ...text.statistics });
}
const cancelled = generator.generate([3, 1, 4], { maxNewTokens: 9, seed: 1 });
for await (const _ of cancelled) if (cancelled.ids.length === 2) cancelled.cancel();
const controller = new AbortController();
const aborted = generator.generate([3, 1, 4], { signal: controller.signal });
controller.abort();
for await (const _ of aborted) throw new Error("it goes on");
found.cancelled = [cancelled.reason, cancelled.ids.length, aborted.reason];
const stop = generator.generate([3, 1, 4], { maxNewTokens: 9, seed: 1, stop: [`<${cancelled.ids[1]}>`] });
for await (const _ of stop);
found.stopped = [stop.reason, stop.text, cancelled.text];
for (const [prompt, settings] of [[[], {}], [[0.5], {}], [[1], { topP: 0 }], [[1], { maxNewTokens: 0 }], [new Array(40).fill(3), {}]]) {
  try {
    generator.generate(prompt, settings);
  } catch (error) {
    found.errors.push(`${error instanceof ContextError ? "ContextError" : error.name}: ${error.message}`);
  }
}
const sliding = await Generator.create(model(), { overflow: "slide" });
const long = sliding.generate(new Array(40).fill(5), { maxNewTokens: 40, seed: 1 });
for await (const _ of long);
found.slid = [long.ids.length, sliding.decoder.ids.length];
await Promise.all([generator.release(), sliding.release()]);
process.stdout.write(JSON.stringify(found), () => process.exit(0));
