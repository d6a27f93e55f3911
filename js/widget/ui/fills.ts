/** Made-up inputs for a whole model: one fill, one seed, and sizes for its open dims; or what Python gave. */
import { Dims } from "./dims.js";
import { button, choice, field, h, integer } from "./dom.js";
import { random } from "./fill.js";
import { filled, type Tensors, type Value } from "./tensor.js";

export class Fills {
  readonly element: HTMLElement;
  readonly #dims: Dims;
  #fill: "given" | "random" | "zeros" | "ones";
  #seed: number;

  /** `given` are tensors from Python, of all inputs. */
  constructor(
    readonly inputs: readonly Value[],
    options: { readonly seed: number; readonly dims: Readonly<Record<string, number>> },
    readonly given: Tensors | undefined,
    change: () => void,
  ) {
    this.#dims = new Dims(options.dims);
    this.#seed = options.seed;
    this.#fill = given ? "given" : "random";
    const seed = integer("Seed", options.seed, (value) => {
      this.#seed = value;
      change();
    });
    const another = button(
      "Another seed",
      () => {
        seed.value = String(++this.#seed);
        change();
      },
      { icon: "reset", bare: true },
    );
    const symbols = [
      ...new Set(inputs.flatMap(({ shape }) => shape.filter((dim): dim is string => typeof dim === "string"))),
    ];
    const dims = symbols.map((symbol) =>
      field(
        symbol,
        integer(`Size of ${symbol}`, this.#dims.get(symbol), (size) => {
          this.#dims.set(symbol, size);
          change();
        }),
      ),
    );
    const made = h("span", { class: "pwx-row pwx-ends" }, field("seed", seed), another, ...dims);
    made.hidden = this.#fill === "given";
    const fills = given ? (["given", "random", "zeros", "ones"] as const) : (["random", "zeros", "ones"] as const);
    const fill = choice("Inputs", fills, this.#fill, (value) => {
      this.#fill = value;
      made.hidden = value === "given";
      change();
    });
    this.element = h(
      "div",
      { class: "pwx-row pwx-ends", role: "group", "aria-label": "Inputs" },
      field("inputs", fill),
      made,
    );
    this.element.addEventListener("keydown", (event) => event.stopPropagation());
  }

  /** Throws RangeError for sizes that no page can hold. */
  feeds(): Tensors {
    if (this.#fill === "given") return this.given!;
    return Object.fromEntries(
      this.inputs.map((value, i) => {
        const dims = this.#dims.shape(value);
        const tensor =
          this.#fill === "random"
            ? random(value.type, dims, this.#seed * 1000 + i)
            : filled(value.type, dims, () => (this.#fill === "ones" ? 1 : 0));
        return [value.name, tensor];
      }),
    );
  }
}
