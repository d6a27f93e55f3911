/** The graph as a tree of text, for screen readers, keyboards and whoever likes lists. */
import { el } from "./dom.js";
import { isGroup, type Group, type Leaf } from "./groups.js";
import { typeText } from "./scene.js";

type Item = Group | Leaf;

export class Outline {
  readonly element = el("ul", { class: "pw-outline", role: "tree", "aria-label": "Outline of the graph" });
  private readonly rows = new Map<Item, HTMLElement>();
  private root: Group | null = null;

  constructor(private readonly choose: (item: Item) => void) {
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("click", ({ target }) => {
      const row = (target as HTMLElement).closest<HTMLElement>("[role=treeitem]");
      const item = row && this.item(row);
      if (!item) return;
      if (isGroup(item) && (target as HTMLElement).classList.contains("pw-twist")) this.expand(row, item);
      this.focus(row);
      this.choose(item);
    });
  }

  show(root: Group): void {
    if (this.root === root) return;
    this.root = root;
    this.rows.clear();
    this.element.replaceChildren(...root.children.map((item) => this.row(item)));
    this.element.querySelector<HTMLElement>("[role=treeitem]")?.setAttribute("tabindex", "0");
  }

  /** Opens the tree down to the item and marks it. */
  mark(item: Item | null): void {
    for (const chosen of this.element.querySelectorAll("[aria-selected=true]"))
      chosen.setAttribute("aria-selected", "false");
    if (!item) return;
    const path: Item[] = [item];
    for (let up = item.parent; up?.parent; up = up.parent) path.unshift(up);
    for (const step of path) {
      const row = this.rows.get(step);
      if (!row) return;
      if (step !== item && isGroup(step)) this.expand(row, step, true);
      if (step !== item) continue;
      row.setAttribute("aria-selected", "true");
      if (this.element.isConnected) row.firstElementChild!.scrollIntoView({ block: "nearest" });
    }
  }

  private row(item: Item): HTMLElement {
    const [title, detail] = texts(item);
    const row = el(
      "li",
      {
        role: "treeitem",
        tabindex: -1,
        "aria-selected": "false",
        "aria-label": `${title}${detail ? `, ${detail}` : ""}`,
      },
      el(
        "div",
        { class: "pw-line" },
        isGroup(item) && el("span", { class: "pw-twist", "aria-hidden": "true" }),
        el("span", { class: "pw-leaf" }, title),
        el("span", { class: "pw-faint" }, detail),
      ),
    );
    if (isGroup(item)) row.setAttribute("aria-expanded", "false");
    this.rows.set(item, row);
    return row;
  }

  private item(row: HTMLElement): Item | undefined {
    for (const [item, element] of this.rows) if (element === row) return item;
    return undefined;
  }

  private expand(row: HTMLElement, group: Group, open = row.getAttribute("aria-expanded") !== "true"): void {
    row.setAttribute("aria-expanded", String(open));
    let list = row.querySelector<HTMLElement>(":scope > ul");
    if (open && !list) row.append((list = el("ul", { role: "group" }, ...group.children.map((c) => this.row(c)))));
    if (list) list.hidden = !open;
  }

  private focus(row: HTMLElement): void {
    for (const other of this.element.querySelectorAll("[tabindex='0']")) other.setAttribute("tabindex", "-1");
    row.setAttribute("tabindex", "0");
    row.focus();
  }

  private key(event: KeyboardEvent): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[role=treeitem]");
    const item = row && this.item(row);
    if (!row || !item || event.ctrlKey || event.metaKey || event.altKey) return;
    const seen = [...this.element.querySelectorAll<HTMLElement>("[role=treeitem]")].filter(
      (r) => !r.closest("ul[hidden]"),
    );
    const at = seen.indexOf(row);
    const open = row.getAttribute("aria-expanded");
    const up = row.parentElement!.closest<HTMLElement>("[role=treeitem]");
    const keys: Record<string, () => void> = {
      ArrowDown: () => seen[at + 1] && this.focus(seen[at + 1]!),
      ArrowUp: () => seen[at - 1] && this.focus(seen[at - 1]!),
      Home: () => this.focus(seen[0]!),
      End: () => this.focus(seen.at(-1)!),
      ArrowRight: () => {
        if (open === "false" && isGroup(item)) this.expand(row, item, true);
        else if (open === "true") this.focus(row.querySelector<HTMLElement>("[role=treeitem]")!);
      },
      ArrowLeft: () => {
        if (open === "true" && isGroup(item)) this.expand(row, item, false);
        else if (up) this.focus(up);
      },
      Enter: () => this.choose(item),
      " ": () => this.choose(item),
    };
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : undefined;
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}

function texts(item: Item): [string, string] {
  if (isGroup(item)) return [item.label, `${item.count} ${item.count === 1 ? "node" : "nodes"}`];
  const { node } = item;
  const value = node.outputs[0] ?? node.inputs[0];
  const type = value?.declared ? typeText(value.declared) : "";
  if (node.kind !== "op") return [`${node.kind} ${node.label}`, type];
  return [node.label === node.call.op ? node.call.op : `${node.call.op} ${node.label}`, type];
}
