/** One model on several backends with the same inputs, and how far their outputs are apart. */
import { h, messageOf, svg } from "../ui/dom.js";
import { Fills } from "../ui/fills.js";
import { Frame } from "../ui/frame.js";
import type { Host, Runnable } from "../ui/host.js";
import { measure, type Times } from "../ui/measure.js";
import { histogram } from "../ui/plot.js";
import { Runner } from "../ui/runner.js";
import { milliseconds, short, whole, type Tensors, type Value } from "../ui/tensor.js";
import { difference, type Difference } from "./difference.js";

export interface Spec {
  readonly title: string;
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  /** The first is the reference. */
  readonly backends: readonly string[];
  readonly seed: number;
  readonly dims: Readonly<Record<string, number>>;
  /** Greatest |a − b| accepted, as a share of the greatest |a|. */
  readonly tolerance: number;
}

export interface Figures {
  readonly output: string;
  readonly backend: string;
  readonly max_abs: number;
  readonly max_rel: number;
  readonly max_ulp: number | null;
  readonly scale: number;
  readonly unlike: number;
  readonly passed: boolean;
}

export interface Options {
  readonly spec: Spec;
  readonly host: Host;
  readonly signal: AbortSignal;
  readonly given: Promise<Tensors | undefined>;
  onFigures(figures: readonly Figures[]): void;
  onSettled(element: HTMLElement): void;
}

interface Row {
  readonly output: string;
  readonly backend: string;
  readonly found: Difference | undefined;
  readonly problem?: string;
}

const SIDE = 150;

export class Compare {
  readonly element: HTMLElement;
  readonly #frame: Frame;
  readonly #body = h("tbody");
  readonly #content: HTMLElement;
  readonly #plots = h("div", { class: "pwx-plots" });
  readonly #times = h("tbody");
  readonly #controls = h("div", { class: "pwx-controls" });
  readonly #models = new Map<string, Runnable>();
  readonly #missing: string[] = [];
  readonly #runner: Runner;
  #fills: Fills | undefined;
  #rows: Row[] = [];
  #chosen = 0;

