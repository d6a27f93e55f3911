/** The viewer: canvas, toolbar and panel around one model. */
import { Widget } from "@lumino/widgets";
import workerSource from "layout-worker";
import { GraphCanvas } from "./canvas.js";
import type { Layout } from "./compound.js";
import { itemDetails, messageOf, modelDetails, type Context } from "./details.js";
import { download, el } from "./dom.js";
import { grouped, isGroup, opened, type Group, type Leaf } from "./groups.js";
import { Model, type Node } from "./model.js";
import { toPng, toSvg, type Palette } from "./paint.js";
import { RunPanel } from "./run.js";
import { nodesIn, visible, type Scene } from "./scene.js";
import type { RunResult, Shapes, Source, Statistics } from "./source.js";

const MATCHES = 2000;
const ALL = 3000;
const SLOW = 300;
/** Milliseconds that the first picture waits for inferred shapes. */
const PATIENCE = 600;

type Tab = "details" | "model" | "run";

export class ModelViewer extends Widget {
  private readonly canvas: GraphCanvas;
  private readonly search = el("input", {
    type: "search",
    placeholder: "Search  /",
    "aria-label": "Search nodes, operators, values",
    spellcheck: "false",
  });
  private readonly matchCount = el("span", { class: "pw-count", "aria-live": "polite" });
  private readonly status = el("div", { class: "pw-status", role: "status" });
  private readonly message = el("div", { class: "pw-message" });
  private readonly content = el("div", { class: "pw-content", role: "tabpanel", tabindex: 0 });
  private readonly tabs: Record<Tab, HTMLButtonElement>;
  private readonly themes = new MutationObserver(() => this.theme());
  private readonly memory = new Map<string, Promise<Statistics>>();
  private loading = new AbortController();
  private worker: Worker | null = null;
  private model: Model | null = null;
  private root: Group | null = null;
  private leaves = new Map<Node, Leaf>();
  private open = new Set<Group>();
  private scene: Scene | null = null;
  private selected: Group | Leaf | null = null;
  private tab: Tab = "model";
  private matches: Node[] = [];
  private match = -1;
  private constants = false;
  private shapes: Shapes | null = null;
  private note = "";
  private times = new Map<string, number>();
  private run: RunPanel | null = null;

