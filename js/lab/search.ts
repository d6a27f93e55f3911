/** Search in a model: by names, operators, dtypes and shapes. */
import { el } from "./dom.js";
import type { Node, Value } from "./model.js";
import { typeText } from "./scene.js";
import { tool } from "./toolbar.js";

const MATCHES = 2000;

const TYPE = /^(b?float|double|u?int|bool|string|complex)\d*\w*(\[|$)/;

/**
 * Whether a node fits a text: all its words are found in names, operators, or, if they look so, in types of what it reads and gives:
 * `float16`, `[1, 3, 224, 224]`, `3×224`, `float32[n`.
 */
export function matcher(text: string): ((node: Node) => boolean) | null {
  const words = text
    .trim()
    .toLowerCase()
    .replace(/\s*[,×]\s*|(?<=\d)x(?=\d)/g, ",")
    .replace(/\[\s+/g, "[")
    .replace(/\s+\]/g, "]")
    .split(/\s+/)
    .filter(Boolean);
  if (!words.length) return null;
  return (node) => words.every((word) => named(node, word) || (isType(word) && typed(node, word)));
}

const isType = (word: string): boolean => TYPE.test(word) || word.includes("[") || /^[\w.]+(,[\w.]+)+\]?$/.test(word);

function named(node: Node, word: string): boolean {
  const hit = (text: string): boolean => text.toLowerCase().includes(word);
  const { label, call, inputs, outputs } = node;
  if (hit(label) || hit(call.name) || hit(call.op)) return true;
  return outputs.some((v) => hit(v.name)) || inputs.some((v) => !!v?.weight && hit(v.name));
}

function typed({ inputs, outputs }: Node, word: string): boolean {
  const hit = (value: Value | null): boolean =>
    !!value?.declared && typeText(value.declared).toLowerCase().replaceAll(" ", "").includes(word);
  return outputs.some(hit) || inputs.some(hit);
}

/** The field, its count and its buttons. */
export class Search {
  readonly input = el("input", {
    type: "search",
    placeholder: "Search  /",
    title: "Names, operators, dtypes (float16), shapes ([1, 3, 224])",
    "aria-label": "Search nodes, operators, values, types",
    spellcheck: "false",
  });
  private readonly count = el("span", { class: "pw-count", "aria-live": "polite" });
  readonly elements: readonly HTMLElement[];
  matches: readonly Node[] = [];
  private at = -1;

  constructor(
    private readonly nodes: () => readonly Node[],
    private readonly go: (node: Node) => Promise<void>,
    private readonly changed: () => void,
    leave: () => void,
  ) {
    this.elements = [
      this.input,
      this.count,
      tool("↑", "Previous match (Shift+Enter)", () => void this.step(-1)),
      tool("↓", "Next match (Enter)", () => void this.step(1)),
    ];
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") void this.step(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") leave();
      else return;
      event.preventDefault();
    });
  }

  async step(by: -1 | 1): Promise<void> {
    const { length } = this.matches;
    if (!length) return;
    this.at = (Math.max(this.at, by < 0 ? 0 : -1) + by + length) % length;
    this.tell();
    await this.go(this.matches[this.at]!);
  }

  private find(): void {
    const fits = matcher(this.input.value);
    const found = fits ? this.nodes().filter(fits) : [];
    this.matches = found.sort((a, b) => a.id - b.id).slice(0, MATCHES);
    this.at = -1;
    this.tell();
    this.changed();
  }

  private tell(): void {
    const many = this.matches.length === MATCHES ? `${MATCHES}+` : this.matches.length;
    const place = this.at >= 0 ? `${this.at + 1} of ` : "";
    this.count.textContent = this.input.value.trim() ? `${place}${many}` : "";
  }
}
