/** A conversation: messages, an answer that comes word by word, and what its user may do with it. */
import { Template } from "@huggingface/jinja";
import { Generator, type Generation } from "../../player/generate.mjs";
import type * as player from "../../player/index.js";
import { button, field, h, messageOf } from "../ui/dom.js";
import { Frame } from "../ui/frame.js";
import type { Runnable } from "../ui/host.js";
import type { PageHost } from "../ui/mount.js";
import { tokenizerOf } from "../ui/tokenizer.js";

export interface Message {
  readonly role: "user" | "assistant";
  readonly content: string;
}

export interface Settings {
  readonly max_new_tokens: number;
  readonly temperature: number;
  readonly top_k: number;
  readonly top_p: number;
  readonly min_p: number;
  readonly repetition_penalty: number;
  /** None of Python; Pyodide makes undefined of it. */
  readonly seed?: number | null;
}

export interface Spec {
  readonly title: string;
  readonly backends: readonly string[];
  readonly tokenizer: string;
  /** Null: the model goes on with the text of all messages. */
  readonly template?: string | null;
  readonly hints: {
    readonly context_length?: number;
    readonly bos?: number;
    readonly eos?: number;
    readonly ends?: readonly number[];
  };
}

export interface Options {
  readonly spec: Spec;
  readonly host: PageHost;
  readonly signal: AbortSignal;
  /** The player whose sessions `host` opens. */
  player(): Promise<typeof player>;
  settings(): Settings;
  onMessages(messages: readonly Message[]): void;
  onSystem(system: string): void;
  onSettled(element: HTMLElement): void;
}

/** Within this many pixels of its end the log follows what is written. */
const NEAR_END = 40;

