/** The timeline of a run: steps in time, by kernel, and a table of them. */
import { tint } from "../../lab/hues.js";
import { button, choice, field, h } from "../ui/dom.js";
import { Fills } from "../ui/fills.js";
import { Frame } from "../ui/frame.js";
import type { Host, Runnable, Step } from "../ui/host.js";
import { milliseconds, size, whole, type Tensors, type Value } from "../ui/tensor.js";
import { Timeline, type Block } from "./timeline.js";

export interface Spec {
  readonly title: string;
  readonly inputs: readonly Value[];
  readonly backends: readonly string[];
  readonly seed: number;
  readonly dims: Readonly<Record<string, number>>;
  readonly runs: number;
  /** Whether there is a model to run; without one the trace comes from Python. */
  readonly live: boolean;
}

export interface Options {
  readonly spec: Spec;
  readonly host: Host;
  readonly signal: AbortSignal;
  /** Inputs that Python gave. */
  readonly given: Promise<Tensors | undefined>;
  onSteps(steps: readonly Step[], backend: string): void;
  onSettled(element: HTMLElement): void;
}

type Column = "index" | "name" | "kernel" | "ms" | "bytes";
const MOST_ROWS = 400;
const MOST_RUNS = 200;
const ENOUGH_MS = 400;
/** So long at most it is run again because the clock told no time of some step. */
const PATIENCE_MS = 2000;

/** Ticks of a clock below which a median says little. */
const COARSE = 4;

