import { InferenceSession } from "pyonnx-wasm";
import { describe, element, fail, latest, megabytes, milliseconds, read } from "../common.js";
import { Encoder, similarity } from "./encoder.js";

type Sentence = { text: string; topic: string; vector?: Float32Array };

const SHOWN = 8;
const BATCH = 8;
const PAUSE = 120;
const IDEAS = [
  "I can't log in",
  "alone among strangers",
  "lower heating costs",
  "a tiny animal that can fly",
  "instruments out of tune",
  "how machines learn",
];

const query = element<HTMLInputElement>("query");
const status = element("status");

function progress(text: string, done: number): void {
  element("phase").textContent = text;
  element<HTMLProgressElement>("progress").value = done;
}

/** Sentences by topic: a line `# topic`, then one sentence per line. */
function parse(text: string): Sentence[] {
  let topic = "";
  return text.split("\n").flatMap((line) => {
    if (line.startsWith("# ")) topic = line.slice(2);
    return line && !line.startsWith("#") ? [{ text: line, topic }] : [];
  });
}

function show(vector: Float32Array | undefined, sentences: readonly Sentence[]): void {
  const found = vector
    ? sentences
        .flatMap((sentence) => (sentence.vector ? [{ sentence, score: similarity(vector, sentence.vector) }] : []))
        .sort((a, b) => b.score - a.score)
        .slice(0, SHOWN)
    : [];
  element("results").replaceChildren(
    ...found.map(({ sentence, score }) => {
      const item = document.createElement("li");
      const text = document.createElement("div");
      const topic = document.createElement("span");
      const bar = document.createElement("div");
      topic.className = "topic";
      topic.textContent = sentence.topic;
      text.append(topic, sentence.text);
      bar.className = "score";
      bar.innerHTML = `<span class="track" aria-hidden="true"><span class="fill"></span></span><span>${score.toFixed(2)}</span>`;
      bar.style.setProperty("--p", Math.max(0, score).toFixed(3));
      item.append(text, bar);
      return item;
    }),
  );
}

async function start(): Promise<void> {
  const [tokenizer, sentences] = await Promise.all([
    read("tokenizer.json").then((response) => response.json() as Promise<object>),
    read("sentences.txt").then(async (response) => parse(await response.text())),
  ]);
  const session = await InferenceSession.create(new URL("minilm.ponnx", location.href).href, {
    onProgress: ({ loaded, total }) =>
      progress(
        `Loading the model: ${megabytes(loaded)}${total ? ` of ${megabytes(total)}` : ""}`,
        total ? loaded / total : 0,
      ),
  });
  const encoder = new Encoder(session, tokenizer);
  const where = describe(session);

  const search = latest(async (text: string) => {
    if (!text.trim()) return show(undefined, sentences);
    const before = performance.now();
    const [vector] = await encoder.encode([text]);
    const spent = performance.now() - before;
    if (text !== query.value) return;
    show(vector, sentences);
    status.textContent = `${where} · ${milliseconds(spent)} to read ${encoder.tokens(text).length} tokens`;
  });
  const ask = (): void => void search(query.value).catch((error: unknown) => fail(status, error));

  let timer = 0;
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(ask, PAUSE);
  });
  for (const idea of IDEAS) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = idea;
    button.addEventListener("click", () => {
      query.value = idea;
      ask();
    });
    element("ideas").append(button);
  }

  // Sentences of similar length share a batch, so that little of it is padding.
  const order = [...sentences].sort((a, b) => a.text.length - b.text.length);
  const before = performance.now();
  for (let i = 0; i < order.length; i += BATCH) {
    progress(`Reading the sentences: ${i} of ${order.length}`, i / order.length);
    const batch = order.slice(i, i + BATCH);
    const vectors = await encoder.encode(batch.map((sentence) => sentence.text));
    batch.forEach((sentence, j) => (sentence.vector = vectors[j]!));
    if (query.value) ask();
  }
  element("loading").hidden = true;
  status.textContent = `${where} · ${order.length} sentences read in ${milliseconds(performance.now() - before)}`;
  ask();
}

start().catch((error: unknown) => fail(status, error));
