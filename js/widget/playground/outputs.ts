/** Results shown: likeliest labels, pictures, maps, tables and tensors. */
import { canvas, h, icon } from "../ui/dom.js";
import { TINTS } from "./boxes.js";
import { histogram, paintMap, slice } from "../ui/plot.js";
import {
  elements,
  numbers,
  reader,
  short,
  signature,
  summarise,
  trouble,
  type Tensor,
  type Tensors,
  type Value,
} from "../ui/tensor.js";
import {
  panel,
  type HeatMap,
  type ImageOutput,
  type OutputPanel,
  type Picture,
  type TableOutput,
  type TopK,
} from "./panel.js";

/** Classes that a legend names at most. */
const SHOWN = 12;
const EMPTY = "Nothing to show yet";

/** Shared by panels of one output: title, warning, and the tensor by name. */
abstract class Show implements OutputPanel {
  readonly element: HTMLElement;
  readonly content = h("div", { class: "pwx-content" });
  readonly #dims = h("small");
  readonly #warning = h("p", { class: "pwx-alert", role: "alert", hidden: true });

  constructor(
    readonly value: Value,
    detail = "",
  ) {
    this.element = panel(value.name, detail || signature(value), this.content, this.#warning);
    this.element.querySelector("header")!.append(this.#dims);
  }

  show(results: Tensors, picture: Picture | undefined): void {
    const result = results[this.value.name];
    if (!result) return;
    this.warn(this.render(result, picture));
  }

  warn(text: string | undefined): void {
    this.#warning.replaceChildren(...(text ? [icon("warn"), `${text}.`] : []));
    this.#warning.hidden = !text;
  }

  clear(): void {
    this.warn(undefined);
  }

  /** Shows a result; returns what is wrong with it. */
  abstract render(result: Tensor, picture: Picture | undefined): string | undefined;
}

export class TopShow extends Show {
  readonly #rows: { label: HTMLElement; percent: HTMLElement; row: HTMLElement }[] = [];
  readonly #list = h("ol", { class: "pwx-bars" });

  constructor(
    value: Value,
    readonly spec: TopK,
  ) {
    super(value);
    this.content.append(this.#list);
    for (let i = 0; i < spec.k; i++) {
      const [label, percent] = [h("span", { class: "pwx-label" }), h("span", { class: "pwx-percent" })];
      const row = h("li", {}, label, h("span", { class: "pwx-track", "aria-hidden": "true" }, h("span")), percent);
      this.#rows.push({ label, percent, row });
      this.#list.append(row);
    }
    this.clear();
  }

  render(result: Tensor): string | undefined {
    const { activation, labels } = this.spec;
    const width = result.dims.at(-1) ?? 1;
    const all = numbers(result).subarray(0, width);
    const wrong = trouble({
      count: width,
      nan: all.filter(Number.isNaN).length,
      infinite: all.filter((v) => Math.abs(v) === Infinity).length,
    });
    const values = wrong ? all : activate(all, activation);
    const order = [...values.keys()]
      .filter((i) => Number.isFinite(values[i]))
      .sort((a, b) => values[b]! - values[a]! || a - b);
    const bare = activation === "none";
    const top = Math.max(...order.slice(0, 1).map((i) => Math.abs(values[i]!)), 1e-30);
    this.#rows.forEach(({ label, percent, row }, i) => {
      const at = order[i];
      row.hidden = at === undefined;
      if (at === undefined) return;
      const value = values[at]!;
      label.textContent = label.title = labels[at] ?? String(at);
      percent.textContent = bare || wrong ? short(value) : `${(100 * value).toFixed(1)} %`;
      row.style.setProperty("--p", String(Math.max(0, Math.min(1, bare || wrong ? value / top : value))));
      row.classList.toggle("pwx-best", i === 0 && !wrong);
    });
    return wrong;
  }

  override clear(): void {
    super.clear();
    this.#rows.forEach(({ row, label, percent }, i) => {
      row.hidden = i >= this.spec.k;
      row.classList.remove("pwx-best");
      row.style.setProperty("--p", "0");
      label.textContent = this.spec.labels.length <= this.spec.k ? (this.spec.labels[i] ?? "–") : "–";
      percent.textContent = "";
    });
  }
}

/** Probabilities: as they are if they look like some, else by softmax. */
function activate(values: Float64Array, activation: TopK["activation"]): Float64Array {
  if (activation === "none") return values;
  if (activation === "sigmoid") return values.map((v) => 1 / (1 + Math.exp(-v)));
  const sum = values.reduce((a, b) => a + b, 0);
  if (activation === "auto" && Math.abs(sum - 1) < 0.01 && values.every((v) => v >= 0)) return values;
  const top = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const exps = values.map((v) => Math.exp(v - top));
  const total = exps.reduce((a, b) => a + b, 0);
  return exps.map((v) => v / total);
}

