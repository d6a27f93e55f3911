// node tests/generate_encoder.mjs FOLDER: what js/dist/generate.mjs writes behind encoders, as JSON.
// FOLDER has the parts of a T5 and a Whisper as .ponnx files, and asked.json.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Generator } from "../js/dist/generate.mjs";
import { InferenceSession, Tensor } from "../js/dist/index.mjs";

const folder = process.argv[2];
const { cases, settings, whisper } = JSON.parse(readFileSync(join(folder, "asked.json"), "utf8"));
const opened = [];
const open = async (name) => {
  opened.push(await InferenceSession.create(readFileSync(join(folder, `${name}.ponnx`)), { preferredOutputLocation: "cpu-pinned" }));
  return opened.at(-1);
};
const parts = async () => ({ session: await open("t5-next"), first: await open("t5-first"), encoder: await open("t5-encoder") });
const made = async (more = {}) => {
  const { session, ...others } = await parts();
  return new Generator(session, { ...others, decoderInputIds: [0], ends: [10], ...more });
};
const all = async (text) => {
  for await (const _ of text);
  return text;
};
const message = (promise) => promise.then(() => "", (error) => `${error.name}: ${error.message}`);
const found = {};

const t5 = await made();
const counts = { encoder: 0, first: 0 };
for (const part of ["encoder", "first"]) {
  const { run } = t5.decoder[part];
  t5.decoder[part].run = (...given) => (counts[part]++, run.apply(t5.decoder[part], given));
}
found.cases = [];
for (const { source, how } of cases) {
  if (how.numBeams > 1) found.cases.push(await t5.search(source, { ...how, maxNewTokens: 12 }));
  else {
    const text = await all(t5.generate(source, { maxNewTokens: 12, temperature: 0 }));
    found.cases.push([{ ids: text.ids, reason: text.reason }]);
  }
}
Object.assign(counts, { encoder: 0, first: 0 });
for (const source of [[12], [7], [7]]) await all(t5.generate(source, { maxNewTokens: 3, temperature: 0 }));
found.counts = { ...counts };
const sources = cases.map(({ source }) => source);
found.sampled = [];
for (const how of settings) {
  const one = [];
  for (const source of sources) one.push((await all(t5.generate(source, { ...how, maxNewTokens: 10 }))).ids);
  const many = await all(t5.generateMany(sources, { ...how, maxNewTokens: 10 }, 2));
  const drafted = await all((await made({ draft: "prompt" })).generate(sources[0], { ...how, maxNewTokens: 10 }));
  found.sampled.push([one, many.texts.map(({ ids }) => ids), drafted.ids]);
}
const sliding = await made({ context: 8, overflow: "slide" });
found.slid = (await all(sliding.generate([11], { maxNewTokens: 20, temperature: 0 }))).ids;
const cancelled = t5.generate([11], { temperature: 0 });
for await (const _ of cancelled) cancelled.cancel();
found.cancelled = [cancelled.ids.length, cancelled.reason];

// A device that is lost in mid-sentence takes all parts with it; the source is not read again.
found.lost = [];
for (const at of [0, 2]) {
  const resumes = await made({ reopen: parts });
  const { decoder } = resumes;
  const { run } = decoder.session;
  let left = at;
  const before = decoder.session;
  decoder.session.run = (...given) => (left-- > 0 ? run.apply(before, given) : Promise.reject(new Error("the device was lost")));
  const text = await all(resumes.generate([11], { maxNewTokens: 10, temperature: 0 }));
  const next = await all(resumes.generate([5, 9, 3, 7, 1], { maxNewTokens: 10, temperature: 0 }));
  found.lost.push([text.ids, next.ids]);
}
found.errors = [];
for (const ask of [
  () => t5.generate([64]),
  () => t5.generate(new Tensor("float32", new Float32Array(4), [1, 4])),
  async () => new Generator(await open("t5-next")),
  async () => new Generator(await open("t5-next"), { encoder: await open("t5-encoder"), first: await open("t5-first") }).generate([1]),
  async () => (await made({ context: 8 })).generate([1], { decoderInputIds: new Array(9).fill(3) }),
])
  found.errors.push(await message((async () => ask())()));

const { starts, never, neverFirst, count } = whisper;
const listens = new Generator(await open("whisper"), {
  encoder: await open("whisper-encoder"), decoderInputIds: starts, suppressTokens: never, beginSuppressTokens: neverFirst, ends: [],
});
const sound = new Tensor("float32", new Float32Array(readFileSync(join(folder, "sound.f32")).buffer.slice(0, 4 * 240000)), [80, 3000]);
found.whisper = (await all(listens.generate(sound, { maxNewTokens: count, temperature: 0 }))).ids;
found.whisperBeams = (await listens.search(sound, { numBeams: 3, maxNewTokens: count }))[0];
found.whisperError = await message((async () => listens.generate([3, 1]))());
await Promise.all(opened.map((session) => session.release()));
process.stdout.write(JSON.stringify(found), () => process.exit(0));
