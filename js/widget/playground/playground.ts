/** A model's interface, made from its signature: panels for inputs and outputs around one run. */
import { Dims } from "../ui/dims.js";
import { button, h } from "../ui/dom.js";
import { Frame } from "../ui/frame.js";
import type { Host, Runnable } from "../ui/host.js";
import { Runner, type Timing } from "../ui/runner.js";
import type { Tensors } from "../ui/tensor.js";
import { AudioPanel, SoundShow } from "./audio.js";
import { BoxesShow } from "./boxes.js";
import { ImagePanel } from "./image.js";
import { SliderPanel, sizes, TablePanel, TensorPanel } from "./inputs.js";
import { HeatShow, ImageShow, TableShow, TensorShow, TopShow } from "./outputs.js";
import {
  valueOf,
  type Context,
  type InputPanel,
  type InputSpec,
  type OutputPanel,
  type OutputSpec,
  type Picture,
  type Spec,
} from "./panel.js";
import { TextPanel, TextShow } from "./text.js";

const SYNC_PAUSE = 100;

export interface Options {
  readonly spec: Spec;
  readonly host: Host & { asset(name: string): Promise<Uint8Array<ArrayBuffer>> };
  readonly signal: AbortSignal;
  readonly sync: boolean;
  /** The person has turned sync on or off. */
  onSync(sync: boolean): void;
  /** Results that Python is given, for widgets that are linked with this one. */
  onValue?(results: Tensors): void;
  /** The widget looks different now. */
  onSettled(element: HTMLElement): void;
}

export class Playground {
  readonly element: HTMLElement;
  readonly #frame: Frame;
  readonly #inputs: InputPanel[];
  readonly #outputs: OutputPanel[];
  readonly #runner: Runner;
  readonly #sync: HTMLInputElement;
  readonly #send: HTMLButtonElement;
  /** What Python says of the results. */
  readonly #said = h("output", { class: "pwx-panel pwx-text", hidden: true });
  #model: Runnable | undefined;
  #results: Tensors | undefined;
  #failed = false;
  #unloaded: unknown;
  #sentAt = 0;
  /** Inputs that come from outside, in place of what the panels give. */
  #given: Tensors = {};
  readonly #taken = h("div", { class: "pwx-strip", hidden: true });
  #waiting: { resolve(results: Tensors): void; reject(error: unknown): void }[] = [];

