/** The viewer: canvas, toolbar and panel around one model. */
import { GraphCanvas } from "./canvas.js";
import { itemDetails, messageOf, modelDetails, type Context } from "./details.js";
import { download, el } from "./dom.js";
import { BUDGET, grouped, isGroup, opened, type Group, type Leaf } from "./groups.js";
import type { Knowledge, RunResult, Shapes, Statistics } from "./knowledge.js";
import { Layouts } from "./layouts.js";
import { Model, type Node } from "./model.js";
import { Outline } from "./outline.js";
import { differing, heat } from "./marks.js";
import { palette, toPng, toSvg, type Difference, type Palette } from "./paint.js";
import { RunPanel } from "./run.js";
import { visible, type Scene } from "./scene.js";
import { Search } from "./search.js";
import { Message, tool, toolbar } from "./toolbar.js";

const ALL = 3000;
const SLOW = 300;
/** Milliseconds that the first picture waits for inferred shapes. */
const PATIENCE = 600;

type Tab = "details" | "model" | "outline" | "run";

export interface Settings {
  /** Groups are opened at first as long as there are no more boxes than this. */
  readonly boxes: number;
  readonly allNodes: boolean;
  readonly tab: Exclude<Tab, "details">;
  /** Of the custom properties that hold colours. */
  readonly prefix?: string;
}

export const SETTINGS: Settings = { boxes: BUDGET, allNodes: false, tab: "model" };

export class GraphView {
  readonly element = el("div", { class: "pw-viewer" });
  /** Called when a node is selected, by whatever way. */
  onSelect: (node: Node | null) => void = () => {};
  /** Called when the graph looks different. */
  onChange: () => void = () => {};
  private readonly canvas: GraphCanvas;
  private readonly search = new Search(
    () => [...this.leaves.keys()],
    (node) => this.go(node),
    () => this.mark(),
    () => this.focus(),
  );
  private readonly status = el("div", { class: "pw-status", role: "status" });
  private readonly message = new Message();
  private readonly content = el("div", { class: "pw-content", role: "tabpanel", tabindex: 0 });
  private readonly tabs: Record<Tab, HTMLButtonElement>;
  private readonly themes = new MutationObserver(() => this.theme());
  private readonly memory = new Map<string, Promise<Statistics>>();
  private loading = new AbortController();
  private readonly layouts = new Layouts();
  private readonly outline = new Outline((item) => void this.goItem(item));
  private readonly allNodes: HTMLButtonElement;
  private readonly schemes = matchMedia("(prefers-color-scheme: dark)");
  private differences: ReadonlyMap<Node, Difference> = new Map();
  private disposed = false;
  model: Model | null = null;
  private root: Group | null = null;
  private leaves = new Map<Node, Leaf>();
  private open = new Set<Group>();
  private scene: Scene | null = null;
  private selected: Group | Leaf | null = null;
  private tab: Tab = "model";
  private constants: boolean;
  private shapes: Shapes | null = null;
  private note = "";
  private times = new Map<string, number>();
  private run: RunPanel | null = null;

  constructor(
    private readonly source: Knowledge,
    private readonly folder: () => string,
    private readonly settings: Settings = SETTINGS,
  ) {
    this.constants = settings.allNodes;
    this.canvas = new GraphCanvas({
      select: (item) => this.select(item),
      toggle: (group) => void this.toggle(group),
      search: () => this.focusSearch(),
      follow: (step) => this.follow(step),
    });
    const tab = (id: Tab, text: string): HTMLButtonElement =>
      el("button", { class: "pw-tab", type: "button", role: "tab", onclick: () => this.show(id) }, text);
    this.tabs = {
      model: tab("model", "Model"),
      outline: tab("outline", "Outline"),
      details: tab("details", "Selected"),
      run: tab("run", "Run"),
    };
    this.allNodes = tool("All nodes", "Show also the nodes that depend on weights or sizes alone", () =>
      this.toggleAllNodes(),
    );
    this.allNodes.setAttribute("aria-pressed", String(this.constants));
    const bar = toolbar(this.search.elements, [
      tool("−", "Zoom out (-)", () => this.canvas.zoom(0.8)),
      tool("+", "Zoom in (+)", () => this.canvas.zoom(1.25)),
      tool("Fit", "Show everything (0)", () => this.fit()),
      tool("Open all", "Open all groups", () => void this.openAll()),
      tool("Close all", "Close all groups", () => void this.closeAll()),
      this.allNodes,
      tool("SVG", "Save the picture as SVG", () => this.export("svg")),
      tool("PNG", "Save the picture as PNG", () => this.export("png")),
    ]);
    const tabs = el("div", { class: "pw-tabs", role: "tablist", "aria-label": "Panels" }, ...Object.values(this.tabs));
    tabs.addEventListener("keydown", (event) => this.tabKey(event));
    const side = el("aside", { class: "pw-side", "aria-label": "About the model" }, tabs, this.content);
    const stage = el("div", { class: "pw-stage" }, this.canvas.element, this.message.element, this.status);
    this.element.append(el("div", { class: "pw-layout" }, el("div", { class: "pw-main" }, bar, stage), side));
    this.themes.observe(document.body, {
      attributes: true,
      attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"],
    });
    this.schemes.addEventListener("change", this.theme);
  }

