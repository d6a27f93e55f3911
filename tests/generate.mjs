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
for (const [prompt, settings] of [[[], {}], [[0.5], {}], [[200], {}], [[1], { topP: 0 }], [[1], { maxNewTokens: 0 }], [new Array(40).fill(3), {}]]) {
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
// A run that fails in mid-sentence: the text goes on in a session anew; a second failure at one place ends it.
const { InferenceSession } = await import("../js/dist/index.mjs");
const opened = [];
const open = async () => {
  const session = await InferenceSession.create(model(), { preferredOutputLocation: "cpu-pinned" });
  opened.push(session);
  return session;
};
const failing = (session, at) => {
  const { run } = session;
  let left = at;
  session.run = (...given) => (left-- ? run.apply(session, given) : Promise.reject(new Error("the device was lost")));
  return session;
};
found.resumed = [];
for (const at of [0, 3, 6]) {
  const resumes = new Generator(failing(await open(), at), { tokenizer: words, chunk: 2, reopen: open });
  const text = resumes.generate([3, 1, 4, 1, 5], { maxNewTokens: 16, seed: 7 });
  for await (const _ of text);
  found.resumed.push(text.text);
}
const never = new Generator(failing(await open(), 6), { tokenizer: words, reopen: async () => failing(await open(), 0) });
const lost = never.generate([3, 1, 4, 1, 5], { maxNewTokens: 16, seed: 7 });
const message = await (async () => {
  for await (const _ of lost);
})().catch((error) => error.message);
found.lost = [message, lost.reason, lost.ids.length, lost.text];
// Foretold tokens: by look-up, by the model itself (all are confirmed), by one that is always wrong.
const bad = await Generator.create(model(), { ends: [] });
bad.decoder.read = async (ids) => {
  bad.decoder.ids.push(...ids);
  return [Float32Array.from({ length: 200 }, (_, i) => (i === 199 ? 1 : 0))];
};
found.foretold = [];
for (const draft of [undefined, "prompt", await Generator.create(model(), { ends: [] }), bad]) {
  const writes = new Generator(await open(), { tokenizer: words, draft, ahead: 3 });
  for (const settings of [{ temperature: 0 }, { seed: 7, temperature: 1.3, repetitionPenalty: 1.3 }]) {
    let runs = 0;
    const { run } = writes.session;
    writes.session.run = (...given) => (runs++, run.apply(writes.session, given));
    const text = writes.generate([3, 1, 4, 1, 5, 3, 1], { maxNewTokens: 20, ...settings });
    for await (const _ of text);
    delete writes.session.run;
    found.foretold.push([text.ids, runs]);
  }
}
// Logits that are no numbers: the text so far stays, and the next text begins anew.
const nan = new Generator(await open(), { tokenizer: words });
const { read } = nan.decoder;
nan.decoder.read = async (ids) => {
  const rows = await read.call(nan.decoder, ids);
  return nan.decoder.ids.length > 7 ? rows.map((row) => row.fill(NaN)) : rows;
};
const broken = nan.generate([3, 1, 4, 1, 5], { maxNewTokens: 16, seed: 7 });
const why = await (async () => {
  for await (const _ of broken);
})().catch((error) => error.message);
nan.decoder.read = read;
const after = nan.generate([3, 1, 4, 1, 5], { maxNewTokens: 16, seed: 7 });
for await (const _ of after);
found.nan = [why, broken.reason, broken.text, after.text];
await Promise.all(opened.map((session) => session.release()));
await Promise.all([generator.release(), sliding.release()]);
process.stdout.write(JSON.stringify(found), () => process.exit(0));