  constructor(readonly options: Options) {
    const { spec, host, signal } = options;
    const dims = new Dims(spec.dims);
    const context = (inputs: readonly string[]): Context => ({
      change: () => {
        this.#forget(inputs);
        this.#runner?.ask();
      },
      asset: (name) => host.asset(name),
      signal,
      dims,
    });
    this.#frame = new Frame(spec.title, "playground");
    this.element = this.#frame.element;
    this.#runner = new Runner(
      () => this.#job(),
      () => this.#settle(),
      (error) => this.#fail(error),
      signal,
    );
    this.#inputs = spec.panels.map((panel) => input(spec, panel, context(panel.inputs)));
    this.#outputs = spec.shows.map((show) => output(spec, show, context([])));
    const open = symbols(spec);
    this.#frame.body.append(
      h(
        "div",
        { class: "pwx-column" },
        ...this.#inputs.map(({ element }) => element),
        open.length ? sizes(open, context([])) : null,
      ),
      h(
        "div",
        { class: "pwx-column", role: "group", "aria-label": "Results" },
        ...this.#outputs.map(({ element }) => element),
        spec.after ? this.#said : null,
      ),
    );
    if (spec.found?.length)
      this.element.insertBefore(h("div", { class: "pwx-strip" }, `Taken: ${spec.found.join("; ")}`), this.#frame.body);
    this.element.insertBefore(this.#taken, this.#frame.body);
    this.#sync = h("input", {
      type: "checkbox",
      checked: options.sync,
      onchange: () => {
        options.onSync(this.#sync.checked);
        if (this.#sync.checked) void this.#deliver();
      },
    });
    this.#send = button("Send to Python", () => void this.#deliver(true), { icon: "python" });
    this.#send.disabled = true;
    this.#frame.tools.dataset["still"] = "no";
    if (host.send)
      this.#frame.tools.append(
        h("label", { class: "pwx-row", title: "Give every result to Python as it comes" }, this.#sync, "sync"),
        this.#send,
      );
    void this.#load();
    signal.addEventListener("abort", () => this.#stop());
  }

  setSync(sync: boolean): void {
    this.#sync.checked = sync;
    if (sync && this.#results) void this.#deliver();
  }

  /** Takes inputs from outside; those of a panel hold until its user changes it. */
  give(given: Tensors): void {
    this.#given = given;
    this.#tellGiven();
    this.#runner.ask();
  }

  /** Says that what came from outside does not fit. */
  refuse(error: unknown): void {
    this.#frame.alert(error);
  }

  #forget(inputs: readonly string[]): void {
    if (!inputs.some((name) => name in this.#given)) return;
    this.#given = Object.fromEntries(Object.entries(this.#given).filter(([name]) => !inputs.includes(name)));
    this.#tellGiven();
  }

  #tellGiven(): void {
    const told = Object.entries(this.#given).map(([name, { type, dims }]) => `${name} ${type}[${dims.join(", ")}]`);
    this.#taken.textContent = `Set from outside: ${told.join("; ")}`;
    this.#taken.hidden = !told.length;
  }

  /** The results of the newest inputs: at once if they stand, or of the run that is to come. */
  async current(): Promise<Tensors> {
    if (this.#results && !this.#runner.running && !this.#failed) return this.#results;
    if (this.#unloaded) throw this.#unloaded;
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (this.#model && !this.#runner.running) this.#runner.ask();
    });
  }

  async #load(): Promise<void> {
    const { host, signal } = this.options;
    try {
      this.#model = await this.#frame.load(host, host.backends, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#unloaded = error;
      this.#fail(error);
      return;
    }
    this.#runner.ask();
  }

  async #job(): Promise<Timing | undefined> {
    if (!this.#model) return undefined;
    const start = performance.now();
    const { spec, host } = this.options;
    let feeds: Record<string, Tensors[string]> = {};
    for (const [k, panel] of this.#inputs.entries()) {
      if (spec.panels[k]!.inputs.every((name) => name in this.#given)) continue;
      const given = panel.feeds();
      if (!given) {
        this.#nothing();
        return undefined;
      }
      Object.assign(feeds, given);
    }
    Object.assign(feeds, this.#given);
    const picture = this.#inputs.find((panel) => panel.picture)?.picture?.();
    if (spec.before && host.change) feeds = { ...feeds, ...(await host.change("before", feeds)).tensors };
    const prepared = performance.now();
    let results = await this.#model.run(feeds);
    const ran = performance.now();
    if (spec.after && host.change) {
      const { tensors, text } = await host.change("after", results);
      results = { ...results, ...tensors };
      this.#said.textContent = text;
      this.#said.hidden = !text;
    }
    if (this.options.signal.aborted) return undefined;
    this.#results = results;
    this.#failed = false;
    this.#frame.alert(undefined);
    for (const panel of this.#outputs) panel.show(results, picture as Picture | undefined);
    this.#send.disabled = false;
    for (const { resolve } of this.#waiting.splice(0)) resolve(results);
    if (this.#sync.checked && performance.now() - this.#sentAt > SYNC_PAUSE) void this.#deliver();
    const timing = { pre: prepared - start, run: ran - prepared, post: performance.now() - ran };
    this.#frame.status.textContent = this.#runner.text(this.#streaming());
    return timing;
  }

  #streaming(): boolean {
    return this.#inputs.some((panel) => panel.streaming?.());
  }

  #nothing(): void {
    this.#results = undefined;
    this.#failed = false;
    this.#send.disabled = true;
    this.#frame.alert(undefined);
    this.#frame.status.textContent = "Waiting for an input";
    for (const panel of this.#outputs) panel.clear();
    if (this.#inputs.some((panel) => panel.loading?.())) return;
    this.#refuse(new Error("the widget has no input yet: give it one, then ask again"));
  }

  #settle(): void {
    if (this.#results && !this.#failed) {
      this.#frame.status.textContent = this.#runner.text(this.#streaming());
      // What the throttle held back.
      if (this.#sync.checked) void this.#deliver();
    }
    if (this.#model) this.options.onSettled(this.element);
  }

  #fail(error: unknown): void {
    this.#failed = true;
    this.#results = undefined;
    this.#send.disabled = true;
    this.#frame.alert(error);
    this.#frame.status.textContent = "";
    for (const panel of this.#outputs) panel.clear();
    this.#refuse(error);
  }

  /** Ends the waiting for a result. */
  #refuse(error: unknown): void {
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  async #deliver(asked = false): Promise<void> {
    if (!this.#results || !this.options.host.send) return;
    this.#sentAt = performance.now();
    try {
      this.options.onValue?.(this.#results);
      await this.options.host.send(this.#results);
      if (asked) this.#frame.status.textContent = "Sent: the widget's value holds it";
    } catch (error) {
      if (!this.options.signal.aborted) this.#frame.alert(error);
    }
  }

  #stop(): void {
    this.#refuse(new Error("the widget was closed"));
    void this.#model?.release().catch(() => {});
  }
}

function input(spec: Spec, panel: InputSpec, context: Context): InputPanel {
  const value = valueOf(spec.inputs, panel.inputs[0]!);
  switch (panel.kind) {
    case "image":
      return new ImagePanel(value, panel, context);
    case "text":
      return new TextPanel(spec.inputs, panel, context);
    case "table":
      return new TablePanel(value, panel, context);
    case "slider":
      return new SliderPanel(value, panel, context);
    case "tensor":
      return new TensorPanel(value, panel, context);
    case "audio":
      return new AudioPanel(value, panel, context);
  }
}

function output(spec: Spec, show: OutputSpec, context: Context): OutputPanel {
  const value = valueOf(spec.outputs, show.output);
  switch (show.kind) {
    case "topk":
      return new TopShow(value, show);
    case "image":
      return new ImageShow(value, show);
    case "heatmap":
      return new HeatShow(value, show);
    case "boxes":
      return new BoxesShow(value, show);
    case "text":
      return new TextShow(value, show, context);
    case "table":
      return new TableShow(value, show);
    case "tensor":
      return new TensorShow(value);
    case "sound":
      return new SoundShow(value, show);
  }
}

/** Symbolic dims that only the person can settle: of inputs shown as plain tensors. */
function symbols(spec: Spec): string[] {
  const plain = spec.panels.filter(({ kind }) => kind === "tensor").flatMap(({ inputs }) => inputs);
  const dims = plain
    .flatMap((name) => valueOf(spec.inputs, name).shape)
    .filter((dim): dim is string => typeof dim === "string");
  return [...new Set(dims)];
}
