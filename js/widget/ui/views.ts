/** What modules do with the views of their widgets: the newest answers Python, each follows the widget's traits while it lasts. */
import type { AnyModel } from "../rpc.js";

const DISPLAY_MS = 5000;

export class Views<T> {
  readonly #views = new Set<T>();

  add(view: T, signal: AbortSignal): void {
    this.#views.add(view);
    signal.addEventListener("abort", () => this.#views.delete(view));
  }

  /** A cell that asks may run before the one that displays has been drawn. */
  async newest(): Promise<T> {
    for (let waited = 0; !this.#views.size && waited < DISPLAY_MS; waited += 50)
      await new Promise((done) => setTimeout(done, 50));
    const [view] = [...this.#views].slice(-1);
    if (!view) throw new Error("the widget is not displayed; display it in a cell first");
    return view;
  }
}

/** Calls back when Python, or another view, gives a trait another value. */
export function follow(model: AnyModel, trait: string, signal: AbortSignal, changed: () => void): void {
  model.on(`change:${trait}`, changed);
  signal.addEventListener("abort", () => model.off(`change:${trait}`, changed));
}

export function give(model: AnyModel, trait: string, value: unknown): void {
  model.set!(trait, value);
  model.save_changes!();
}
