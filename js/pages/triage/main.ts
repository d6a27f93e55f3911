import { InferenceSession, type Tensor } from "pyonnx-wasm";
import { bar, certainty, describe, element, fail, latest, milliseconds, onDrop, read, setBar } from "../common.js";
import { Batch } from "./batch.js";
import { type About, Field, title } from "./form.js";

/** Of a row: what the model answers, and the probability of each answer. */
export interface Answer {
  readonly label: string;
  readonly probabilities: ReadonlyMap<string, number>;
}

export type Answers = (feeds: Record<string, Tensor>) => Promise<Answer[]>;

const MODEL = "triage.ponnx";
const status = element("status");

/** A row's probabilities as the bars show them, most probable marked; none where there is no answer. */
function show(answer: Answer | undefined, rows: Map<string, HTMLElement>): void {
  for (const name of answer?.probabilities.keys() ?? []) {
    if (rows.has(name)) continue;
    const row = bar(title(name));
    rows.set(name, row);
    element("bars").append(row);
  }
  for (const [name, row] of rows) setBar(row, answer?.probabilities.get(name), name === answer?.label);
  if (!answer) return;
  element("answer").textContent = title(answer.label);
  element("words").textContent = certainty(answer.probabilities.get(answer.label) ?? 0);
}

/** What a run of the session says, whatever its outputs are called: a list of maps, and a vector of labels. */
async function answersOf(session: InferenceSession, feeds: Record<string, Tensor>): Promise<Answer[]> {
  const results: unknown[] = Object.values(await session.run(feeds));
  const maps = results.find(Array.isArray) as Map<string, number>[];
  const labels = (results.find((value) => !Array.isArray(value)) as Tensor).data as string[];
  return maps.map((probabilities, i) => ({ label: labels[i]!, probabilities }));
}

async function start(): Promise<void> {
  const model = await (await read(MODEL)).arrayBuffer();
  const session = await InferenceSession.create(model);
  const about = JSON.parse(session.metadata?.custom["form"] ?? "{}") as Record<string, About>;
  const bars = new Map<string, HTMLElement>();
  const answers: Answers = (feeds) => answersOf(session, feeds);

  const predict = latest(async (feeds: Record<string, Tensor>) => {
    const before = performance.now();
    const [answer] = await answers(feeds);
    status.textContent = `${describe(session)} · ${milliseconds(performance.now() - before)}`;
    show(answer, bars);
  });
  const changed = (): void => {
    try {
      const feeds = Object.fromEntries([...fields].map(([name, field]) => [name, field.tensor()]));
      predict(feeds).catch((error: unknown) => fail(status, error));
    } catch (error) {
      show(undefined, bars);
      element("answer").textContent = "";
      element("words").textContent = error instanceof Error ? error.message : String(error);
    }
  };
  const inputs = session.inputMetadata;
  const fields = new Map(inputs.map((input) => [input.name, new Field(input, about[input.name] ?? {}, changed)]));
  element("form").append(...[...fields.values()].map(({ row }) => row));
  element("form").addEventListener("submit", (event) => event.preventDefault());
  changed();

  const batch = new Batch(inputs, answers);
  onDrop(element("drop"), ([file]) => void batch.take(file!));
  const picker = element<HTMLInputElement>("file");
  picker.addEventListener("change", () => {
    const [file] = picker.files ?? [];
    if (file) void batch.take(file);
    picker.value = "";
  });
  const [choose, sample] = [element<HTMLButtonElement>("choose"), element<HTMLButtonElement>("sample")];
  choose.addEventListener("click", () => picker.click());
  sample.addEventListener("click", () => void batch.take(read("held_out.csv"), "held_out.csv"));
  choose.disabled = sample.disabled = false;
}

start().catch((error: unknown) => fail(status, error));
