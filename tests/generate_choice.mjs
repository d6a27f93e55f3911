// node tests/generate_choice.mjs PLAIN.ponnx CHOICE.ponnx: greedy texts of a model that tells its most likely token itself, as JSON.
import { readFileSync } from "node:fs";
import { Generator } from "../js/dist/generate.mjs";
import { InferenceSession } from "../js/dist/index.mjs";

const [, , plain, choice] = process.argv;
const sessions = [];
const made = async (path, more = {}) => {
  sessions.push(await InferenceSession.create(readFileSync(path), { preferredOutputLocation: "cpu-pinned" }));
  return new Generator(sessions.at(-1), { ends: [], chunk: 2, ...more });
};
const asked = [
  { temperature: 0 },
  { temperature: 0, likely: 2 },
  { temperature: 0, repetitionPenalty: 1.3 },
  { seed: 5, topK: 5 },
];
const found = { texts: [], fetched: [] };
for (const path of [plain, choice])
  for (const draft of [undefined, "prompt"]) {
    const generator = await made(path, { draft });
    const { run } = generator.session;
    for (const settings of asked) {
      const outputs = new Set();
      generator.session.run = (feeds, names) => (outputs.add(names.filter((name) => !name.startsWith("present")).join("+")), run.call(generator.session, feeds, names));
      const text = generator.generate([3, 1, 4, 1, 5, 3, 1], { maxNewTokens: 12, ...settings });
      const told = [];
      for await (const { probability } of text) told.push(probability);
      found.texts.push([text.ids, told]);
      found.fetched.push([...outputs]);
    }
  }
const nan = await made(choice);
const { execute } = nan.decoder;
nan.decoder.execute = async (request) => {
  const result = await execute.call(nan.decoder, request);
  if (nan.decoder.ids.length > 5) result.rows[0] = new result.rows[0].constructor([1], [NaN], NaN, 8000);
  return result;
};
const broken = nan.generate([3, 1, 4], { temperature: 0 });
found.nan = await (async () => {
  for await (const _ of broken);
})().catch((error) => error.message);
found.kept = [broken.ids.length, broken.reason];
// Logits that were to be read later and are gone: the run is made again.
found.gone = [];
for (const many of [false, true])
  for (const at of [0, 3]) {
    const generator = await made(choice, { reopen: async () => (await made(choice)).session });
    const { session } = generator;
    const { run } = session;
    let left = at;
    session.run = async (...given) => {
      const results = await run.apply(session, given);
      if (results.logits && left-- === 0) results.logits.getData = () => Promise.reject(new Error("the device was lost"));
      return results;
    };
    const how = { maxNewTokens: 12, seed: 5, topK: 5 };
    const text = many ? generator.generateMany([[3, 1, 4, 1, 5, 3, 1]], how) : generator.generate([3, 1, 4, 1, 5, 3, 1], how);
    for await (const _ of text);
    found.gone.push((text.texts?.[0] ?? text).ids);
  }
await Promise.all(sessions.map((session) => session.release()));
process.stdout.write(JSON.stringify(found), () => process.exit(0));
