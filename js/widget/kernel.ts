/** Tells when a notebook gets another kernel, which JupyterLab's widget manager does not say to widgets. */
import type { AnyModel } from "./rpc.js";

interface Signal {
  connect(slot: Slot): unknown;
  disconnect(slot: Slot): unknown;
}
type Slot = (sender: unknown, change: { readonly oldValue?: Kernel | null; readonly newValue?: Kernel | null }) => void;
interface Kernel {
  readonly id?: string;
}

/** Calls back when the kernel of the notebook around the widget is another; returns what ends that. Elsewhere than in JupyterLab, nothing. */
export function onKernelChange(model: AnyModel, callback: () => void): () => void {
  const manager = model.widget_manager as
    { context?: { sessionContext?: { kernelChanged?: Signal; session?: { kernel?: Kernel } } } } | undefined;
  const context = manager?.context?.sessionContext;
  const signal = context?.kernelChanged;
  const mine = context?.session?.kernel?.id;
  if (typeof signal?.connect !== "function" || !mine) return () => {};
  const slot: Slot = (_, { newValue }) => newValue?.id !== mine && callback();
  signal.connect(slot);
  return () => void signal.disconnect(slot);
}
