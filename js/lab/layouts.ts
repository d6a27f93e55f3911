/** Layouts by a worker: one at a time, a newer one takes the place of an older. */
import workerSource from "layout-worker";
import type { Layout } from "./compound.js";

export class Layouts {
  private worker: Worker | null = null;
  private pending: (() => void) | null = null;

  /** The layout; null where a newer one took its place. */
  of(input: object): Promise<Layout | null> {
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

  cancel(): void {
    this.pending?.();
    this.pending = null;
  }

  dispose(): void {
    this.cancel();
    this.worker?.terminate();
  }
}
