/** A form made from a session's signature. */
import { type InferenceSession, Tensor } from "pyonnx-wasm";

type Metadata = InferenceSession["inputMetadata"][number];

/** What a model may say about an input, under the key `form` of its metadata: all of it can be missing. */
export interface About {
  /** Values of a string that the model knows. */
  readonly choices?: readonly string[];
  /** The usual range of a number. */
  readonly low?: number;
  readonly high?: number;
  readonly step?: number;
  /** What the form begins with. */
  readonly start?: string | number;
  /** A text of more than a few words. */
  readonly long?: boolean;
  /** Texts to try. */
  readonly examples?: readonly string[];
  readonly hint?: string;
}

const WHOLE = /^u?int\d+$/;
const REAL = /^(b?float\d+)$/;
const FEW = 4;

/** A name as a person writes it: `errors_per_minute` is “Errors per minute”. */
export function title(name: string): string {
  const words = name.replace(/[_.]+/g, " ").trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** What a text means to an input: a string, a number or a boolean. Throws an error that says what it takes. */
export function valueOf({ name, type }: Metadata, text: string): string | number | bigint | boolean {
  const given = text.trim();
  if (type === "string") return text;
  if (type === "bool") return !/^(false|no|0|)$/i.test(given);
  if (WHOLE.test(type) && !/^[+-]?\d+$/.test(given))
    throw new Error(`${title(name)} takes a whole number, not “${given}”`);
  if (!given || !Number.isFinite(Number(given))) throw new Error(`${title(name)} takes a number, not “${given}”`);
  return type === "int64" || type === "uint64" ? BigInt(given) : Number(given);
}

/** Texts of one column as the input's tensor: `[rows, 1]`, or `[rows]` where that is its rank. */
export function columnOf(input: Metadata, texts: readonly string[]): Tensor {
  const values = texts.map((text) => valueOf(input, text));
  const dims = input.shape.map((_, axis) => (axis ? 1 : texts.length));
  return new Tensor(input.type, values as never, dims);
}

/** One input as labelled fields. */
export class Field {
  readonly row: HTMLElement;
  readonly #input: Metadata;
  readonly #read: () => string;
  readonly #fields: HTMLInputElement[] = [];

  constructor(input: Metadata, about: About, changed: () => void) {
    this.#input = input;
    const id = `field-${input.name}`;
    const few = input.type === "string" && about.choices !== undefined && about.choices.length <= FEW;
    this.row = document.createElement(few ? "fieldset" : "div");
    this.row.className = about.long ? "field wide" : "field";
    const label = document.createElement(few ? "legend" : "label");
    if (label instanceof HTMLLabelElement) label.htmlFor = id;
    label.append(title(input.name), part("code", input.type));
    this.row.append(label);
    this.#read = few ? this.#radios(about, id) : this.#control(about, id);
    if (about.hint) {
      const hint = part("span", about.hint);
      hint.className = "hint";
      hint.id = `${id}-hint`;
      this.row.append(hint);
      this.row.querySelector(`#${CSS.escape(id)}`)?.setAttribute("aria-describedby", hint.id);
    }
    this.row.addEventListener("input", changed);
  }

  /** The input's tensor for one row; marks the field where it holds nothing of use, and throws what is wrong. */
  tensor(): Tensor {
    let wrong = "";
    try {
      return columnOf(this.#input, [this.#read()]);
    } catch (error) {
      wrong = error instanceof Error ? error.message : String(error);
      throw error;
    } finally {
      for (const field of this.#fields) field.setAttribute("aria-invalid", String(wrong !== ""));
    }
  }

  #radios({ choices = [], start }: About, id: string): () => string {
    const group = document.createElement("div");
    group.className = "choice";
    for (const value of choices) {
      const label = document.createElement("label");
      const radio = Object.assign(document.createElement("input"), { type: "radio", name: id, value });
      radio.checked = value === (start ?? choices[0]);
      label.append(radio, value);
      group.append(label);
    }
    this.row.append(group);
    return () => group.querySelector<HTMLInputElement>(":checked")?.value ?? "";
  }

  #control(about: About, id: string): () => string {
    const { type } = this.#input;
    const start = String(about.start ?? (type === "string" ? "" : 0));
    if (type === "bool") {
      const box = Object.assign(document.createElement("input"), { type: "checkbox", id, checked: start === "true" });
      this.row.append(box);
      return () => String(box.checked);
    }
    if (type === "string") {
      const field = about.choices ? select(about.choices) : document.createElement(about.long ? "textarea" : "input");
      Object.assign(field, { id, value: start });
      if (field instanceof HTMLTextAreaElement) field.rows = 3;
      this.row.append(field, ...this.#examples(about.examples ?? [], field));
      return () => field.value;
    }
    if (!WHOLE.test(type) && !REAL.test(type))
      throw new Error(`a form cannot ask for ${type} (input ${this.#input.name})`);
    return this.#number(about, id, start);
  }

  #examples(texts: readonly string[], field: { value: string }): HTMLElement[] {
    if (!texts.length) return [];
    const group = document.createElement("div");
    group.className = "ideas";
    group.role = "group";
    group.ariaLabel = "Examples";
    for (const text of texts) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      button.addEventListener("click", () => {
        field.value = text;
        button.dispatchEvent(new Event("input", { bubbles: true }));
      });
      group.append(button);
    }
    return [group];
  }

  /** A number, and a slider over its usual range beside it. */
  #number({ low, high, step }: About, id: string, start: string): () => string {
    const steps = String(step ?? (WHOLE.test(this.#input.type) ? 1 : "any"));
    const field = Object.assign(document.createElement("input"), { type: "number", id, step: steps, value: start });
    field.inputMode = "decimal";
    this.#fields.push(field);
    const pair = document.createElement("div");
    pair.className = "number";
    if (low !== undefined && high !== undefined) {
      const slider = document.createElement("input");
      Object.assign(slider, { type: "range", min: String(low), max: String(high), step: steps, value: start });
      slider.setAttribute("aria-label", `${title(this.#input.name)}, slider`);
      slider.addEventListener("input", () => (field.value = slider.value));
      field.addEventListener("input", () => (slider.value = field.value));
      pair.append(slider);
    }
    pair.append(field);
    this.row.append(pair);
    return () => field.value;
  }
}

function select(choices: readonly string[]): HTMLSelectElement {
  const field = document.createElement("select");
  field.append(...choices.map((value) => new Option(value)));
  return field;
}

function part(kind: string, text: string): HTMLElement {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}
