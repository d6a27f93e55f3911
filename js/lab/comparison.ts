/** Two models side by side, with a list of what differs. */
import { messageOf } from "./details.js";
import { differences, type Differences, type Digests } from "./differences.js";
import { el } from "./dom.js";
import type { Knowledge } from "./knowledge.js";
import type { Node } from "./model.js";
import { GraphView, SETTINGS, type Settings } from "./view.js";

const SHOWN = 500;

export class Comparison {
  readonly element = el("div", { class: "pw-comparison" });
  readonly views: readonly [GraphView, GraphView];
  private readonly list = el("div", {
    class: "pw-differences",
    role: "region",
    "aria-label": "Differences",
    tabindex: 0,
  });
  private readonly controller = new AbortController();
  private found: Differences | null = null;

  constructor(
    private readonly sources: readonly [Knowledge, Knowledge],
    folder: () => string,
    settings: Settings = SETTINGS,
  ) {
    const view = (source: Knowledge): GraphView => new GraphView(source, folder, settings);
    this.views = [view(sources[0]), view(sources[1])];
    const side = (k: 0 | 1): HTMLElement =>
      el(
        "section",
        { class: "pw-half", "aria-label": sources[k].path },
        el("div", { class: "pw-which" }, sources[k].path),
        this.views[k].element,
      );
    this.element.append(el("div", { class: "pw-halves" }, side(0), side(1)), this.list);
    this.views.forEach((own, k) => (own.onSelect = (node) => this.follow(this.views[1 - k]!, node)));
  }

  async load(): Promise<void> {
    this.list.replaceChildren(el("span", { class: "pw-faint" }, "comparing …"));
    await Promise.all(this.views.map((view) => view.load()));
    const [left, right] = this.views.map((view) => view.model);
    if (this.controller.signal.aborted || !left || !right) return;
    const digests = await Promise.all(this.sources.map((source) => this.digests(source)));
    this.found = differences(left, right, digests as unknown as readonly [Digests, Digests]);
    const { pairs } = this.found;
    this.views.forEach((view, k) => {
      const own = pairs.flatMap((pair) => {
        const node = k ? pair.right : pair.left;
        return node ? [[node, pair.left && pair.right ? "changed" : "missing"] as const] : [];
      });
      view.tellDifferences(new Map(own));
    });
    this.list.replaceChildren(...this.report(this.found));
  }

  dispose(): void {
    this.controller.abort();
    for (const view of this.views) view.dispose();
  }

  private async digests(source: Knowledge): Promise<Digests> {
    try {
      return source.server ? await source.digests(this.controller.signal) : {};
    } catch (error) {
      console.warn(`pyonnx-wasm: contents of ${source.path} are not compared: ${messageOf(error)}`);
      return {};
    }
  }

  /** Shows the counterpart of what is selected; it answers with its own, which is known already. */
  private following = false;

  private follow(view: GraphView, node: Node | null): void {
    const other = node && this.found?.counterpart.get(node);
    if (!other || this.following) return;
    this.following = true;
    void view.go(other).finally(() => (this.following = false));
  }

  private report({ about, pairs }: Differences): HTMLElement[] {
    const alone = (k: "left" | "right"): number =>
      pairs.filter((p) => p[k] && !p[k === "left" ? "right" : "left"]).length;
    const both = pairs.length - alone("left") - alone("right");
    const summary =
      pairs.length || about.length
        ? `${both} nodes differ, ${alone("left")} are in the first model alone, ${alone("right")} in the second alone`
        : "The models do not differ.";
    const name = (node: Node): string =>
      [node.call.op || node.kind, node.call.name || node.label].filter(Boolean).join(" ");
    const rows = pairs.slice(0, SHOWN).map(({ left, right, changes }) => {
      const go = (): void => {
        if (left) void this.views[0].go(left);
        if (right && !left) void this.views[1].go(right);
      };
      const what = changes.join("; ") || (left ? "in the first model alone" : "in the second model alone");
      return el(
        "li",
        {},
        el(
          "button",
          { class: "pw-difference", type: "button", onclick: go, "data-kind": left && right ? "changed" : "missing" },
          el("b", {}, name((left ?? right)!)),
          el("span", { class: "pw-faint" }, what),
        ),
      );
    });
    return [
      el("p", { class: "pw-summary", role: "status" }, summary),
      ...about.map((line) => el("p", { class: "pw-faint" }, line)),
      el("ul", {}, ...rows),
      ...(pairs.length > SHOWN ? [el("p", { class: "pw-faint" }, `and ${pairs.length - SHOWN} more`)] : []),
    ];
  }
}
