/** From anywidget to a widget of ours: calls to Python, the page's engine, and the picture for the saved notebook. */
import { arrayOf } from "../../player/dtypes.js";
import type { Tensor as PlayerTensor } from "../../player/index.js";
import { browserInfo, engine, type AdapterInfo } from "../engine.js";
import { onKernelChange } from "../kernel.js";
import { Rpc, type AnyModel, type Caller } from "../rpc.js";
import type { WireTensor } from "../wire.js";
import type { Host, Report, Runnable } from "./host.js";
import { picture } from "./still.js";
import type { Tensor, Tensors } from "./tensor.js";

const STILL_PAUSE = 1000;

export interface PageHost extends Host {
  asset(name: string): Promise<Uint8Array<ArrayBuffer>>;
  send(results: Tensors): Promise<void>;
}

export interface View {
  readonly model: AnyModel;
  readonly rpc: Rpc;
  readonly host: PageHost;
  readonly signal: AbortSignal;
  /** The widget looks different: after a pause, a picture of it goes to the notebook, where the notebook is to have one. */
  settled(element: HTMLElement): void;
}

interface Ref {
  readonly sha256: string;
  readonly bytes: number;
}

interface Spec {
  readonly model: Ref;
  readonly backends: readonly string[];
  /** Whether the notebook may keep a picture of the widget, with what its user put in. */
  readonly still: boolean;
}

/** An anywidget module whose views are made by `make`; `answer` is told of the connection before there is any view. */
export function widget(css: string, make: (view: View) => HTMLElement, answer: (rpc: Rpc) => void = () => {}) {
  let rpc: Rpc | undefined;
  const stalled = new Set<(seconds: number) => void>();
  let silent = false;
  const tell = (seconds: number): void => {
    if (!seconds && !silent) return;
    silent = seconds > 0;
    for (const listener of stalled) listener(seconds);
  };
  const connect = (model: AnyModel): Rpc => {
    if (!rpc) answer((rpc = new Rpc(model, { onStall: tell, onAlive: () => tell(0) })));
    return rpc;
  };
  return {
    initialize({ model }: { model: AnyModel }) {
      const connected = connect(model);
      const lost = (): void => connected.close("the kernel was restarted or shut down; run the cell again");
      model.on("comm_live_update", lost);
      model.on("destroy", lost);
      const stop = onKernelChange(model, lost);
      return () => {
        stop();
        model.off("comm_live_update", lost);
        model.off("destroy", lost);
        connected.close("the widget was closed");
      };
    },
    render({ model, el }: { model: AnyModel; el: HTMLElement }) {
      const controller = new AbortController();
      const { signal } = controller;
      const style = document.createElement("style");
      style.textContent = css;
      const connected = connect(model);
      const { model: ref, backends, still } = model.get!("spec") as Spec;
      const settled = still ? stills(connected, css, signal) : () => {};
      const onStall = (listener: (seconds: number) => void): (() => void) => {
        stalled.add(listener);
        return () => void stalled.delete(listener);
      };
      el.append(
        style,
        make({ model, rpc: connected, host: { ...hostOf(connected, ref, backends), onStall }, signal, settled }),
      );
      return () => controller.abort(new Error("the widget was closed"));
    },
  };
}

export function hostOf(rpc: Caller, ref: Ref, backends: readonly string[]): PageHost {
  return {
    backends,
    load: (backend, report, signal) => (backend === "cpu" ? inKernel(rpc) : inPage(rpc, ref, backend, report, signal)),
    async asset(name) {
      const { buffers } = await rpc.call("file", { name });
      return new Uint8Array(buffers[0]!);
    },
    async prefer(wanted) {
      if (wanted[0] !== "webgpu" || !wanted.includes("wasm")) return undefined;
      const { adapter } = await browserInfo();
      if (!adapter?.software) return undefined;
      const reason = `WebGPU is ${adapterName(adapter)} here, which runs on the processor: wasm is quicker.`;
      return { order: ["wasm", ...wanted.filter((name) => name !== "wasm")], reason };
    },
    async change(op, given) {
      const { json, tensors } = await rpc.call(op, null, wire(given));
      const { text = "" } = (json ?? {}) as { text?: string };
      return { tensors: Object.fromEntries(tensors.map((tensor) => [tensor.name, unwire(tensor)])), text };
    },
    async send(results) {
      await rpc.call("value", null, wire(results));
    },
  };
}