  constructor(
    private readonly source: Source,
    private readonly folder: () => string,
  ) {
    super();
    this.addClass("pw-viewer");
    this.canvas = new GraphCanvas({
      select: (item) => this.select(item),
      toggle: (group) => void this.toggle(group),
      search: () => this.search.focus(),
      follow: (step) => this.follow(step),
    });
    const button = (text: string, label: string, act: () => void): HTMLButtonElement =>
      el("button", { class: "pw-tool", type: "button", title: label, "aria-label": label, onclick: act }, text);
    const tab = (id: Tab, text: string): HTMLButtonElement =>
      el("button", { class: "pw-tab", type: "button", role: "tab", onclick: () => this.show(id) }, text);
    this.tabs = { details: tab("details", "Selected"), model: tab("model", "Model"), run: tab("run", "Run") };
    const constants = button("All nodes", "Show also the nodes that depend on weights or sizes alone", () => {
      this.constants = !this.constants;
      constants.setAttribute("aria-pressed", String(this.constants));
      void this.rebuild();
    });
    constants.setAttribute("aria-pressed", "false");
    const toolbar = el(
      "div",
      { class: "pw-toolbar", role: "toolbar", "aria-label": "Graph" },
      el(
        "div",
        { class: "pw-search" },
        this.search,
        this.matchCount,
        button("↑", "Previous match (Shift+Enter)", () => void this.step(-1)),
        button("↓", "Next match (Enter)", () => void this.step(1)),
      ),
      el(
        "div",
        { class: "pw-tools" },
        button("−", "Zoom out (-)", () => this.canvas.zoom(0.8)),
        button("+", "Zoom in (+)", () => this.canvas.zoom(1.25)),
        button("Fit", "Show everything (0)", () => this.canvas.fit()),
        button("Open all", "Open all groups", () => void this.openAll()),
        button("Close all", "Close all groups", () => void this.closeAll()),
        constants,
        button("SVG", "Save the picture as SVG", () => this.export("svg")),
        button("PNG", "Save the picture as PNG", () => this.export("png")),
      ),
    );
    const side = el(
      "aside",
      { class: "pw-side" },
      el("div", { class: "pw-tabs", role: "tablist" }, this.tabs.model, this.tabs.details, this.tabs.run),
      this.content,
    );
    const stage = el("div", { class: "pw-stage" }, this.canvas.element, this.message, this.status);
    this.node.append(el("div", { class: "pw-layout" }, el("div", { class: "pw-main" }, toolbar, stage), side));
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") void this.step(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.canvas.element.focus();
      else return;
      event.preventDefault();
    });
    this.themes.observe(document.body, {
      attributes: true,
      attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"],
    });
  }

  /** Reads the file, again where it has changed. */
  async load(): Promise<void> {
    this.loading.abort();
    const loading = (this.loading = new AbortController());
    const { signal } = loading;
    this.say("reading …");
    this.theme();
    try {
      const description = await this.source.graph(signal, (read, total) => {
        if (read > 1e6)
          this.say(`reading … ${(read / 1e6).toFixed(0)} MB${total ? ` of ${(total / 1e6).toFixed(0)}` : ""}`);
      });
      if (signal.aborted) return;
      this.model = new Model(description);
      this.root = this.scene = this.selected = null;
      this.memory.clear();
      this.shapes = null;
      this.times = new Map();
      this.run?.dispose();
      const { server } = this.source;
      this.run = server
        ? new RunPanel(
            description,
            this.folder(),
            (r, s) => this.source.run(r, s),
            (r) => this.ran(r),
            (o) => this.goTo(o),
          )
        : null;
      this.note = server
        ? ""
        : "Read in the browser: shapes are those that the file declares. Statistics and runs need the server extension, which comes with pyonnx-wasm where Jupyter runs.";
      const shapes = server && description.kind === "onnx" ? this.infer(signal) : null;
      if (shapes) await Promise.race([shapes, new Promise((done) => setTimeout(done, PATIENCE))]);
      await this.rebuild();
      this.say("");
      this.show("model");
      if ((await shapes) === "late") await this.rebuild();
      this.tell();
      this.show(this.tab);
    } catch (error) {
      if (!signal.aborted) this.fail(messageOf(error));
    }
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.loading.abort();
    this.run?.dispose();
    this.worker?.terminate();
    this.themes.disconnect();
    this.canvas.dispose();
    super.dispose();
  }

  /** Where a node's box is on the page, by the node's name; null where a closed group hides it. */
  place(name: string): { x: number; y: number; width: number; height: number } | null {
    const item = this.scene?.boxes.find((b) => (isGroup(b.item) ? b.item.label : b.item.node.call.name) === name)?.item;
    return item ? this.canvas.place(item) : null;
  }

  protected override onActivateRequest(): void {
    this.canvas.element.focus();
  }

  /** Takes the inferred shapes over; tells whether the graph was on show by then. */
  private async infer(signal: AbortSignal): Promise<"early" | "late" | "none"> {
    const model = this.model!;
    try {
      const shapes = await this.source.shapes(signal);
      if (signal.aborted || this.model !== model) return "none";
      this.shapes = shapes;
      for (const [name, [dtype, shape, content]] of Object.entries(shapes.values)) {
        for (const value of model.find(name)) {
          value.declared = { name, dtype, shape };
          value.content = content ?? null;
        }
      }
      model.settle();
      return this.root ? "late" : "early";
    } catch (error) {
      if (!signal.aborted) this.note = `Shapes are those that the file declares: ${messageOf(error)}`;
      return "none";
    }
  }

  /** Makes the tree anew, with what is opened at first. */
  private async rebuild(): Promise<void> {
    if (!this.model) return;
    const chosen = this.selected && !isGroup(this.selected) ? this.selected.node : null;
    this.root = grouped(this.model, this.constants);
    this.open = opened(this.root);
    this.leaves = new Map();
    const queue: (Group | Leaf)[] = [this.root];
    for (const item of queue) {
      if (isGroup(item)) for (const child of item.children) queue.push(child);
      else this.leaves.set(item.node, item);
    }
    this.selected = (chosen && this.leaves.get(chosen)) ?? null;
    await this.relayout();
  }

  private async relayout(anchor?: Group | Leaf): Promise<void> {
    const { input, ...rest } = visible(this.root!, this.open, this.canvas.measure);
    const slow = setTimeout(() => this.say(`laying out ${input.boxes.length} boxes …`, () => this.cancel()), SLOW);
    try {
      const layout = await this.layOut(input);
      if (!layout || this.isDisposed) return;
      this.scene = { ...rest, layout };
      this.canvas.show(this.scene, anchor);
      this.mark();
      this.tell();
    } finally {
      clearTimeout(slow);
      this.say("");
    }
  }

  private pending: (() => void) | null = null;

  /** The layout from the worker; null where a newer one took its place. */
  private layOut(input: object): Promise<Layout | null> {
    this.cancel();
    if (!this.worker) {
      const url = URL.createObjectURL(new Blob([workerSource], { type: "text/javascript" }));
      this.worker = new Worker(url, { name: "pyonnx-wasm layout" });
      URL.revokeObjectURL(url);
    }
    const { worker } = this;
    return new Promise((done, failed) => {
      this.pending = () => {
        worker.terminate();
        this.worker = null;
        done(null);
      };
      worker.onmessage = ({ data }: MessageEvent<Layout>) => {
        this.pending = null;
        done(data);
      };
      worker.onerror = (event) => {
        this.pending = null;
        failed(new Error(event.message || "the layout failed"));
      };
      worker.postMessage(input);
    });
  }

  private cancel(): void {
    this.pending?.();
    this.pending = null;
  }

  private async toggle(group: Group): Promise<void> {
    if (!this.open.delete(group)) this.open.add(group);
    await this.relayout(group);
    this.select(group, false);
  }

  private async openAll(): Promise<void> {
    if (!this.root) return;
    this.open = opened(this.root, ALL);
    await this.relayout();
    this.canvas.fit(true, true);
  }

  private async closeAll(): Promise<void> {
    if (!this.root) return;
    this.open = new Set([this.root]);
    await this.relayout();
    this.canvas.fit(true, true);
  }

  private select(item: Group | Leaf | null, show = true): void {
    this.selected = item;
    this.mark();
    if (show) this.show(item ? "details" : this.tab === "details" ? "model" : this.tab);
  }

  private follow(step: -1 | 1): void {
    const at = this.selected && this.scene?.index.get(this.selected);
    if (at === null || at === undefined) return;
    const wire = this.scene!.wires.find((w) => (step > 0 ? w.from : w.to) === at);
    const item = wire && this.scene!.boxes[step > 0 ? wire.to : wire.from]!.item;
    if (!item) return;
    this.select(item);
    this.canvas.reveal(item);
  }

  private async go(node: Node): Promise<void> {
    const leaf = this.leaves.get(node);
    if (!leaf) return;
    let closed = false;
    for (let g: Group | null = leaf.parent; g; g = g.parent) {
      closed ||= !this.open.has(g);
      this.open.add(g);
    }
    if (closed) await this.relayout();
    this.select(leaf);
    this.canvas.reveal(leaf);
  }

  private goTo(origin: string): void {
    const names = new Set([origin, ...origin.split(" + ")]);
    const node = this.model?.nodes.find((n) => n.kind === "op" && names.has(n.call.name) && this.leaves.has(n));
    if (node) void this.go(node);
  }

  private find(): void {
    const wanted = this.search.value.trim().toLowerCase();
    const hit = (text: string): boolean => text.toLowerCase().includes(wanted);
    const matches = (n: Node): boolean => hit(n.label) || hit(n.call.name) || hit(n.call.op) || n.outputs.some((v) => hit(v.name)) || n.inputs.some((v) => !!v?.weight && hit(v.name)); // prettier-ignore
    this.matches = wanted
      ? [...this.leaves.keys()]
          .filter(matches)
          .sort((a, b) => a.id - b.id)
          .slice(0, MATCHES)
      : [];
    this.match = -1;
    this.counted();
    this.mark();
  }

  private counted(): void {
    const many = this.matches.length === MATCHES ? `${MATCHES}+` : this.matches.length;
    this.matchCount.textContent = this.search.value.trim()
      ? `${this.match >= 0 ? `${this.match + 1} of ` : ""}${many}`
      : "";
  }

  private async step(by: -1 | 1): Promise<void> {
    if (!this.matches.length) return;
    this.match = (Math.max(this.match, by < 0 ? 0 : -1) + by + this.matches.length) % this.matches.length;
    this.counted();
    await this.go(this.matches[this.match]!);
  }

  private mark(): void {
    if (!this.scene) return;
    const at = (node: Node): number => {
      for (let item: Group | Leaf | null = this.leaves.get(node) ?? null; item; item = item.parent) {
        const k = this.scene!.index.get(item);
        if (k !== undefined && !this.scene!.boxes[k]!.open) return k;
      }
      return -1;
    };
    const heat = new Map<number, number>();
    let most = 0;
    if (this.times.size) {
      this.scene.boxes.forEach(({ item, open }, k) => {
        if (open) return;
        const time = nodesIn(item).reduce((sum, n) => sum + (this.times.get(n.call.name) ?? 0), 0);
        if (time) heat.set(k, time);
        most = Math.max(most, time);
      });
    }
    this.canvas.mark({
      selected: (this.selected && this.scene.index.get(this.selected)) ?? -1,
      found: new Set(this.matches.map(at)),
      heat: new Map([...heat].map(([k, time]) => [k, time / most])),
    });
  }

  /** Times of steps that came from several nodes count for the first of them. */
  private ran(result: RunResult): void {
    this.times = new Map();
    const known = new Set(this.model!.nodes.map((n) => n.call.name));
    for (const [origin, ms] of result.steps) {
      const name = known.has(origin) ? origin : (origin.split(" + ").find((part) => known.has(part)) ?? origin);
      this.times.set(name, (this.times.get(name) ?? 0) + ms);
    }
    this.mark();
  }

  private show(tab: Tab): void {
    this.tab = tab;
    for (const [id, button] of Object.entries(this.tabs)) button.setAttribute("aria-selected", String(id === tab));
    if (!this.model) return;
    const context = this.context();
    if (tab === "model") this.content.replaceChildren(modelDetails(context, this.note || this.summary()));
    else if (tab === "details")
      this.content.replaceChildren(
        this.selected
          ? itemDetails(this.selected, context)
          : el("p", { class: "pw-faint" }, "Select a box of the graph."),
      );
    else this.content.replaceChildren(this.run?.element ?? el("p", { class: "pw-faint" }, this.note));
  }

  private context(): Context {
    const weigh = (name: string): Promise<Statistics> => {
      const known = this.memory.get(name) ?? this.source.weight(name, this.loading.signal);
      this.memory.set(name, known);
      known.catch(() => this.memory.delete(name));
      return known;
    };
    return {
      model: this.model!,
      statistics: this.source.server ? weigh : null,
      failures: this.shapes?.failures ?? {},
      times: this.times,
      go: (node) => void this.go(node),
      toggle: (group) => void this.toggle(group),
      isOpen: (group) => this.open.has(group),
    };
  }

  private summary(): string {
    if (!this.shapes) return "";
    const missing = Object.keys(this.shapes.failures).length;
    return missing
      ? `Shapes are inferred; ${missing} nodes have none of their own.`
      : "Shapes are inferred for every value.";
  }

  private tell(): void {
    if (!this.root || !this.scene) return;
    const shapes = this.shapes
      ? "inferred shapes"
      : this.source.server && this.model?.description.kind === "onnx" && !this.note
        ? "inferring shapes …"
        : "";
    const where = this.source.server ? "" : "read in the browser";
    const all = this.model!.nodes.filter((n) => n.kind === "op").length;
    const count = this.root.count.toLocaleString("en");
    const nodes = this.root.count < all ? `${count} of ${all.toLocaleString("en")} nodes` : `${count} nodes`;
    this.status.textContent = [`${nodes} in ${this.scene.boxes.length} boxes`, shapes, where]
      .filter(Boolean)
      .join(" · ");
  }

  private say(text: string, cancel?: () => void): void {
    this.message.className = "pw-message";
    this.message.replaceChildren(
      ...(text ? [el("span", { class: "pw-busy" }, text)] : []),
      ...(cancel ? [el("button", { class: "pw-button", onclick: cancel }, "Cancel")] : []),
    );
  }

  private fail(text: string): void {
    this.message.className = "pw-message pw-failed";
    this.message.replaceChildren(
      el("strong", {}, "This model cannot be shown"),
      el("span", {}, text),
      el("button", { class: "pw-button", onclick: () => void this.load() }, "Try again"),
    );
  }

  private theme(): void {
    const style = getComputedStyle(this.node);
    const take = (name: string, otherwise: string): string => style.getPropertyValue(name).trim() || otherwise;
    const dark = document.body.dataset["jpThemeLight"] === "false";
    const palette: Palette = {
      dark,
      background: take("--jp-layout-color1", dark ? "#111" : "#fff"),
      text: take("--jp-ui-font-color0", dark ? "#fff" : "#111"),
      faint: take("--jp-ui-font-color2", dark ? "#aaa" : "#666"),
      line: dark ? "#6c7683" : "#98a2ae",
      border: take("--jp-border-color1", dark ? "#555" : "#bbb"),
      accent: take("--jp-brand-color1", "#1976d2"),
      error: take("--jp-error-color1", "#d32f2f"),
    };
    this.palette = palette;
    this.canvas.paintWith(palette);
  }

  private palette: Palette | null = null;

  private export(kind: "svg" | "png"): void {
    if (!this.scene || !this.palette) return;
    const name = `${this.model!.description.name.replace(/\.\w+$/, "")}.${kind}`;
    if (kind === "svg") download(name, new Blob([toSvg(this.scene, this.palette)], { type: "image/svg+xml" }));
    else
      void toPng(this.scene, this.palette).then((picture) =>
        picture ? download(name, picture) : this.say("the picture is too large for this browser; save it as SVG"),
      );
  }
}
