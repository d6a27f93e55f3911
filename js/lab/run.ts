/** The Run panel: sizes, inputs, a run where Python is, and what it gave. */
import { statisticsTable, messageOf, section, table } from "./details.js";
import { breakable, bytesText, el, millisecondsText } from "./dom.js";
import type { Declared, Description } from "./model.js";
import { shapeText } from "./scene.js";
import type { RunRequest, RunResult } from "./knowledge.js";

const FILLS = ["random", "zeros", "ones", "range", "file"] as const;
const SHOWN_STEPS = 40;
/** Inputs beyond which they are folded. */
const SHOWN_INPUTS = 4;

export class RunPanel {
  readonly element: HTMLElement;
  private readonly sizes = new Map<string, HTMLInputElement>();
  private readonly inputs = new Map<string, { fill: HTMLSelectElement; file: HTMLInputElement }>();
  private readonly button = el("button", { class: "pw-button pw-primary", type: "submit" }, "Run");
  private readonly result = el("div", { class: "pw-result", "aria-live": "polite" });
  private running: AbortController | null = null;

  constructor(
    { inputs }: Description,
    private readonly folder: string,
    private readonly execute: (request: RunRequest, signal: AbortSignal) => Promise<RunResult>,
    private readonly show: (result: RunResult) => void,
    private readonly goTo: (origin: string) => void,
  ) {
    const symbols = new Set(inputs.flatMap(({ shape }) => (shape ?? []).filter((d) => typeof d === "string")));
    for (const symbol of symbols)
      this.sizes.set(
        symbol,
        el("input", { type: "number", min: 0, step: 1, value: 1, "aria-label": `size of ${symbol}` }),
      );
    this.element = el(
      "form",
      { class: "pw-run", onsubmit: (event: Event) => (event.preventDefault(), void this.toggle()) },
      section(
        "Sizes",
        ...[...this.sizes].map(([symbol, input]) => el("label", { class: "pw-field" }, el("span", {}, symbol), input)),
      ),
      el(
        "details",
        { class: "pw-fold", open: inputs.length <= SHOWN_INPUTS },
        el("summary", {}, inputs.length === 1 ? "Input" : `${inputs.length} inputs`),
        ...(inputs.length > SHOWN_INPUTS ? [this.all()] : []),
        ...inputs.map((input) => this.row(input)),
      ),
      el("div", { class: "pw-go" }, this.button),
      this.result,
    );
  }

  dispose(): void {
    this.running?.abort();
  }

  private row({ name, dtype, shape }: Declared): HTMLElement {
    const file = el("input", {
      type: "text",
      placeholder: "input.npy, beside the model",
      "aria-label": `file for ${name}`,
      hidden: true,
    });
    const fill = el(
      "select",
      { "aria-label": `contents of ${name}` },
      ...FILLS.map((f) => el("option", { value: f }, f === "file" ? ".npy file" : f)),
    );
    fill.addEventListener("change", () => (file.hidden = fill.value !== "file"));
    this.inputs.set(name, { fill, file });
    return el(
      "div",
      { class: "pw-value" },
      el("div", { class: "pw-name" }, ...breakable(name)),
      el("div", { class: "pw-type" }, `${dtype}${shapeText(shape)}`),
      fill,
      file,
    );
  }

  /** One choice for all inputs. */
  private all(): HTMLElement {
    const fills = FILLS.filter((f) => f !== "file");
    const fill = el(
      "select",
      { "aria-label": "contents of all inputs" },
      ...fills.map((f) => el("option", { value: f }, f)),
    );
    fill.addEventListener("change", () => {
      for (const input of this.inputs.values()) {
        input.fill.value = fill.value;
        input.file.hidden = true;
      }
    });
    return el("label", { class: "pw-field" }, el("span", {}, "all"), fill);
  }

  private request(): RunRequest {
    const sizes = Object.fromEntries(
      [...this.sizes].map(([symbol, input]) => [symbol, Math.max(0, Math.round(Number(input.value)) || 0)]),
    );
    const inputs = Object.fromEntries(
      [...this.inputs].map(([name, { fill, file }]) => {
        if (fill.value !== "file") return [name, { fill: fill.value }];
        const path = file.value.trim();
        return [name, { file: path.startsWith("/") || !this.folder ? path : `${this.folder}/${path}` }];
      }),
    );
    return { sizes, inputs };
  }

  private async toggle(): Promise<void> {
    if (this.running) {
      this.running.abort();
      return;
    }
    const running = (this.running = new AbortController());
    this.button.textContent = "Stop";
    this.result.replaceChildren(el("p", { class: "pw-faint pw-busy" }, "running …"));
    try {
      const result = await this.execute(this.request(), running.signal);
      this.result.replaceChildren(this.report(result));
      this.show(result);
    } catch (error) {
      const text = running.signal.aborted ? "Stopped." : messageOf(error);
      this.result.replaceChildren(el("p", { class: running.signal.aborted ? "pw-faint" : "pw-error" }, text));
    } finally {
      this.running = null;
      this.button.textContent = "Run";
    }
  }

  private report(result: RunResult): HTMLElement {
    const steps = result.steps.map(([origin, ms], k) => ({ origin, ms, k })).sort((a, b) => b.ms - a.ms);
    const total = steps.reduce((sum, { ms }) => sum + ms, 0) || 1;
    const most = steps[0]?.ms || 1;
    return el(
      "div",
      {},
      table([
        ["run", `${millisecondsText(result.ms)}, median of ${result.runs}`],
        ["first run", millisecondsText(result.first_ms)],
        ["compile", millisecondsText(result.compile_ms)],
        ...(result.arena_bytes === null
          ? []
          : [["memory", `${bytesText(result.arena_bytes)} beside the weights`] as const]),
      ]),
      section(
        "Outputs",
        ...result.outputs.map(({ name, dtype, shape, statistics }) =>
          el(
            "div",
            { class: "pw-value" },
            el("div", { class: "pw-name" }, ...breakable(name)),
            el("div", { class: "pw-type" }, `${dtype}${shapeText(shape)}`),
            statisticsTable(statistics),
          ),
        ),
      ),
      section(
        "Time per step",
        ...steps
          .slice(0, SHOWN_STEPS)
          .map(({ origin, ms, k }) =>
            el(
              "button",
              { class: "pw-step", type: "button", title: origin, onclick: () => this.goTo(origin) },
              el("span", { class: "pw-bar", style: `width: ${((100 * ms) / most).toFixed(1)}%` }),
              el("span", { class: "pw-origin" }, origin || `step ${k}`),
              el("span", { class: "pw-share" }, `${millisecondsText(ms)} · ${((100 * ms) / total).toFixed(0)} %`),
            ),
          ),
        ...(steps.length > SHOWN_STEPS
          ? [el("p", { class: "pw-faint" }, `and ${steps.length - SHOWN_STEPS} more`)]
          : []),
      ),
    );
  }
}
