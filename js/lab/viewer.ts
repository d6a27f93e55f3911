/** The viewer as a widget of JupyterLab: of one model, or of two side by side. */
import { Widget } from "@lumino/widgets";
import type { Comparison } from "./comparison.js";
import type { GraphView } from "./view.js";

export class ModelViewer extends Widget {
  constructor(readonly view: GraphView) {
    super({ node: view.element });
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.view.dispose();
    super.dispose();
  }

  /** Where a node's box is on the page, by the node's name; null where a closed group hides it. */
  place(name: string): { x: number; y: number; width: number; height: number } | null {
    return this.view.place(name);
  }

  protected override onActivateRequest(): void {
    this.view.focus();
  }
}

export class ComparisonViewer extends Widget {
  constructor(readonly comparison: Comparison) {
    super({ node: comparison.element });
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.comparison.dispose();
    super.dispose();
  }
}
