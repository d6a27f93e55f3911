/** The bar above the graph, and what is said on top of it. */
import { el } from "./dom.js";

export function tool(text: string, label: string, act: () => void): HTMLButtonElement {
  return el("button", { class: "pw-tool", type: "button", title: label, "aria-label": label, onclick: act }, text);
}

export function toolbar(search: readonly Node[], tools: readonly Node[]): HTMLElement {
  return el(
    "div",
    { class: "pw-toolbar", role: "toolbar", "aria-label": "Graph" },
    el("div", { class: "pw-search" }, ...search),
    el("div", { class: "pw-tools" }, ...tools),
  );
}

export class Message {
  readonly element = el("div", { class: "pw-message" });

  say(text: string, cancel?: () => void): void {
    this.element.className = "pw-message";
    this.element.replaceChildren(
      ...(text ? [el("span", { class: "pw-busy" }, text)] : []),
      ...(cancel ? [el("button", { class: "pw-button", onclick: cancel }, "Cancel")] : []),
    );
  }

  fail(text: string, again: () => void): void {
    this.element.className = "pw-message pw-failed";
    this.element.replaceChildren(
      el("strong", {}, "This model cannot be shown"),
      el("span", {}, text),
      el("button", { class: "pw-button", onclick: again }, "Try again"),
    );
  }
}