  /** The canvas of the graph, and how a copy of it is painted, whole, for a picture. */
  get graph(): {
    readonly canvas: HTMLCanvasElement;
    readonly paint: (copy: HTMLCanvasElement, dark: boolean) => void;
  } {
    const paint = (copy: HTMLCanvasElement, dark: boolean): void =>
      this.canvas.paintOn(copy, palette(copy, dark, this.settings.prefix));
    return { canvas: this.canvas.element, paint };
  }

  focus(): void {
    this.canvas.element.focus();
  }

  focusSearch(): void {
    this.search.input.focus();
  }

  fit(): void {
    this.canvas.fit();
  }

  toggleAllNodes(): void {
    this.constants = !this.constants;
    this.allNodes.setAttribute("aria-pressed", String(this.constants));
    void this.rebuild();
  }

  /** Reads the file, again where it has changed. */
  async load(): Promise<void> {
    this.loading.abort();
    const loading = (this.loading = new AbortController());
    const { signal } = loading;
    this.message.say("reading …");
    this.theme();
    try {
      const description = await this.source.graph(signal, (read, total) => {
        if (read > 1e6)
          this.message.say(`reading … ${(read / 1e6).toFixed(0)} MB${total ? ` of ${(total / 1e6).toFixed(0)}` : ""}`);
      });
      if (signal.aborted) return;
      this.model = new Model(description);
      this.root = this.scene = this.selected = null;
      this.memory.clear();
      this.shapes = null;
      this.times = new Map();
      this.run?.dispose();
      const { server } = this.source;
      this.makeRun();
      this.note = server
        ? ""
        : "Read in the browser: shapes are those that the file declares. Inferred shapes, statistics and runs need Python.";
      const shapes = server && description.kind === "onnx" ? this.infer(signal) : null;
      if (shapes) await Promise.race([shapes, new Promise((done) => setTimeout(done, PATIENCE))]);
      await this.rebuild();
      this.message.say("");
      this.show(this.settings.tab);
      if ((await shapes) === "late") await this.rebuild();
      this.tell();
      this.show(this.tab);
    } catch (error) {
      if (!signal.aborted) this.message.fail(messageOf(error), () => void this.load());
    }
  }

  dispose(): void {
    this.disposed = true;
    this.loading.abort();
    this.run?.dispose();
    this.layouts.dispose();
    this.themes.disconnect();
    this.schemes.removeEventListener("change", this.theme);
    this.canvas.dispose();
  }

  private makeRun(): void {
    this.run?.dispose();
    this.run = this.source.server
      ? new RunPanel(
          this.model!.description,
          this.folder(),
          (r, s) => this.source.run(r, s),
          (r) => this.ran(r),
          (o) => this.goTo(o),
        )
      : null;
  }

  /** Starts what tells more than the file does, then shows what it tells. */
  private async learn(): Promise<void> {
    const { signal } = this.loading;
    this.note = "Python is starting …";
    this.show(this.tab);
    try {
      await this.source.more?.(signal);
      this.note = "";
      this.makeRun();
      if (this.model!.description.kind === "onnx") await this.infer(signal);
      if (signal.aborted) return;
      await this.rebuild();
    } catch (error) {
      this.note = messageOf(error);
    }
    if (!signal.aborted) this.show(this.tab);
  }

  /** Where a node's box is on the page, by the node's name; null where a closed group hides it. */
  place(name: string): { x: number; y: number; width: number; height: number } | null {
    const item = this.scene?.boxes.find((b) => (isGroup(b.item) ? b.item.label : b.item.node.call.name) === name)?.item;
    return item ? this.canvas.place(item) : null;
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
    this.open = opened(this.root, this.settings.boxes);
    this.leaves = new Map();
    const queue: (Group | Leaf)[] = [this.root];
    for (const item of queue) {
      if (isGroup(item)) for (const child of item.children) queue.push(child);
      else this.leaves.set(item.node, item);
    }
    this.selected = (chosen && this.leaves.get(chosen)) ?? null;
    this.outline.show(this.root);
    await this.relayout();
  }

  private async relayout(anchor?: Group | Leaf): Promise<void> {
    const { input, ...rest } = visible(this.root!, this.open, this.canvas.measure);
    const slow = setTimeout(
      () => this.message.say(`laying out ${input.boxes.length} boxes …`, () => this.layouts.cancel()),
      SLOW,
    );
    try {
      const layout = await this.layouts.of(input);
      if (!layout || this.disposed) return;
      this.scene = { ...rest, layout };
      this.onChange();
      this.canvas.show(this.scene, anchor);
      this.mark();
      this.tell();
    } finally {
      clearTimeout(slow);
      this.message.say("");
    }
  }

  private async toggle(group: Group): Promise<void> {
    if (!this.open.delete(group)) this.open.add(group);
    await this.relayout(group);
    this.select(group, false);
  }

