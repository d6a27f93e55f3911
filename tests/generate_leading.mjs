// What a Generator writes by settings of all kinds, and how many bytes come from where the model runs; for Node and for pages.
export async function written(generator, { prompts, settings, together, beams, limit }) {
  const { session } = generator;
  const run = session.run.bind(session);
  let bytes = 0;
  // An output is read where its data is asked for.
  session.run = async (...given) => {
    const results = await run(...given);
    for (const name of ["choice", "first", "logits"]) {
      const tensor = results[name];
      if (!tensor) continue;
      const getData = tensor.getData.bind(tensor);
      tensor.getData = (...how) => ((bytes += 4 * tensor.size), getData(...how));
    }
    return results;
  };
  const found = { backend: session.backend, texts: [], together: [], beams: [] };
  const count = () => [bytes, (bytes = 0)][0];
  for (const how of settings) {
    const text = generator.generate(prompts[0], { maxNewTokens: limit, ...how });
    const told = [];
    for await (const { probability, likely } of text) told.push([probability, likely]);
    found.texts.push({ ids: text.ids, told, bytes: count() });
  }
  for (const how of together) {
    const texts = generator.generateMany(prompts, { maxNewTokens: limit, ...how });
    for await (const _ of texts);
    found.together.push({ ids: texts.texts.map(({ ids }) => ids), bytes: count() });
  }
  for (const how of beams) {
    const texts = await generator.search(prompts[0], { maxNewTokens: limit, ...how });
    found.beams.push({ ids: texts.map(({ ids }) => ids), scores: texts.map(({ score }) => score), bytes: count() });
  }
  await generator.release();
  return found;
}

const [, main, folder, asked, ...names] = globalThis.process?.argv ?? [];
if (main?.endsWith("generate_leading.mjs")) {
  const { readFileSync } = await import("node:fs");
  const { Generator } = await import("../js/dist/generate.mjs");
  const { InferenceSession } = await import("../js/dist/index.mjs");
  const found = [];
  for (const name of names) {
    const session = await InferenceSession.create(readFileSync(`${folder}/${name}`), { preferredOutputLocation: "cpu-pinned" });
    found.push(await written(new Generator(session, { ends: [] }), JSON.parse(asked)));
  }
  process.stdout.write(JSON.stringify(found), () => process.exit(0));
}