async function inPage(rpc: Caller, ref: Ref, backend: string, report: Report, signal: AbortSignal): Promise<Runnable> {
  const started = await engine(rpc);
  signal.throwIfAborted();
  const { info, player } = started;
  if (backend === "webgpu" && !info.adapter) throw new Error(info.noAdapter);
  const model = { ...ref, providers: [backend] };
  let open = false;
  const session = await started.open(rpc, model, (progress) => {
    if (open) return;
    report({
      ...progress,
      what: "from" in progress && progress.from === "kernel" ? "Fetching the model" : "Loading the model",
    });
  });
  open = true;
  const { threads } = session;
  const single = threads === 1 && !info.crossOriginIsolated && session.backend === "wasm";
  const given = (feeds: Tensors) =>
    Object.fromEntries(
      Object.entries(feeds).map(([name, { type, data, dims }]) => [
        name,
        new player.Tensor(type as PlayerTensor.Type, data, dims),
      ]),
    );
  return {
    label: `${session.backend} · ${where(session.backend, threads, info.adapter)}`,
    reason: session.fallback ?? (single ? "One thread: this page is not cross-origin isolated." : undefined),
    run: async (feeds) => (await session.run(given(feeds))) as Tensors,
    session,
    profile: (feeds) => session.profile(given(feeds)),
    release: () => started.release(model),
  };
}

function where(backend: string, threads: number, adapter: AdapterInfo | null): string {
  if (backend === "webgpu") return adapter ? adapterName(adapter) : "GPU";
  return threads === 1 ? "one thread" : `${threads} threads`;
}

function adapterName({ vendor, architecture }: AdapterInfo): string {
  return [vendor, architecture].filter(Boolean).join(" ") || "GPU";
}

async function inKernel(rpc: Caller): Promise<Runnable> {
  let inside: number | undefined;
  return {
    label: "cpu · in the kernel",
    inside: () => inside,
    async run(feeds) {
      const { tensors, json } = await rpc.call("run", null, wire(feeds));
      inside = (json as { ms?: number } | null)?.ms;
      return Object.fromEntries(tensors.map((tensor) => [tensor.name, unwire(tensor)]));
    },
    release: async () => {},
  };
}

export function wire(tensors: Tensors): WireTensor[] {
  return Object.entries(tensors).map(([name, { type, dims, data }]) => ({
    name,
    dtype: type,
    dims,
    data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  }));
}

function unwire({ name, dtype, dims, data }: WireTensor): Tensor {
  if (dtype === "string") throw new TypeError(`"${name}" holds strings, which this widget does not show`);
  const array = arrayOf(dtype);
  return { type: dtype, dims, data: new array(data.slice().buffer) };
}

/** The inputs that Python holds for the widget. */
export async function given(rpc: Rpc, some: boolean): Promise<Tensors | undefined> {
  if (!some) return undefined;
  const { tensors } = await rpc.call("feeds");
  return Object.fromEntries(tensors.map((tensor) => [tensor.name, unwire(tensor)]));
}

/** Sends pictures of a view once it has been still for a while; only notebooks that can hide them while the widget lives. */
function stills(rpc: Rpc, css: string, signal: AbortSignal): (element: HTMLElement) => void {
  let timer = 0;
  let last = "";
  signal.addEventListener("abort", () => clearTimeout(timer));
  const send = async (element: HTMLElement): Promise<void> => {
    if (signal.aborted || !element.offsetWidth || !element.closest(".jp-OutputArea-child")) return;
    try {
      const width = Math.min(760, Math.max(600, element.offsetWidth));
      const looks: Uint8Array[] = [];
      for (const look of ["light", "dark"] as const)
        looks.push(new Uint8Array(await (await picture(element, css, look, width)).arrayBuffer()));
      const digest = looks
        .map((png) => `${png.length} ${png.reduce((sum, byte) => (Math.imul(sum, 31) + byte) | 0, 7)}`)
        .join();
      if (digest === last || signal.aborted) return;
      await rpc.call("still", { width }, looks);
      last = digest;
    } catch (error) {
      if (!signal.aborted) console.warn("pyonnx-wasm: the notebook keeps no picture of the widget:", error);
    }
  };
  return (element) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void send(element), STILL_PAUSE);
  };
}
