import { InferenceSession } from "pyonnx-wasm";
import { Generator, type Generation, type Settings, type Token } from "pyonnx-wasm/generate";
import { Words } from "../../tokenizer/words.js";
import { offline } from "../offline.js";
import { bar, describe, element, fail, megabytes, milliseconds, onDrop, read, setBar } from "../common.js";

const PAUSE = 350;
const SHOWN = 5;
const IDEAS = [
  "In the beginning",
  "And the king said unto",
  "Blessed are",
  "The words of the wise are",
  "And behold, a",
];

const text = element<HTMLTextAreaElement>("text");
const next = element("next");
const status = element("status");
const tip = element("tip");
const buttons = { keep: element<HTMLButtonElement>("keep"), again: element<HTMLButtonElement>("again") };
const stop = element<HTMLButtonElement>("stop");

function field(id: string): HTMLInputElement {
  return element<HTMLInputElement>(id);
}

function settings(): Settings {
  const value = (id: string): number => field(id).valueAsNumber || 0;
  return {
    temperature: value("temperature"),
    topK: value("top-k"),
    topP: value("top-p"),
    minP: value("min-p"),
    repetitionPenalty: value("penalty"),
    maxNewTokens: value("length"),
    seed: Math.max(0, Math.round(value("seed"))),
    likely: SHOWN,
  };
}

/** A token's text as a list shows it: what cannot be seen has a sign. */
function visible(word: string): string {
  return word.replaceAll("\n", "↵").replace(/^ /, "␣") || "…";
}

/** What else the model had in mind, beside the word that it chose. */
function explain(at: HTMLElement, token: Token, word: (id: number) => string): void {
  const chosen = { id: token.id, probability: token.probability };
  const shown = token.likely.some(({ id }) => id === token.id) ? token.likely : [...token.likely.slice(0, -1), chosen];
  const rows = shown.map(({ id, probability }) => {
    const row = bar(visible(word(id)));
    setBar(row, probability, id === token.id);
    return row;
  });
  tip.firstElementChild!.replaceChildren(...rows);
  tip.hidden = false;
  const place = at.getBoundingClientRect();
  const left = Math.min(place.left, document.documentElement.clientWidth - tip.offsetWidth - 16);
  tip.style.left = `${Math.max(left, 16) + scrollX}px`;
  tip.style.top = `${place.bottom + scrollY + 6}px`;
}

class Page {
  private current: Generation | undefined;
  private timer = 0;

  constructor(private generator: Generator) {}

  /** Goes on with another model. */
  async turn(generator: Generator): Promise<void> {
    const before = this.generator;
    this.cancel();
    this.generator = generator;
    await this.write();
    await before.release();
  }

  /** Writes on from the text, once nobody types. */
  soon(): void {
    clearTimeout(this.timer);
    this.cancel();
    this.timer = window.setTimeout(() => void this.again(), PAUSE);
  }

  /** Writes; what went wrong is told, and what had come before stays. */
  async again(): Promise<void> {
    try {
      status.classList.remove("failed");
      await this.write();
    } catch (error) {
      fail(status, error);
    }
  }

  cancel(): void {
    this.current?.cancel();
  }

  /** What was written becomes the text. */
  keep(): void {
    text.value += next.textContent;
    this.soon();
    text.focus();
  }

  async write(): Promise<void> {
    next.replaceChildren();
    tip.hidden = true;
    for (const button of Object.values(buttons)) button.disabled = true;
    if (!text.value.trim()) return;
    const generation = this.generator.generate(text.value, settings());
    this.current = generation;
    next.classList.add("busy");
    stop.disabled = false;
    try {
      for await (const token of generation) {
        if (this.current !== generation) return;
        this.add(token);
      }
    } finally {
      if (this.current === generation) this.ended(generation);
    }
  }

  private ended(generation: Generation): void {
    next.classList.remove("busy");
    stop.disabled = true;
    for (const button of Object.values(buttons)) button.disabled = !next.textContent;
    const { promptTokens, reusedTokens, prefillMs, decodeRate, newTokens } = generation.statistics;
    if (!newTokens) return;
    const before = `${promptTokens - reusedTokens} tokens read in ${milliseconds(prefillMs)}`;
    status.textContent = `${describe(this.generator.session)} · ${before} · ${decodeRate.toFixed(0)} tokens per second`;
  }

  private add(token: Token): void {
    const span = document.createElement("span");
    span.textContent = token.text;
    span.tabIndex = 0;
    span.style.setProperty("--p", token.probability.toFixed(3));
    span.setAttribute("aria-label", `${token.text.trim()}, ${(100 * token.probability).toFixed(0)} percent`);
    span.setAttribute("role", "text");
    const show = (): void => explain(span, token, (id) => this.generator.decode([id]));
    for (const kind of ["pointerenter", "focus"]) span.addEventListener(kind, show);
    for (const kind of ["pointerleave", "blur"]) span.addEventListener(kind, () => (tip.hidden = true));
    next.append(span);
  }
}

