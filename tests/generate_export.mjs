// node tests/generate_export.mjs ASKED: what generators over exports say and write, as JSON. ASKED has their addresses and settings.
import { readFileSync } from "node:fs";
import { Generator } from "../js/dist/generate.mjs";
import { Tensor } from "../js/dist/index.mjs";

const { sound, asked, wrong } = JSON.parse(process.argv[2]);
const features = new Tensor("float32", new Float32Array(readFileSync(sound).buffer.slice(0, 4 * 240000)), [80, 3000]);
const words = (held, about) => ({
  encode: (text) => ({ ids: [...text].map((letter) => letter.charCodeAt(0) % 7) }),
  decode: (ids) => `${Object.keys(held).length},${Object.keys(about).length}:${ids.join()}`,
});
const found = { told: [], errors: [] };
for (const { model, prompt, options, tokenizer, limit } of asked) {
  const generator = await Generator.create(model, { ...options, ...(tokenizer && { tokenizer: words }) });
  const { context, ends, begin, decoderInputIds, suppressTokens, beginSuppressTokens } = generator.options;
  const text = generator.generate(prompt ?? features, { maxNewTokens: limit, temperature: 0 });
  for await (const _ of text);
  found.told.push({ said: [context, ends, begin, decoderInputIds, suppressTokens, beginSuppressTokens].map((x) => x ?? null), ids: text.ids, text: text.text });
  await generator.release();
}
for (const { model, options, tokenizer } of wrong) {
  const given = { ...options, ...(tokenizer && { tokenizer: words }) };
  found.errors.push(await Generator.create(model, given).then(() => "", ({ message }) => message));
}
process.stdout.write(JSON.stringify(found), () => process.exit(0));