  constructor(readonly options: Options) {
    const { spec, signal } = options;
    this.#frame = new Frame(spec.title, "compare");
    this.element = this.#frame.element;
    this.#runner = new Runner(
      async () => {
        await this.#compare();
        return undefined;
      },
      () => this.#models.size > 1 && options.onSettled(this.element),
      (error) => {
        this.#frame.alert(error);
        this.#frame.status.textContent = "";
        this.#content.hidden = true;
      },
      signal,
    );
    const heads = ["output", "backend", "max |a − b|", "of scale", "max rel", "max ulp", ""];
    const head = h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)));
    const table = h(
      "table",
      { class: "pwx-table pwx-parity", "aria-label": `Differences from ${spec.backends[0]}` },
      h("thead", {}, head),
      this.#body,
    );
    this.#content = h(
      "div",
      { class: "pwx-column", hidden: true },
      h("div", { class: "pwx-scroll" }, table),
      this.#plots,
      h("div", { class: "pwx-scroll" }, this.#timeTable()),
    );
    this.#frame.body.replaceWith(h("div", {}, this.#controls, this.#content));
    void this.#start();
  }

  async #start(): Promise<void> {
    const { spec, host, given, signal } = this.options;
    try {
      const tensors = await given;
      if (signal.aborted) return;
      this.#fills = new Fills(spec.inputs, spec, tensors, () => this.#runner.ask());
      this.#controls.append(this.#fills.element);
      const loads = spec.backends.map(async (backend) => {
        try {
          const model = await this.#frame.load(host, [backend], signal);
          signal.addEventListener("abort", () => void model.release().catch(() => {}));
          this.#models.set(backend, model);
        } catch (error) {
          if (!signal.aborted) this.#missing.push(messageOf(error));
        }
      });
      await Promise.all(loads);
      if (signal.aborted) return;
      const names = spec.backends.filter((name) => this.#models.has(name));
      const missing = this.#missing.join(" ");
      this.#frame.badge(names.join(" · ") || "not loaded", names.length > 1 ? "ready" : "failed", missing);
      if (names.length < 2)
        throw new Error(
          `There is nothing to compare with: only ${names.join(", ") || "no backend"} runs here. ${missing}`,
        );
      this.#runner.ask();
    } catch (error) {
      if (!signal.aborted) this.#frame.alert(error);
    }
  }

  async #compare(): Promise<void> {
    const { spec, signal } = this.options;
    const [reference, ...others] = spec.backends.filter((name) => this.#models.has(name));
    if (!reference || !others.length || !this.#fills) return;
    const feeds = this.#fills.feeds();
    this.#frame.status.textContent = "Running";
    this.#times.replaceChildren();
    const results = new Map<string, { outputs: Tensors; ms: number; inside: number | undefined }>();
    const refusals = new Map<string, string>();
    // One after the other: they share the machine, and times are shown.
    for (const name of [reference, ...others]) {
      const start = performance.now();
      try {
        const model = this.#models.get(name)!;
        const outputs = await model.run(feeds);
        results.set(name, { outputs, ms: performance.now() - start, inside: model.inside?.() });
      } catch (error) {
        refusals.set(name, messageOf(error));
      }
      if (signal.aborted) return;
    }
    const base = results.get(reference)?.outputs;
    if (!base) throw new Error(`${reference}: ${refusals.get(reference)}`);
    this.#frame.alert(undefined);
    this.#rows = spec.outputs.flatMap(({ name: output }) =>
      others.map((backend) =>
        this.#row(output, backend, base[output]!, results.get(backend)?.outputs, refusals.get(backend)),
      ),
    );
    this.#chosen = Math.min(this.#chosen, this.#rows.length - 1);
    this.#content.hidden = false;
    this.#show();
    this.options.onFigures(this.#rows.flatMap((row) => (row.found ? [this.#figures(row, row.found)] : [])));
    await this.#measure(feeds, results);
  }

  /** Times each backend, one after the other, after the run that was compared: that one made ready what later ones find. */
  async #measure(
    feeds: Tensors,
    results: ReadonlyMap<string, { ms: number; inside: number | undefined }>,
  ): Promise<void> {
    const { signal } = this.options;
    const medians: string[] = [];
    for (const [name, { ms: first, inside }] of results) {
      const model = this.#models.get(name)!;
      const ways: number[] = [];
      const once = async (): Promise<number | undefined> => {
        const start = performance.now();
        await model.run(feeds);
        const ms = model.inside?.();
        if (ms !== undefined) ways.push(performance.now() - start - ms);
        return ms;
      };
      const stop = (): boolean => signal.aborted || this.#runner.asked;
      const tell = (runs: number): void => {
        this.#frame.status.textContent = [...medians, `measuring ${name}: run ${runs}`].join(" · ");
      };
      const times = await measure(once, inside ?? first, tell, stop);
      if (signal.aborted) return;
      ways.sort((a, b) => a - b);
      this.#times.append(timeRow(name, times, ways[ways.length >> 1]));
      medians.push(`${name} ${milliseconds(times.median)}`);
      this.#frame.status.textContent = medians.join(" · ");
    }
  }

  #timeTable(): HTMLElement {
    const heads = ["backend", "median", "four runs of five", "first run", "way there and back", "runs"];
    return h(
      "table",
      { class: "pwx-table pwx-times", "aria-label": "Times" },
      h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))),
      this.#times,
    );
  }

  #row(
    output: string,
    backend: string,
    reference: Tensors[string],
    outputs: Tensors | undefined,
    refusal: string | undefined,
  ): Row {
    if (!outputs) return { output, backend, found: undefined, problem: refusal ?? "" };
    try {
      return { output, backend, found: difference(reference!, outputs[output]!) };
    } catch (error) {
      return { output, backend, found: undefined, problem: messageOf(error) };
    }
  }

  #figures({ output, backend }: Row, { abs, rel, ulp, scale, unlike }: Difference): Figures {
    const passed = !unlike && abs <= this.options.spec.tolerance * (scale || 1);
    return { output, backend, max_abs: abs, max_rel: rel, max_ulp: ulp ?? null, scale, unlike, passed };
  }

  #show(): void {
    this.#body.replaceChildren(
      ...this.#rows.map((row, i) => {
        const choose = (focus: boolean): void => {
          this.#chosen = i;
          this.#show();
          if (focus) this.#body.rows[i]?.focus();
        };
        const figures = row.found && this.#figures(row, row.found);
        const verdict = figures
          ? h(
              "span",
              { class: `pwx-verdict ${figures.passed ? "pwx-good" : "pwx-bad"}` },
              figures.passed ? "same" : figures.unlike ? `${whole(figures.unlike)} NaN or ∞ differ` : "differs",
            )
          : h("span", { class: "pwx-verdict pwx-bad", title: row.problem }, "failed");
        const cells = row.found
          ? [
              short(row.found.abs),
              row.found.scale ? short(row.found.abs / row.found.scale) : "0",
              short(row.found.rel),
              row.found.ulp === undefined ? "–" : whole(row.found.ulp),
            ]
          : ["", "", "", ""];
        return h(
          "tr",
          {
            tabIndex: 0,
            class: i === this.#chosen ? "pwx-chosen" : "",
            "aria-selected": i === this.#chosen,
            onclick: () => choose(false),
            onkeydown: (event: KeyboardEvent) => this.#key(event, i, choose),
          },
          h("td", {}, row.output),
          h("td", {}, row.backend),
          ...cells.map((text) => h("td", {}, text)),
          h("td", {}, verdict),
        );
      }),
    );
    const row = this.#rows[this.#chosen];
    this.#plots.replaceChildren();
    if (row?.problem) this.#plots.append(h("p", { class: "pwx-alert" }, row.problem));
    if (!row?.found) return;
    const [reference] = this.options.spec.backends;
    const { errors, pairs, count } = row.found;
    const of = errors.length < count ? `${whole(errors.length)} of ${whole(count)} values` : `${whole(count)} values`;
    this.#plots.append(
      h(
        "figure",
        {},
        h(
          "figcaption",
          {},
          `Errors of ${row.output}`,
          h("small", { class: "pwx-soft" }, ` ${reference} − ${row.backend}, ${of}`),
        ),
        histogram(errors, `Distribution of errors of ${row.output}`),
      ),
      h(
        "figure",
        {},
        h("figcaption", {}, "Agreement", h("small", { class: "pwx-soft" }, ` ${row.backend} / ${reference}`)),
        scatter(pairs, `${row.output}: ${reference} against ${row.backend}`),
      ),
    );
  }

  #key(event: KeyboardEvent, at: number, choose: (focus: boolean) => void): void {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    if (!step) return choose(true);
    const next = Math.max(0, Math.min(this.#rows.length - 1, at + step));
    this.#chosen = next;
    this.#show();
    this.#body.rows[next]?.focus();
  }
}