/** A file's bytes, told as they come. */
async function loaded(name: string): Promise<ArrayBuffer> {
  const response = await read(name);
  const total = Number(response.headers.get("content-length"));
  const parts: BlobPart[] = [];
  let have = 0;
  const reader = response.body!.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    have += part.value.length;
    element("phase").textContent = `Loading the model: ${megabytes(have)}${total ? ` of ${megabytes(total)}` : ""}`;
    element<HTMLProgressElement>("progress").value = total ? have / total : 0;
  }
  return new Blob(parts).arrayBuffer();
}

const OWN = { tokenizer: "tokenizer.json", model: "write.ponnx" };

/** The page's own model. */
async function own(): Promise<Generator> {
  const [tokenizer, model] = await Promise.all([
    read(OWN.tokenizer).then((response) => response.json() as Promise<object>),
    loaded(OWN.model),
  ]);
  const reopen = async (): Promise<InferenceSession> =>
    InferenceSession.create(await (await read(OWN.model)).arrayBuffer(), PINNED);
  return made(model, tokenizer, reopen);
}

const PINNED = { preferredOutputLocation: "cpu-pinned" } as const;

async function made(
  model: ArrayBuffer,
  tokenizer: object,
  reopen: () => Promise<InferenceSession>,
): Promise<Generator> {
  const options = { tokenizer: new Words(tokenizer), overflow: "slide", reopen } as const;
  return new Generator(await InferenceSession.create(model, PINNED), options);
}

/** Models of one's own: a file of the model, and the tokenizer.json that came with it, together or one after the other. */
class Guests {
  private model: File | undefined;
  private tokenizer: object | undefined;

  constructor(private readonly page: Page) {}

  async take(files: readonly File[]): Promise<void> {
    try {
      for (const file of files)
        if (file.name.endsWith(".json")) this.tokenizer = JSON.parse(await file.text()) as object;
        else this.model = file;
      const { model, tokenizer } = this;
      if (!model || !tokenizer) {
        const [have, need] = model
          ? [model.name, "the tokenizer.json that belongs to it"]
          : ["The tokenizer", "its model"];
        status.textContent = `${have} is here; now drop ${need}.`;
        return;
      }
      status.textContent = `Opening ${model.name}`;
      const reopen = async (): Promise<InferenceSession> => InferenceSession.create(await model.arrayBuffer(), PINNED);
      const generator = await made(await model.arrayBuffer(), tokenizer, reopen);
      element("about").textContent = `${model.name} writes on, in this page; it was not sent anywhere.`;
      [this.model, this.tokenizer] = [undefined, undefined];
      await this.page.turn(generator);
    } catch (error) {
      this.model = undefined;
      fail(status, error);
    }
  }
}

async function start(): Promise<void> {
  const page = new Page(await own());
  element("loading").hidden = true;
  connect(page);
  const guests = new Guests(page);
  const files = element<HTMLInputElement>("files");
  files.addEventListener("change", () => void guests.take([...(files.files ?? [])]).then(() => (files.value = "")));
  element("open").addEventListener("click", () => files.click());
  onDrop(document.documentElement, (dropped) => void guests.take(dropped));
  await page.again();
  void offline(["tokenizer.json", "write.ponnx"]).then((kept) => (element("offline").hidden = !kept));
}

function connect(page: Page): void {
  text.addEventListener("input", () => page.soon());
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || buttons.keep.disabled) return;
    event.preventDefault();
    page.keep();
  });
  buttons.keep.addEventListener("click", () => page.keep());
  buttons.again.addEventListener("click", () => {
    field("seed").value = String((settings().seed! as number) + 1);
    page.soon();
  });
  stop.addEventListener("click", () => page.cancel());
  for (const input of document.querySelectorAll<HTMLInputElement>(".fields input")) {
    const value = input.parentElement?.querySelector(".value");
    const show = (): void => void (value && (value.textContent = input.value));
    input.addEventListener("input", () => {
      show();
      page.soon();
    });
    show();
  }
  for (const idea of IDEAS) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = idea;
    button.addEventListener("click", () => {
      text.value = idea;
      page.soon();
    });
    element("ideas").append(button);
  }
}

/** Opens the page's model; where that fails, a button tries again. */
function begin(): void {
  start().catch((error: unknown) => {
    fail(status, error);
    retry.hidden = false;
  });
}

const retry = element<HTMLButtonElement>("retry");
retry.addEventListener("click", () => {
  retry.hidden = true;
  status.textContent = "";
  status.classList.remove("failed");
  begin();
});
begin();
