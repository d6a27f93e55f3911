/** Text in and out, by a tokenizer in the Hugging Face format. */
import { button, h } from "../ui/dom.js";
import { isFloat, reader, store, whole, type Tensor, type Tensors, type Value } from "../ui/tensor.js";
import { tokenizerOf } from "../ui/tokenizer.js";
import { arrayOf } from "../../player/dtypes.js";
import type { Words } from "../../tokenizer/words.js";
import {
  panel,
  valueOf,
  type Context,
  type InputPanel,
  type OutputPanel,
  type TextInput,
  type TextOutput,
} from "./panel.js";

const PAUSE = 120;

const tokenizer = async (context: Context, asset: string): Promise<Words> => tokenizerOf(await context.asset(asset));

export class TextPanel implements InputPanel {
  readonly element: HTMLElement;
  readonly #area: HTMLTextAreaElement;
  readonly #count = h("span", { class: "pwx-soft" });
  readonly #values: Value[];
  #tokenizer: Words | undefined;
  #failed: unknown;

  constructor(
    inputs: readonly Value[],
    readonly spec: TextInput,
    context: Context,
  ) {
    this.#values = spec.inputs.map((name) => valueOf(inputs, name));
    let timer = 0;
    this.#area = h("textarea", {
      class: "pwx-input",
      value: spec.value,
      placeholder: "Type some text",
      spellcheck: false,
      "aria-label": "Text for the model",
      oninput: () => {
        clearTimeout(timer);
        timer = window.setTimeout(() => context.change(), PAUSE);
      },
      // Notebooks have commands on plain keys.
      onkeydown: (event: KeyboardEvent) => event.stopPropagation(),
    });
    context.signal.addEventListener("abort", () => clearTimeout(timer));
    const choices = spec.examples.map((text) =>
      button(text.length > 40 ? `${text.slice(0, 39)}…` : text, () => {
        this.#area.value = text;
        context.change();
      }),
    );
    const examples = choices.length
      ? h("div", { class: "pwx-row", role: "group", "aria-label": "Examples" }, ...choices)
      : null;
    this.element = panel("Text", spec.inputs.join(", "), this.#area, ...(examples ? [examples] : []), this.#count);
    tokenizer(context, spec.tokenizer)
      .then((loaded) => (this.#tokenizer = loaded))
      .catch((error: unknown) => (this.#failed = error))
      .finally(() => context.change());
  }

  loading(): boolean {
    return !this.#tokenizer && !this.#failed;
  }

  feeds(): Tensors | undefined {
    if (this.#failed) throw this.#failed;
    if (!this.#tokenizer || !this.#area.value.trim()) {
      this.#count.textContent = "";
      return undefined;
    }
    const { max_length: most, pad, roles } = this.spec;
    const { ids } = this.#tokenizer.encode(this.#area.value);
    const kept = ids.length > most ? [...ids.slice(0, most - 1), ids.at(-1)!] : [...ids];
    this.#count.textContent = `${whole(ids.length)} tokens${ids.length > most ? `, cut to ${whole(most)}` : ""}`;
    const rows: Record<string, number[]> = {
      ids: kept,
      mask: kept.map(() => 1),
      types: kept.map(() => 0),
      positions: kept.map((_, i) => i),
    };
    return Object.fromEntries(
      this.#values.map((value) => {
        const row = rows[roles[value.name]!]!;
        const length = value.shape.at(-1);
        const full =
          typeof length === "number"
            ? Array.from({ length }, (_, i) => row[i] ?? (roles[value.name] === "ids" ? (pad ?? 0) : 0))
            : row;
        return [value.name, tensor(value, full)];
      }),
    );
  }
}

function tensor({ type, shape }: Value, row: readonly number[]): Tensor {
  const data = new (arrayOf(type))(row.length);
  row.forEach((v, i) => store(type, data)(i, v));
  return { type, dims: shape.length === 1 ? [row.length] : [1, row.length], data };
}

/** Token ids, or the likeliest token per position of logits, as text. */
export class TextShow implements OutputPanel {
  readonly element: HTMLElement;
  readonly #text = h("output", { class: "pwx-text" });
  #tokenizer: Words | undefined;
  #failed: unknown;

  constructor(
    readonly value: Value,
    spec: TextOutput,
    context: Context,
  ) {
    this.element = panel(value.name, isFloat(value.type) ? "likeliest token at each position" : "", this.#text);
    tokenizer(context, spec.tokenizer)
      .then((loaded) => (this.#tokenizer = loaded))
      .catch((error: unknown) => (this.#failed = error))
      .finally(() => context.change());
  }

  show(results: Tensors): void {
    if (this.#failed) throw this.#failed;
    const result = results[this.value.name];
    if (!result || !this.#tokenizer) return;
    this.#text.textContent = this.#tokenizer.decode(tokens(result), { skip_special_tokens: true });
  }

  clear(): void {
    this.#text.textContent = "";
  }
}

function tokens(result: Tensor): number[] {
  const at = reader(result);
  if (!isFloat(result.type)) return Array.from({ length: result.data.length }, (_, i) => at(i));
  const width = result.dims.at(-1) ?? 1;
  return Array.from({ length: width ? result.data.length / width : 0 }, (_, row) => {
    let best = 0;
    for (let i = 1; i < width; i++) if (at(row * width + i) > at(row * width + best)) best = i;
    return best;
  });
}