function timeRow(name: string, { median, low, high, first, runs }: Times, way: number | undefined): HTMLElement {
  const spread = `${milliseconds(low)} to ${milliseconds(high)}`;
  const cells = [name, milliseconds(median), spread, milliseconds(first), way === undefined ? "–" : milliseconds(way)];
  return h("tr", {}, ...[...cells, whole(runs)].map((text) => h("td", {}, text)));
}

/** Points of pairs over the diagonal. */
function scatter(pairs: readonly (readonly [number, number])[], label: string): SVGElement {
  const plot = svg("svg", { class: "pwx-scatter", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": label });
  let [low, high] = [Infinity, -Infinity];
  for (const [x, y] of pairs) {
    low = Math.min(low, x, y);
    high = Math.max(high, x, y);
  }
  const scale = high > low ? (SIDE - 8) / (high - low) : 0;
  const at = (v: number): number => (scale ? 4 + (v - low) * scale : SIDE / 2);
  plot.append(svg("path", { class: "pwx-axis", d: `M4 ${SIDE - 4}L${SIDE - 4} 4` }));
  const step = Math.ceil(pairs.length / 1500);
  let d = "";
  for (let i = 0; i < pairs.length; i += step)
    d += `M${at(pairs[i]![0]).toFixed(1)} ${(SIDE - at(pairs[i]![1])).toFixed(1)}h0`;
  plot.append(svg("path", { class: "pwx-points", d }));
  return plot;
}
