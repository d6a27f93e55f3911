/** Numbers in: tables, sliders and tensors filled with what one asks for. */
import { button, choice, field, h, integer, messageOf } from "../ui/dom.js";
import { random } from "../ui/fill.js";
import { parseNpy } from "../ui/npy.js";
import { filled, isFloat, signature, size, type Tensor, type Tensors, type Value } from "../ui/tensor.js";
import { bytesOf, elements } from "../../player/dtypes.js";
import {
  panel,
  type Context,
  type Fill,
  type InputPanel,
  type SliderInput,
  type TableInput,
  type TensorInput,
} from "./panel.js";

const MOST_ROWS = 200;

/** A grid of numbers; rows can be added where the model leaves their count open, and tables pasted from spreadsheets. */
export class TablePanel implements InputPanel {
  readonly element: HTMLElement;
  readonly #body = h("tbody");
  readonly #columns: number;
  readonly #open: boolean;
  readonly #add: HTMLButtonElement;

  constructor(
    readonly value: Value,
    readonly spec: TableInput,
    readonly context: Context,
  ) {
    this.#columns = spec.columns.length;
    this.#open = typeof value.shape[0] !== "number";
    const head = h(
      "tr",
      {},
      ...spec.columns.map((name) => h("th", { scope: "col" }, name)),
      ...(this.#open ? [h("th", { "aria-label": "Row" })] : []),
    );
    const table = h(
      "table",
      { class: "pwx-table pwx-edit", "aria-label": `Table for ${value.name}` },
      h("thead", {}, head),
      this.#body,
    );
    this.#add = button("Row", () => this.#append(Array(this.#columns).fill(0) as number[], true), { icon: "plus" });
    this.#add.hidden = !this.#open;
    this.element = panel(
      value.name,
      signature(value),
      h("div", { class: "pwx-scroll" }, table),
      h("div", { class: "pwx-row pwx-below" }, this.#add),
    );
    for (const row of spec.rows) this.#append(row, false);
  }

  feeds(): Tensors {
    const { type } = this.value;
    const cells = [...this.#body.querySelectorAll("input")].map((input) => {
      const v = input.value.trim() === "" ? NaN : Number(input.value);
      const fine = !Number.isNaN(v) || /^nan$/i.test(input.value.trim());
      input.setAttribute("aria-invalid", String(!fine || (!isFloat(type) && !Number.isInteger(v))));
      return fine ? v : undefined;
    });
    const bad = cells.indexOf(undefined);
    if (bad >= 0)
      throw new Error(
        `Row ${Math.floor(bad / this.#columns) + 1}, ${this.spec.columns[bad % this.#columns]}: not a number.`,
      );
    return { [this.value.name]: filled(type, [this.#body.rows.length, this.#columns], (i) => cells[i]!) };
  }

  #append(values: readonly number[], focus: boolean): void {
    if (this.#body.rows.length >= MOST_ROWS) return;
    const row = h("tr");
    const at = this.#body.rows.length + 1;
    for (const [column, value] of values.entries()) {
      const input = h("input", {
        class: "pwx-input",
        value: String(value),
        inputMode: "decimal",
        "aria-label": `Row ${at}, ${this.spec.columns[column]}`,
        oninput: () => this.context.change(),
        onkeydown: (event: KeyboardEvent) => this.#move(event, row, column),
        onpaste: (event: ClipboardEvent) => this.#paste(event, row, column),
      });
      row.append(h("td", {}, input));
    }
    if (this.#open)
      row.append(
        h(
          "td",
          {},
          button("Remove row", () => this.#body.rows.length > 1 && (row.remove(), this.context.change()), {
            icon: "clear",
            bare: true,
          }),
        ),
      );
    this.#body.append(row);
    this.#add.disabled = this.#body.rows.length >= MOST_ROWS;
    if (!focus) return;
    row.querySelector("input")?.focus();
    this.context.change();
  }

  #move(event: KeyboardEvent, row: HTMLTableRowElement, column: number): void {
    event.stopPropagation();
    const step = { ArrowUp: -1, ArrowDown: 1, Enter: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.#body.rows[row.sectionRowIndex + step]?.querySelectorAll("input")[column]?.focus();
  }

  #paste(event: ClipboardEvent, row: HTMLTableRowElement, column: number): void {
    const lines = (event.clipboardData?.getData("text") ?? "")
      .trimEnd()
      .split(/\r?\n/)
      .map((line) => line.split(/\t|;|,(?=\S)/));
    event.stopPropagation();
    if (lines.length === 1 && lines[0]!.length === 1) return;
    event.preventDefault();
    const first = row.sectionRowIndex;
    lines.forEach((cells, r) => {
      if (!this.#body.rows[first + r] && this.#open) this.#append(Array(this.#columns).fill(0) as number[], false);
      const inputs = this.#body.rows[first + r]?.querySelectorAll("input");
      cells.forEach((cell, c) => inputs?.[column + c] && (inputs[column + c]!.value = cell.trim()));
    });
    this.context.change();
  }
}

/** One number, or one truth value. */
export class SliderPanel implements InputPanel {
  readonly element: HTMLElement;
  #current: number;

  constructor(
    readonly value: Value,
    spec: SliderInput,
    context: Context,
  ) {
    this.#current = spec.value;
    const set = (v: number): void => {
      if (!Number.isFinite(v)) return;
      this.#current = v;
      context.change();
    };
    const onkeydown = (event: KeyboardEvent): void => event.stopPropagation();
    if (value.type === "bool") {
      const box = h("input", {
        type: "checkbox",
        checked: !!spec.value,
        "aria-label": value.name,
        onchange: () => set(Number(box.checked)),
        onkeydown,
      });
      this.element = panel(value.name, signature(value), h("label", { class: "pwx-row" }, box, "true"));
      return;
    }
    const limits = { min: String(spec.min), max: String(spec.max), step: String(spec.step), onkeydown };
    const slider = h("input", {
      type: "range",
      class: "pwx-slider",
      "aria-label": value.name,
      ...limits,
      oninput: () => ((exact.value = slider.value), set(slider.valueAsNumber)),
    });
    const exact = h("input", {
      type: "number",
      class: "pwx-input pwx-integer",
      "aria-label": `${value.name}, exact`,
      onkeydown,
      step: isFloat(value.type) ? "any" : "1",
      oninput: () => ((slider.value = exact.value), set(exact.valueAsNumber)),
    });
    slider.value = exact.value = String(spec.value);
    this.element = panel(value.name, signature(value), h("div", { class: "pwx-row pwx-sliding" }, slider, exact));
  }

  feeds(): Tensors {
    const dims = this.value.shape.map(() => 1);
    return { [this.value.name]: filled(this.value.type, dims, () => this.#current) };
  }
}

/** A tensor of zeros, ones, random values from a seed, or from a .npy file. */
export class TensorPanel implements InputPanel {
  readonly element: HTMLElement;
  readonly #summary = h("div", { class: "pwx-soft" });
  readonly #fill: HTMLSelectElement;
  readonly #seed: HTMLInputElement;
  #file: Tensor | undefined;
  #failed: unknown;
  #cached: { key: string; tensor: Tensor } | undefined;

  constructor(
    readonly value: Value,
    spec: TensorInput,
    readonly context: Context,
  ) {
    const file = h("input", {
      type: "file",
      accept: ".npy",
      hidden: true,
      "aria-label": `.npy file for ${value.name}`,
      onchange: () => void this.#open(file.files?.[0]).finally(() => (file.value = "")),
    });
    this.#seed = integer(`Seed of ${value.name}`, spec.seed, () => context.change());
    const again = button(
      "Another seed",
      () => {
        this.#seed.value = String((this.#seed.valueAsNumber || 0) + 1);
        context.change();
      },
      { icon: "reset", bare: true },
    );
    const seeding = h("span", { class: "pwx-row" }, field("seed", this.#seed), again);
    const pick = button("Choose .npy", () => file.click(), { icon: "file" });
    const show = (): void => {
      seeding.hidden = this.#fill.value !== "random";
      pick.hidden = this.#fill.value !== "file";
    };
    this.#fill = choice<Fill>(`Fill of ${value.name}`, ["zeros", "ones", "random", "file"], spec.fill, () => {
      show();
      context.change();
    });
    show();
    this.element = panel(
      value.name,
      signature(value),
      h("div", { class: "pwx-row pwx-ends" }, field("fill", this.#fill), seeding, pick),
      this.#summary,
      file,
    );
  }

  feeds(): Tensors | undefined {
    if (this.#fill.value === "file" && this.#failed) throw this.#failed;
    const tensor = this.#make();
    if (!tensor) {
      this.#summary.textContent = "No file chosen yet.";
      return undefined;
    }
    const { type, dims } = tensor;
    this.#summary.textContent = `[${dims.join(", ")}], ${size(bytesOf(type, elements(dims)))}`;
    return { [this.value.name]: tensor };
  }

  #make(): Tensor | undefined {
    const fill = this.#fill.value as Fill;
    if (fill === "file") return this.#file;
    const { type } = this.value;
    const dims = this.context.dims.shape(this.value);
    const seed = this.#seed.valueAsNumber || 0;
    const key = [fill, seed, ...dims].join();
    if (this.#cached?.key !== key) {
      const tensor = fill === "random" ? random(type, dims, seed) : filled(type, dims, () => (fill === "ones" ? 1 : 0));
      this.#cached = { key, tensor };
    }
    return this.#cached.tensor;
  }

  async #open(file: File | undefined): Promise<void> {
    if (!file) return;
    try {
      const tensor = parseNpy(await file.arrayBuffer(), file.name);
      if (tensor.type !== this.value.type)
        throw new Error(`${file.name} holds ${tensor.type}, ${this.value.name} takes ${signature(this.value)}.`);
      if (tensor.dims.length !== this.value.shape.length)
        throw new Error(
          `${file.name} has the shape [${tensor.dims.join(", ")}], ${this.value.name} takes ${signature(this.value)}.`,
        );
      [this.#file, this.#failed] = [tensor, undefined];
      this.value.shape.forEach(
        (dim, axis) => typeof dim === "string" && this.context.dims.set(dim, tensor.dims[axis]!),
      );
    } catch (error) {
      this.#failed = error instanceof Error ? error : new Error(messageOf(error));
    }
    this.context.change();
  }
}

/** The sizes of the symbolic dims, to edit. */
export function sizes(symbols: readonly string[], context: Context): HTMLElement {
  const inputs = symbols.map((symbol) => {
    const input = integer(`Size of ${symbol}`, context.dims.get(symbol), (n) => {
      context.dims.set(symbol, n);
      context.change();
    });
    context.dims.listen(() => {
      if (input.valueAsNumber !== context.dims.get(symbol)) input.value = String(context.dims.get(symbol));
    });
    return field(symbol, input);
  });
  return panel("Sizes", "open dims of the inputs", h("div", { class: "pwx-row pwx-ends" }, ...inputs));
}