  async openAll(): Promise<void> {
    if (!this.root) return;
    this.open = opened(this.root, ALL);
    await this.relayout();
    this.canvas.fit(true, true);
  }

  async closeAll(): Promise<void> {
    if (!this.root) return;
    this.open = new Set([this.root]);
    await this.relayout();
    this.canvas.fit(true, true);
  }

  private select(item: Group | Leaf | null, show = true): void {
    this.selected = item;
    this.mark();
    this.outline.mark(item);
    this.onSelect(item && !isGroup(item) ? item.node : null);
    if (show && this.tab !== "outline") this.show(item ? "details" : this.tab === "details" ? "model" : this.tab);
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

  async go(node: Node): Promise<void> {
    const leaf = this.leaves.get(node);
    if (leaf) await this.goItem(leaf);
  }

  private async goItem(leaf: Group | Leaf): Promise<void> {
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

  step(by: -1 | 1): Promise<void> {
    return this.search.step(by);
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
    this.canvas.mark({
      selected: (this.selected && this.scene.index.get(this.selected)) ?? -1,
      found: new Set(this.search.matches.map(at)),
      heat: heat(this.scene, this.times),
      differences: differing(this.scene, this.differences),
    });
  }

  /** Marks what differs from another model. */
  tellDifferences(found: ReadonlyMap<Node, Difference>): void {
    this.differences = found;
    this.mark();
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

  show(tab: Tab): void {
    this.tab = tab;
    for (const [id, button] of Object.entries(this.tabs)) {
      button.setAttribute("aria-selected", String(id === tab));
      button.tabIndex = id === tab ? 0 : -1;
    }
    if (!this.model) return;
    const context = this.context();
    if (tab === "model")
      this.content.replaceChildren(modelDetails(context, this.summary()), ...(this.note ? [this.offer()] : []));
    else if (tab === "details")
      this.content.replaceChildren(
        this.selected
          ? itemDetails(this.selected, context)
          : el("p", { class: "pw-faint" }, "Select a box of the graph."),
      );
    else if (tab === "outline") this.content.replaceChildren(this.outline.element);
    else this.content.replaceChildren(this.run?.element ?? this.offer());
  }

  private offer(): HTMLElement {
    const more = this.source.more;
    return el(
      "div",
      {},
      el("p", { class: "pw-faint" }, this.note),
      more &&
        el(
          "button",
          { class: "pw-button", type: "button", onclick: () => void this.learn() },
          "Start Python for this model",
        ),
    );
  }

  private tabKey(event: KeyboardEvent): void {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const ids = Object.keys(this.tabs) as Tab[];
    const next = ids[(ids.indexOf(this.tab) + by + ids.length) % ids.length]!;
    this.show(next);
    this.tabs[next].focus();
    event.preventDefault();
  }

  private context(): Context {
    const weigh = (name: string): Promise<Statistics> => {
      const known = this.memory.get(name) ?? this.source.weight(name, this.loading.signal);
      this.memory.set(name, known);
      known.catch(() => this.memory.delete(name));
      return known;
    };
    const { source } = this;
    const { signal } = this.loading;
    const opset = (domain: string): number => this.model!.description.opsets?.[domain] ?? 1;
    return {
      model: this.model!,
      statistics: source.server ? weigh : null,
      contents: source.server
        ? (name) => ({ plane: (index) => source.plane(name, index, signal), npy: () => source.npy(name, signal) })
        : null,
      documentation: source.server
        ? ({ call }) => source.operator(call.domain, call.op, opset(call.domain), signal)
        : null,
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
    const inferring = this.source.server && this.model?.description.kind === "onnx" && !this.note;
    const shapes = this.shapes ? "inferred shapes" : inferring ? "inferring shapes …" : "";
    const where = this.source.server ? "" : "read in the browser";
    const all = this.model!.nodes.filter((n) => n.kind === "op").length;
    const count = this.root.count.toLocaleString("en");
    const nodes = this.root.count < all ? `${count} of ${all.toLocaleString("en")} nodes` : `${count} nodes`;
    const parts = [`${nodes} in ${this.scene.boxes.length} boxes`, shapes, where];
    this.status.textContent = parts.filter(Boolean).join(" · ");
  }

  private readonly theme = (): void => {
    const theme = document.body.dataset["jpThemeLight"];
    const dark = theme ? theme === "false" : document.body.classList.contains("vscode-dark") || this.schemes.matches;
    this.palette = palette(this.element, dark, this.settings.prefix);
    this.canvas.paintWith(this.palette);
  };

  private palette: Palette | null = null;

  export(kind: "svg" | "png"): void {
    if (!this.scene || !this.palette) return;
    const name = `${this.model!.description.name.replace(/\.\w+$/, "")}.${kind}`;
    if (kind === "svg") download(name, new Blob([toSvg(this.scene, this.palette)], { type: "image/svg+xml" }));
    else
      void toPng(this.scene, this.palette).then((picture) =>
        picture
          ? download(name, picture)
          : this.message.say("the picture is too large for this browser; save it as SVG"),
      );
  }
}