export class ImageShow extends Show {
  readonly #canvas = canvas("The picture that the model gives", "pwx-stage");

  constructor(
    value: Value,
    readonly spec: ImageOutput,
  ) {
    super(value);
    this.content.append(this.#canvas);
    this.clear();
  }

  render(result: Tensor): string | undefined {
    const dims = result.dims.slice(-3);
    const [channels, height, width] = (this.spec.layout === "NCHW" ? dims : [dims[2], dims[0], dims[1]]) as [
      number,
      number,
      number,
    ];
    if (!(channels * height * width)) return "The picture is empty";
    const summary = summarise(result);
    const at = reader(result);
    const [low, high] = this.spec.range ?? range(summary.min, summary.max);
    const [plane, step] = this.spec.layout === "NCHW" ? [height * width, 1] : [1, channels];
    const image = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      for (let c = 0; c < 3; c++)
        image.data[4 * i + c] = ((at((channels === 1 ? 0 : c) * plane + i * step) - low) / (high - low || 1)) * 255;
      image.data[4 * i + 3] = 255;
    }
    [this.#canvas.width, this.#canvas.height] = [width, height];
    this.#canvas.getContext("2d")!.putImageData(image, 0, 0);
    this.#canvas.classList.toggle("pwx-coarse", Math.max(width, height) < 100);
    this.#canvas.hidden = false;
    return trouble(summary);
  }

  override clear(): void {
    super.clear();
    this.#canvas.hidden = true;
  }
}

/** 0 to 1 or 0 to 255 where the values fit, else the values' own range. */
function range(min: number, max: number): [number, number] {
  if (min >= -0.05 && max <= 1.05) return [0, 1];
  if (min >= -1 && max <= 256 && max > 2) return [0, 255];
  return [min, max];
}

export class HeatShow extends Show {
  readonly #canvas = canvas("Heat map of the result", "pwx-stage");
  readonly #map = document.createElement("canvas");
  readonly #scale = h("div", { class: "pwx-scale" }, h("span"), h("i", { "aria-hidden": "true" }), h("span"));
  readonly #legend = h("ul", { class: "pwx-classes" });

