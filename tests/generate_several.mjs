// node tests/generate_several.mjs FOLDER: several texts at a time and beam search by js/dist/generate.mjs, as JSON.
// FOLDER has wide.ponnx, which reads several texts in a run, one.ponnx, which reads one, beams.ponnx and asked.json.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Generator } from "../js/dist/generate.mjs";
import { InferenceSession } from "../js/dist/index.mjs";

const folder = process.argv[2];
const { prompts, settings, beams } = JSON.parse(readFileSync(join(folder, "asked.json"), "utf8"));
const words = { encode: (text) => ({ ids: Array.from(text, (c) => c.charCodeAt(0) - 97) }), decode: (ids) => ids.map((i) => `<${i}>`).join("") };
const options = { tokenizer: words, chunk: 3, ends: [] };
const opened = [];
const open = async (name = "wide") => {
  opened.push(await InferenceSession.create(readFileSync(join(folder, `${name}.ponnx`)), { preferredOutputLocation: "cpu-pinned" }));
  return opened.at(-1);
};
const made = async (name, more = {}) => new Generator(await open(name), { ...options, ...more });
const all = async (many) => {
  const told = many.texts.map(() => []);
  for await (const { index, token } of many) told[index].push(token.id);
  return told;
};
const ids = ({ texts }) => texts.map((text) => text.ids);
const message = (promise) => promise.then(() => "", (error) => `${error.name}: ${error.message}`);
/** A session whose runs fail from the `at`-th on. */
const failing = (session, at) => {
  const { run } = session;
  let left = at;
  session.run = (...given) => (left-- > 0 ? run.apply(session, given) : Promise.reject(new Error("the device was lost")));
  return session;
};
const found = {};

// As many runs as the longest text wants, and a few more: those that wait for one token share them.
const wide = await made("wide");
const { run } = wide.session;
let runs = 0;
wide.session.run = (...given) => (runs++, run.apply(wide.session, given));
const many = wide.generateMany(prompts, settings, 2);
found.told = await all(many);
found.many = ids(many);
found.reasons = many.texts.map(({ reason }) => reason);
found.runs = [runs];
runs = 0;
await all(wide.generateMany(prompts, settings));
found.runs.push(runs);
const on = wide.generateMany([[...many.texts[4].prompt, ...many.texts[4].ids]], { ...settings, maxNewTokens: 4 }, 8);
await all(on);
found.goesOn = [ids(on)[0], on.texts[0].statistics.reusedTokens];
delete wide.session.run;

// Models that read one text, drafts, texts that slide.
const one = (await made("one")).generateMany(prompts, settings);
await all(one);
found.one = ids(one);
const drafted = (await made("wide", { draft: "prompt" })).generateMany(prompts, settings);
await all(drafted);
found.drafted = ids(drafted);
const slides = (await made("wide", { overflow: "slide" })).generateMany(prompts, { ...settings, maxNewTokens: 45 });
await all(slides);
found.slid = ids(slides);

// Each by its own settings; two askers at the same time; one is cancelled, one stops, the rest go on.
const own = prompts.map((_, k) => ({ ...settings, maxNewTokens: 3 + k, temperature: k / 2 }));
const [first, second] = [wide.generateMany(prompts, own), wide.generateMany(prompts.slice(0, 2), settings)];
await Promise.all([all(first), all(second)]);
found.own = [ids(first), ids(second)];
const stop = `<${many.texts[3].ids[2]}>`;
const ends = wide.generateMany(prompts, prompts.map((_, k) => ({ ...settings, stop: k === 3 ? [stop] : [] })));
for await (const { index } of ends) if (index === 1 && ends.texts[1].ids.length === 4) ends.texts[1].cancel();
found.ends = ends.texts.map(({ reason, ids, text }) => [reason, ids, text]);
const left = wide.generateMany(prompts, settings);
for await (const _ of left) if (left.texts[0].ids.length === 2) break;
found.left = [left.texts.map(({ reason }) => reason), wide.joint.busy];

// Devices that are lost while prompts are read and later, one that never comes back, logits that are no numbers.
found.resumed = [];
for (const at of [9, 14, 20]) {
  const texts = new Generator(failing(await open(), at), { ...options, reopen: open }).generateMany(prompts, settings);
  await all(texts);
  found.resumed.push(ids(texts));
}
const never = new Generator(failing(await open(), 20), { ...options, reopen: async () => failing(await open(), 0) });
const lost = never.generateMany(prompts, settings);
found.lost = [await message(all(lost)), lost.texts.map(({ reason }) => reason), ids(lost)];
const damaged = await made("wide");
const { execute } = damaged.decoder;
damaged.decoder.execute = async (request) => {
  const result = await execute.call(damaged.decoder, request);
  if (result.rows.length === 3 && damaged.joint.rows[1]?.text.ids.length === 5) result.rows[1].fill(NaN);
  return result;
};
const broken = damaged.generateMany(prompts.slice(0, 3), settings);
found.nan = [await message(all(broken)), broken.texts.map(({ reason }) => reason), ids(broken)];
found.errors = [];
for (const ask of [() => wide.generateMany(prompts, settings, 0), () => wide.generateMany([[1], new Array(40).fill(5)])]) found.errors.push(await message((async () => ask())()));

const searches = await made("beams", { ends: [1, 17, 30] });
found.beams = [];
for (const { prompt, how } of beams) found.beams.push(await searches.search(prompt, { ...how, maxNewTokens: 10 }));
const again = new Generator(failing(await open("beams"), 5), { ...options, ends: [1, 17, 30], reopen: () => open("beams") });
found.resumedBeams = await again.search(beams[0].prompt, { ...beams[0].how, maxNewTokens: 10 });
const wrong = [{ numBeams: 0 }, { numReturn: 5 }, { maxNewTokens: 0 }, { earlyStopping: "soon" }, { signal: AbortSignal.abort() }];
found.asked = [];
for (const settings of wrong) found.asked.push(await message(searches.search([3], settings)));
found.asked.push(await message(searches.search(new Array(64).fill(3))), await message((await made("one")).search([3])));
const nan = await made("beams");
nan.decoder.another = () => Object.assign(Object.create(nan.decoder), { read: async () => [new Float32Array(64).fill(NaN)] });
found.asked.push(await message(nan.search([3])));

await Promise.all(opened.map((session) => session.release()));
process.stdout.write(JSON.stringify(found), () => process.exit(0));