export class Chat {
  readonly element: HTMLElement;
  readonly #frame: Frame;
  readonly #log = h("div", {
    class: "pwx-log",
    role: "log",
    "aria-label": "Messages",
    "data-still": "newest",
    tabIndex: 0,
  });
  readonly #system = h("textarea", { class: "pwx-input pwx-brief", rows: 2, spellcheck: false });
  readonly #text = h("textarea", {
    class: "pwx-input pwx-brief",
    rows: 2,
    placeholder: "Write a message",
    "aria-label": "Message",
    title: "Enter sends, Shift + Enter begins a line",
    "data-lm-suppress-shortcuts": "true", // in JupyterLab, Shift + Enter runs the cell
  });
  readonly #send = button("Send", () => this.#submit(), { icon: "play" });
  readonly #stop = button("Stop", () => this.#generation?.cancel(), { icon: "stop" });
  readonly #again = button("Another answer", () => this.#regenerate(), { icon: "reset" });
  readonly #clear = button("New chat", () => this.#change([]), { icon: "clear" });
  readonly #empty = h("p", { class: "pwx-soft" }, "Nothing has been said yet.");
  #messages: Message[] = [];
  #generator: Generator | undefined;
  #template: Template | undefined;
  #words: Record<string, string> = {};
  #generation: Generation | undefined;
  #answer: Promise<void> = Promise.resolve();

  constructor(readonly options: Options) {
    const { spec } = options;
    this.#frame = new Frame(spec.title, "chat");
    this.element = this.#frame.element;
    const told = h("details", { class: "pwx-strip", "data-still": "no" }, h("summary", {}, "System prompt"));
    told.append(field("What the model is told first", this.#system));
    this.#system.addEventListener("change", () => options.onSystem(this.#system.value));
    this.#text.addEventListener("keydown", (event) => {
      // Enter that ends a word of an input method is none of ours.
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      // JupyterLab takes the key's own line away.
      const { selectionStart: from, selectionEnd: to } = this.#text;
      if (event.shiftKey) this.#text.setRangeText("\n", from, to, "end");
      else this.#submit();
    });
    const form = h(
      "div",
      { class: "pwx-say", "data-still": "no" },
      this.#text,
      h("div", { class: "pwx-row" }, this.#send, this.#stop),
    );
    const body = h("div", { class: "pwx-conversation" }, this.#log, form);
    this.#frame.body.replaceWith(spec.template ? h("div", {}, told, body) : body);
    this.#frame.tools.append(this.#again, this.#clear);
    this.#paint();
    void this.#load();
  }

  /** What Python set. */
  show(messages: readonly Message[], system: string): void {
    if (this.#system.value !== system) this.#system.value = system;
    if (JSON.stringify(messages) === JSON.stringify(this.#messages)) return;
    this.#generation?.cancel();
    this.#messages = [...messages];
    this.#paint();
  }

  /** All messages, once the answer under way has ended. */
  async current(): Promise<readonly Message[]> {
    await this.#answer;
    return this.#messages;
  }

  /** All messages, once this one has its answer. */
  async ask(text: string): Promise<readonly Message[]> {
    await this.#ready;
    await this.#answer;
    if (!this.#generator) throw new Error("the model could not be opened; the widget says why");
    this.#messages = [...this.#messages, { role: "user", content: text }];
    await this.#write();
    if (this.#failed !== undefined) throw this.#failed;
    return this.#messages;
  }

  #failed: unknown;
  /** Once the model is loaded, or cannot be. */
  #open = false;
  /** Enter was pressed before that. */
  #waiting = false;
  #opened: () => void = () => {};
  readonly #ready = new Promise<void>((done) => (this.#opened = done));

  async #load(): Promise<void> {
    const { spec, host, signal, player } = this.options;
    try {
      const [text, model] = await Promise.all([
        host.asset(spec.tokenizer),
        this.#frame.load(host, spec.backends, signal),
      ]);
      signal.addEventListener("abort", () => {
        this.#generation?.cancel();
        void this.#answer.then(() => model.release()).catch(() => {});
      });
      await this.#made(text, model, await player());
    } catch (error) {
      if (!signal.aborted) this.#frame.alert(error);
    }
    this.#opened();
    this.#open = true;
    if (signal.aborted) return;
    this.#paint();
    if (this.#waiting) this.#submit();
  }

  async #made(text: Uint8Array, model: Runnable, { Tensor }: typeof player): Promise<void> {
    const { spec } = this.options;
    const { ends, context_length: context, ...hints } = spec.hints;
    const tokenizer = tokenizerOf(text);
    const word = (id: number | undefined): string =>
      id === undefined ? "" : tokenizer.decode([id], { skip_special_tokens: false });
    this.#words = { bos_token: word(hints.bos), eos_token: word(hints.eos) };
    try {
      if (spec.template) this.#template = new Template(spec.template);
    } catch (error) {
      throw new Error(`the chat template does not parse: ${messageOf(error)}`);
    }
    const session = model.session as player.InferenceSession;
    const given = { ...(ends ? { ends } : {}), ...(context === undefined ? {} : { context }) };
    this.#generator = new Generator(session, { tokenizer, overflow: "slide", tensor: Tensor, ...given });
  }

  #submit(): void {
    const text = this.#text.value.trim();
    this.#waiting = !this.#open;
    if (!text || this.#generation || !this.#generator) return;
    this.#text.value = "";
    this.#messages = [...this.#messages, { role: "user", content: text }];
    void this.#write();
  }

  /** Another answer to the same message. */
  #regenerate(): void {
    if (this.#generation || !this.#generator) return;
    const last = this.#messages.map(({ role }) => role).lastIndexOf("user");
    this.#messages = this.#messages.slice(0, last + 1);
    void this.#write();
  }

  #change(messages: readonly Message[]): void {
    this.#generation?.cancel();
    this.#messages = [...messages];
    this.#paint();
    this.options.onMessages(this.#messages);
    this.#text.focus();
  }

  #prompt(): string {
    const system = this.#system.value;
    if (!this.#template) return this.#messages.map(({ content }) => content).join("\n");
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.#messages];
    try {
      return this.#template.render({ messages, add_generation_prompt: true, ...this.#words });
    } catch (error) {
      throw new Error(`the chat template fails on these messages: ${messageOf(error)}`);
    }
  }

  #write(): Promise<void> {
    this.#answer = this.#answered();
    return this.#answer;
  }

  async #answered(): Promise<void> {
    const { signal } = this.options;
    const asked = this.#messages;
    this.#failed = undefined;
    this.#frame.alert(undefined);
    let generation: Generation | undefined;
    try {
      this.#generation = generation = this.#generator!.generate(this.#prompt(), this.#settings());
      this.#messages = [...asked, { role: "assistant", content: "" }];
      this.#paint();
      const bubble = this.#log.lastElementChild!.lastElementChild as HTMLElement;
      for await (const { text } of generation) {
        if (signal.aborted) return;
        const follow = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < NEAR_END;
        bubble.append(text);
        if (follow) this.#log.scrollTop = this.#log.scrollHeight;
        this.#frame.status.textContent = `${generation.statistics.decodeRate.toFixed(0)} tokens per second`;
      }
    } catch (error) {
      this.#failed = error;
      if (!signal.aborted) this.#frame.alert(error);
    }
    this.#generation = undefined;
    // What Python or its user put in the answer's place meanwhile stays.
    const waits = this.#messages.length === asked.length + 1 && this.#messages.at(-1)!.content === "";
    const told = generation?.text || (this.#failed === undefined && generation?.reason === "end");
    if (waits) this.#messages = told ? [...asked, { role: "assistant", content: generation!.text }] : asked;
    if (signal.aborted) return;
    this.#paint();
    this.#tell(generation);
    this.options.onMessages(this.#messages);
  }

  #tell(generation: Generation | undefined): void {
    if (!generation?.statistics.newTokens) return;
    const { newTokens, decodeRate } = generation.statistics;
    const reason = { cancelled: ", stopped", length: ", cut at its length" }[generation.reason as string] ?? "";
    this.#frame.status.textContent = `${newTokens} tokens, ${decodeRate.toFixed(0)} per second${reason}`;
  }

  #settings(): Record<string, number> {
    const given = this.options.settings();
    return {
      maxNewTokens: given.max_new_tokens,
      temperature: given.temperature,
      topK: given.top_k,
      topP: given.top_p,
      minP: given.min_p,
      repetitionPenalty: given.repetition_penalty,
      ...(typeof given.seed === "number" ? { seed: given.seed } : {}),
    };
  }

  #paint(): void {
    const bubbles = this.#messages.map(({ role, content }) =>
      h(
        "div",
        { class: `pwx-message pwx-${role}` },
        h("span", { class: "pwx-who" }, role === "user" ? "You" : "Model"),
        h("div", { class: "pwx-text pwx-said" }, content),
      ),
    );
    this.#log.replaceChildren(...(bubbles.length ? bubbles : [this.#empty]));
    this.#log.scrollTop = this.#log.scrollHeight;
    this.#buttons();
    if (this.#open && !this.#generation) this.options.onSettled(this.element);
  }

  #buttons(): void {
    const busy = this.#generation !== undefined;
    this.#log.setAttribute("aria-busy", String(busy));
    this.#send.disabled = busy || !this.#generator;
    this.#stop.disabled = !busy;
    this.#again.disabled = busy || !this.#generator || !this.#messages.some(({ role }) => role === "user");
    this.#clear.disabled = !this.#messages.length;
  }
}
