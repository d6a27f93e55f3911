/** The frame of a widget: title, backend badge, body, alert, foot. */
import { h, icon, messageOf } from "./dom.js";
import type { Host, Runnable } from "./host.js";
import { size } from "./tensor.js";

export class Frame {
  readonly element: HTMLElement;
  readonly body = h("div", { class: "pwx-body" });
  readonly status = h("span", { class: "pwx-status", role: "status" });
  readonly tools = h("span", { class: "pwx-row" });
  readonly head: HTMLElement;
  readonly #badge = h("button", {
    type: "button",
    class: "pwx-badge",
    "aria-expanded": "false",
    onclick: () => this.#toggle(),
  });
  readonly #note = h("div", { class: "pwx-strip pwx-note", hidden: true });
  readonly #progress = h("div", {
    class: "pwx-progress",
    hidden: true,
    role: "progressbar",
    "aria-label": "Loading the model",
  });
  readonly #alertText = h("span");
  readonly #alert = h("p", { class: "pwx-alert", role: "alert", hidden: true }, icon("warn"), this.#alertText);

  constructor(title: string, kind: string) {
    this.head = h(
      "div",
      { class: "pwx-head" },
      h("span", { class: "pwx-title", title }, title),
      h("span", { class: "pwx-grow" }),
      this.#badge,
    );
    this.element = h(
      "section",
      { class: `pwx pwx-${kind}`, "aria-label": `${kind[0]!.toUpperCase()}${kind.slice(1)} of ${title}` },
      this.head,
      this.#progress,
      this.#note,
      this.body,
      this.#alert,
      h("div", { class: "pwx-foot" }, this.status, h("span", { class: "pwx-grow" }), this.tools),
    );
    this.badge("loading", "busy");
  }

  badge(text: string, state: "busy" | "ready" | "failed", reason = ""): void {
    this.#badge.textContent = text;
    this.#badge.dataset["state"] = state;
    this.#badge.title = reason;
    this.#badge.setAttribute("aria-label", `Backend: ${text}${reason ? `. ${reason}` : ""}`);
    this.#note.textContent = reason;
    this.#badge.disabled = !reason;
    if (!reason) this.#note.hidden = true;
  }

  #toggle(): void {
    this.#note.hidden = !this.#note.hidden;
    this.#badge.setAttribute("aria-expanded", String(!this.#note.hidden));
  }

  alert(error: unknown): void {
    this.#alertText.textContent = error === undefined ? "" : messageOf(error);
    this.#alert.hidden = error === undefined;
  }

  /** Loads the model on the first backend that takes it; the badge says which, and why not those before it. */
  async load(host: Host, backends: readonly string[], signal: AbortSignal): Promise<Runnable> {
    const reasons: string[] = [];
    const stop = host.onStall?.((seconds) => {
      const waiting = `Waiting for the kernel for ${Math.round(seconds)} s: a cell runs, or it is gone`;
      this.status.textContent = seconds ? waiting : "";
    });
    signal.addEventListener("abort", () => stop?.());
    const preferred = await host.prefer?.(backends);
    if (preferred) reasons.push(preferred.reason);
    for (const backend of preferred?.order ?? backends) {
      try {
        const model = await host.load(backend, (progress) => this.#report(progress), signal);
        if (signal.aborted) {
          await model.release();
          throw signal.reason;
        }
        this.#progress.hidden = true;
        stop?.();
        this.status.textContent = "";
        const reason = [...reasons, model.reason].filter(Boolean).join(" ");
        this.badge(model.label, "ready", reason);
        return model;
      } catch (error) {
        if (signal.aborted) throw error;
        reasons.push(`${backend}: ${messageOf(error)}.`.replace(/\.\.$/, "."));
      }
    }
    this.#progress.hidden = true;
    stop?.();
    this.badge("not loaded", "failed");
    throw new Error(reasons.join(" "));
  }

  #report({ loaded, total, what }: { loaded: number; total?: number | undefined; what: string }): void {
    const share = total ? loaded / total : 0;
    this.#progress.hidden = false;
    this.#progress.style.width = `${100 * share}%`;
    this.#progress.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    this.status.textContent = `${what}${total ? `: ${size(loaded)} of ${size(total)}` : ""}`;
  }
}