  constructor(
    value: Value,
    readonly spec: HeatMap,
  ) {
    super(value);
    this.content.append(this.#canvas, this.#scale, this.#legend);
    this.clear();
  }

  render(result: Tensor, picture: Picture | undefined): string | undefined {
    const [height, width] = result.dims.slice(-2) as [number, number];
    // Integers are the numbers of classes, one for each pixel.
    const numbered = !this.spec.range && (result.type === "int64" || result.type === "int32");
    const planes = result.dims.length > 2 && !numbered ? result.dims.at(-3)! : 1;
    if (!(height * width * planes)) return "The map is empty";
    const summary = summarise(result);
    const at = reader(result);
    const likeliest = (r: number, c: number): number => {
      if (numbered) return at(r * width + c);
      let best = 0;
      for (let p = 1; p < planes; p++)
        if (at((p * height + r) * width + c) > at((best * height + r) * width + c)) best = p;
      return best;
    };
    const classes = planes > 1 || (numbered && summary.min >= 0);
    const [low, high] = classes
      ? [0, Math.max(planes - 1, numbered ? summary.max : 0)]
      : (this.spec.range ?? [summary.min, summary.max]);
    if (classes) this.#classes(height, width, likeliest);
    else paintMap(this.#map, height, width, (r, c) => at(r * width + c), [low, high]);
    const target = this.#canvas;
    const context = target.getContext("2d")!;
    if (this.spec.overlay && picture) {
      const scale = Math.min(1, 960 / Math.max(picture.width, picture.height));
      [target.width, target.height] = [Math.round(picture.width * scale), Math.round(picture.height * scale)];
      context.drawImage(picture.image, 0, 0, target.width, target.height);
      const { seen, placement } = picture;
      const [fx, fy] = [scale / placement.sx, scale / placement.sy];
      context.globalAlpha = 0.55;
      context.drawImage(this.#map, -placement.x0 * fx, -placement.y0 * fy, seen.width * fx, seen.height * fy);
    } else {
      [target.width, target.height] = [this.#map.width, this.#map.height];
      context.drawImage(this.#map, 0, 0);
      target.classList.toggle("pwx-coarse", Math.max(target.width, target.height) < 100);
    }
    target.hidden = false;
    this.#scale.hidden = classes;
    this.#legend.hidden = !classes;
    this.#scale.firstElementChild!.textContent = short(low);
    this.#scale.lastElementChild!.textContent = short(high);
    return trouble(summary);
  }

  /** Paints a colour for each class, and lists those that are there with the share of the picture that they take. */
  #classes(height: number, width: number, classAt: (r: number, c: number) => number): void {
    [this.#map.width, this.#map.height] = [width, height];
    const context = this.#map.getContext("2d")!;
    const counts = new Map<number, number>();
    const image = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      const found = classAt(Math.floor(i / width), i % width);
      counts.set(found, (counts.get(found) ?? 0) + 1);
      const tint = TINTS[found % TINTS.length]!;
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = parseInt(tint.slice(1 + 2 * c, 3 + 2 * c), 16);
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, SHOWN);
    this.#legend.replaceChildren(
      ...most.map(([found, count]) =>
        h(
          "li",
          {},
          h("i", { style: `background: ${TINTS[found % TINTS.length]!}`, "aria-hidden": "true" }),
          `${this.spec.labels[found] ?? `class ${found}`} ${((100 * count) / (width * height)).toFixed(0)} %`,
        ),
      ),
    );
  }

  override clear(): void {
    super.clear();
    this.#canvas.hidden = this.#scale.hidden = this.#legend.hidden = true;
  }
}

const ROWS = 100;
const COLUMNS = 24;

export class TableShow extends Show {
  constructor(
    value: Value,
    readonly spec: TableOutput,
  ) {
    super(value);
    this.clear();
  }

  render(result: Tensor): string | undefined {
    const at = reader(result);
    const columns = result.dims.length > 1 ? result.dims.at(-1)! : 1;
    const rows = columns ? elements(result.dims) / columns : 0;
    const [r, c] = [Math.min(rows, ROWS), Math.min(columns, COLUMNS)];
    const name = (i: number) => this.spec.columns[i] ?? (columns === 1 ? this.value.name : String(i));
    const head = h(
      "tr",
      {},
      h("th", {}, ""),
      ...Array.from({ length: c }, (_, i) => h("th", { scope: "col" }, name(i))),
    );
    const body = Array.from({ length: r }, (_, y) =>
      h(
        "tr",
        {},
        h("td", { class: "pwx-soft" }, String(y + 1)),
        ...Array.from({ length: c }, (_, x) => h("td", {}, short(at(y * columns + x)))),
      ),
    );
    const rest =
      rows > r || columns > c ? h("div", { class: "pwx-soft" }, `the first ${r} × ${c} of ${rows} × ${columns}`) : null;
    this.content.replaceChildren(
      h(
        "div",
        { class: "pwx-scroll" },
        h("table", { class: "pwx-table" }, h("thead", {}, head), h("tbody", {}, ...body)),
      ),
      ...(rest ? [rest] : []),
    );
    return trouble(summarise(result));
  }

  override clear(): void {
    super.clear();
    this.content.replaceChildren(h("div", { class: "pwx-soft" }, EMPTY));
  }
}

/** Figures, distribution and the first slice of any tensor. */
export class TensorShow extends Show {
  constructor(value: Value) {
    super(value);
    this.clear();
  }

  render(result: Tensor): string | undefined {
    const summary = summarise(result);
    const { count, min, max, mean, std } = summary;
    const figures = h("dl", { class: "pwx-figures" });
    const add = (name: string, text: string) => figures.append(h("div", {}, h("dt", {}, name), h("dd", {}, text)));
    add("shape", `[${result.dims.join(", ")}]`);
    if (count === 1) add("value", short(reader(result)(0)));
    else if (count) for (const [name, v] of Object.entries({ min, max, mean, std })) add(name, short(v));
    const pictures =
      count > 1 ? [histogram(sample(result), `Distribution of ${this.value.name}`), slice(result, summary)] : [];
    this.content.replaceChildren(figures, ...pictures);
    return count ? trouble(summary) : undefined;
  }

  override clear(): void {
    super.clear();
    this.content.replaceChildren(h("div", { class: "pwx-soft" }, EMPTY));
  }
}

/** Every so manieth value of a large tensor. */
function sample(tensor: Tensor): Float64Array {
  const at = reader(tensor);
  const step = Math.ceil(tensor.data.length / 2 ** 17);
  return Float64Array.from({ length: Math.ceil(tensor.data.length / step) }, (_, i) => at(i * step));
}