/** The median; where the clock is too coarse for one, the mean of what is left without the highest tenth. */
function typical(times: readonly number[], tick: number): number {
  const sorted = [...times].sort((a, b) => a - b);
  const median = (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2;
  if (median >= COARSE * tick) return median;
  return mean(sorted.slice(0, Math.max(1, Math.floor(sorted.length * 0.9)))) || mean(sorted);
}

function mean(times: readonly number[]): number {
  return times.reduce((a, b) => a + b, 0) / times.length;
}

export class Profile {
  readonly element: HTMLElement;
  readonly #frame: Frame;
  readonly #timeline: Timeline;
  readonly #detail = h("div", { class: "pwx-detail", role: "status" });
  readonly #legend = h("div", { class: "pwx-legend" });
  readonly #body = h("tbody");
  readonly #heads = new Map<Column, HTMLTableCellElement>();
  readonly #controls = h("div", { class: "pwx-controls" });
  readonly #content: HTMLElement;
  #sort: { column: Column; down: boolean } = { column: "ms", down: true };
  #blocks: Block[] = [];
  #fills: Fills | undefined;
  #model: Runnable | undefined;
  #loading = 0;
  #busy = false;
  #again = false;
  #epoch = 0;

  constructor(readonly options: Options) {
    const { spec, signal } = options;
    this.#frame = new Frame(spec.title, "profile");
    this.element = this.#frame.element;
    this.#timeline = new Timeline((block) => this.#select(block, false), signal);
    const head = h("tr");
    for (const [column, label] of [
      ["index", "#"],
      ["name", "nodes"],
      ["kernel", "kernel"],
      ["ms", "ms"],
      ["bytes", "bytes"],
    ] as const) {
      const cell = h(
        "th",
        { scope: "col" },
        h("button", { type: "button", class: "pwx-sort", onclick: () => this.#order(column) }, label),
      );
      this.#heads.set(column, cell);
      head.append(cell);
    }
    const table = h("table", { class: "pwx-table pwx-steps", "aria-label": "Steps" }, h("thead", {}, head), this.#body);
    this.#content = h(
      "div",
      { class: "pwx-column", hidden: true },
      this.#timeline.element,
      this.#detail,
      this.#legend,
      h("div", { class: "pwx-scroll" }, table),
    );
    this.#frame.body.replaceWith(h("div", {}, this.#controls, this.#content));
    if (spec.live) void this.#start();
    else this.#frame.badge("from Python", "ready");
  }

  /** Shows steps that come from Python, whatever runs here. */
  trace(steps: readonly Step[]): void {
    this.#epoch++;
    this.#again = false;
    this.show(steps, ", from Python");
  }

  /** Shows the steps of a run. */
  show(steps: readonly Step[], source: string): void {
    let at = 0;
    this.#blocks = steps.map((step, index) => {
      const start = step.start ?? at;
      at = start + step.ms;
      return { ...step, start, index };
    });
    this.#content.hidden = false;
    this.#frame.alert(steps.length ? undefined : "There are no steps to show.");
    this.#timeline.show(this.#blocks);
    this.#fillLegend();
    this.#fillTable();
    this.#select(undefined, false);
    const total = this.#blocks.reduce((sum, { ms }) => sum + ms, 0);
    this.#frame.status.textContent = `${whole(steps.length)} steps · ${milliseconds(total)}${source}`;
    this.options.onSettled(this.element);
  }

  async #start(): Promise<void> {
    const { spec, given, signal } = this.options;
    try {
      const tensors = await given;
      if (signal.aborted) return;
      const run = button("Run again", () => void this.#run(), { icon: "play" });
      this.#fills = new Fills(spec.inputs, spec, tensors, () => void this.#run());
      this.#controls.append(this.#fills.element, h("span", { class: "pwx-grow" }));
      if (spec.backends.length > 1)
        this.#controls.append(
          field(
            "backend",
            choice("Backend", spec.backends, spec.backends[0]!, (name) => void this.#load([name])),
          ),
        );
      this.#controls.append(run);
      await this.#load(spec.backends);
    } catch (error) {
      if (!signal.aborted) this.#frame.alert(error);
    }
  }

  async #load(backends: readonly string[]): Promise<void> {
    const { host, signal } = this.options;
    const turn = ++this.#loading;
    const epoch = this.#epoch;
    const before = this.#model;
    this.#model = undefined;
    this.#frame.badge("loading", "busy");
    try {
      void before?.release().catch(() => {});
      const model = await this.#frame.load(host, backends, signal);
      if (turn !== this.#loading) return void model.release();
      signal.addEventListener("abort", () => void model.release().catch(() => {}));
      this.#model = model;
      const used = this.#controls.querySelector<HTMLSelectElement>('select[aria-label="Backend"]');
      const name = model.label.split(" ")[0]!;
      if (used && [...used.options].some(({ value }) => value === name)) used.value = name;
    } catch (error) {
      if (!signal.aborted && turn === this.#loading) this.#frame.alert(error);
      return;
    }
    if (epoch === this.#epoch) await this.#run();
  }

  /** Profiles some runs after a first, and shows what each step typically takes. */
  async #run(): Promise<void> {
    if (this.#busy) {
      this.#again = true;
      return;
    }
    const model = this.#model;
    if (!model || !this.#fills) return;
    const { spec, signal } = this.options;
    this.#busy = true;
    const epoch = ++this.#epoch;
    try {
      if (!model.profile) throw new Error(`${model.label}: this backend gives no profile.`);
      const feeds = this.#fills.feeds();
      this.#frame.status.textContent = "Warming up";
      const warming = (await model.profile(feeds)).reduce((sum, { ms }) => sum + ms, 0);
      const runs: Step[][] = [];
      const begin = performance.now();
      const told = new Set<number>();
      while (!signal.aborted) {
        const passed = performance.now() - begin;
        const enough = passed >= (runs[0] && told.size < runs[0].length ? PATIENCE_MS : ENOUGH_MS);
        if (runs.length >= spec.runs && (enough || runs.length >= MOST_RUNS)) break;
        const run = await model.profile(feeds);
        runs.push(run);
        run.forEach(({ ms }, i) => ms > 0 && told.add(i));
        if (epoch !== this.#epoch) break;
        const share = Math.max(runs.length / spec.runs, (performance.now() - begin) / ENOUGH_MS);
        this.#frame.status.textContent = `Measuring: run ${runs.length}, ${Math.min(100, 100 * share).toFixed(0)} %`;
      }
      if (signal.aborted || model !== this.#model || epoch !== this.#epoch) return;
      const tick = Math.min(...runs.flat().flatMap(({ ms }) => (ms > 0 ? [ms] : [])));
      const steps = runs[0]!.map(({ start: _, bytes, ...step }, i) => ({
        ...step,
        ms: typical(
          runs.map((run) => run[i]?.ms ?? 0),
          tick,
        ),
        ...(bytes ? { bytes } : {}),
      }));
      this.show(steps, `, median of ${runs.length} runs after a first of ${milliseconds(warming)}`);
      this.options.onSteps(steps, model.label);
    } catch (error) {
      if (!signal.aborted) {
        this.#frame.alert(error);
        this.#frame.status.textContent = "";
      }
    } finally {
      this.#busy = false;
      if (this.#again) {
        this.#again = false;
        void this.#run();
      }
    }
  }

  #fillLegend(): void {
    const totals = new Map<string, number>();
    for (const { kernel, ms } of this.#blocks) totals.set(kernel, (totals.get(kernel) ?? 0) + ms);
    const all = [...totals.values()].reduce((a, b) => a + b, 0) || 1;
    const items = [...totals].sort((a, b) => b[1] - a[1]);
    this.#legend.replaceChildren(
      ...items.map(([kernel, ms]) =>
        h(
          "span",
          { class: "pwx-key" },
          h("i", { style: `background: ${tint(kernel)}`, "aria-hidden": "true" }),
          kernel,
          h("span", { class: "pwx-soft" }, `${milliseconds(ms)}, ${((100 * ms) / all).toFixed(0)} %`),
        ),
      ),
    );
  }

  #order(column: Column): void {
    const down = this.#sort.column === column ? !this.#sort.down : column === "ms" || column === "bytes";
    this.#sort = { column, down };
    this.#fillTable();
  }

  #fillTable(): void {
    const { column, down } = this.#sort;
    const sized = this.#blocks.some(({ bytes }) => bytes !== undefined);
    const total = this.#blocks.reduce((sum, { ms }) => sum + ms, 0) || 1;
    const longest = Math.max(...this.#blocks.map(({ ms }) => ms), 1e-12);
    const compare = (a: Block, b: Block): number => {
      const [x, y] = [a[column] ?? 0, b[column] ?? 0];
      return (
        (typeof x === "string" ? x.localeCompare(y as string) : x - (y as number)) * (down ? -1 : 1) ||
        a.index - b.index
      );
    };
    const rows = [...this.#blocks].sort(compare);
    for (const [name, cell] of this.#heads)
      cell.setAttribute("aria-sort", name === column ? (down ? "descending" : "ascending") : "none");
    this.#heads.get("bytes")!.hidden = !sized;
    this.#body.replaceChildren(
      ...rows.slice(0, MOST_ROWS).map((block) => {
        const { index, name, kernel, ms, bytes } = block;
        const row = h(
          "tr",
          { tabIndex: -1, "data-index": index, onclick: () => this.#select(block, true) },
          h("td", { class: "pwx-soft" }, String(index + 1)),
          h("td", { class: "pwx-name" }, ...name.split(/(?<=[/.])/).flatMap((part) => [part, h("wbr")])),
          h(
            "td",
            {},
            h("i", { class: "pwx-dot", style: `background: ${tint(kernel)}`, "aria-hidden": "true" }),
            kernel,
          ),
          h(
            "td",
            { class: "pwx-cost", style: `--p: ${(ms / longest).toFixed(4)}` },
            ms.toFixed(3),
            h("span", { class: "pwx-soft" }, ` ${((100 * ms) / total).toFixed(1)} %`),
          ),
        );
        if (sized) row.append(h("td", {}, bytes === undefined ? "" : size(bytes)));
        return row;
      }),
    );
    if (rows.length > MOST_ROWS)
      this.#body.append(
        h(
          "tr",
          {},
          h("td", { class: "pwx-soft", colSpan: 5 }, `and ${whole(rows.length - MOST_ROWS)} more in the timeline`),
        ),
      );
  }

  #select(block: Block | undefined, reveal: boolean): void {
    for (const row of this.#body.querySelectorAll<HTMLElement>("tr"))
      row.classList.toggle("pwx-chosen", row.dataset["index"] === String(block?.index));
    if (reveal && block) this.#timeline.choose(block);
    else if (block) {
      const row = this.#body.querySelector<HTMLElement>(`tr[data-index="${block.index}"]`);
      const scroll = row?.closest<HTMLElement>(".pwx-scroll");
      if (row && scroll) scroll.scrollTop = row.offsetTop - scroll.clientHeight / 2;
    }
    this.#detail.replaceChildren(
      ...(block
        ? [
            h("b", {}, block.kernel),
            h("span", { class: "pwx-name" }, block.name),
            h(
              "span",
              { class: "pwx-soft" },
              `step ${block.index + 1} · ${block.backend ? `${block.backend} · ` : ""}${milliseconds(block.ms)} at ${milliseconds(block.start)}${block.bytes === undefined ? "" : ` · ${size(block.bytes)}`}`,
            ),
          ]
        : [
            h(
              "span",
              { class: "pwx-soft", "data-still": "no" },
              "Hover or use ← → for a step, + − or Ctrl and wheel to zoom, drag to move, Esc for all",
            ),
          ]),
    );
  }
}
