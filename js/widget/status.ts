/** What the badge shows: the state of this page's end, and its element. */
import { size } from "../player/errors.js";
import type { BrowserInfo } from "./engine.js";
import css from "./status.css";

export interface State {
  readonly phase: "connecting" | "ready" | "loading" | "running" | "failed" | "gone";
  /** What is wrong, where something is. */
  readonly problem: string;
  readonly model: string;
  readonly loaded: number;
  readonly total: number;
  /** Where the model came from. */
  readonly from: "" | "cache" | "kernel";
  readonly uncached: string;
  readonly backend: string;
  /** Why it is not the backend wanted first. */
  readonly fallback: string;
  readonly threads: number;
  readonly runs: number;
  /** The kernel runs models in another page. */
  readonly standby: boolean;
  /** Seconds since the kernel was heard, where it should answer. */
  readonly stalled: number;
  readonly ms: number;
  readonly info: BrowserInfo | undefined;
}

const START: State = {
  phase: "connecting",
  problem: "",
  model: "",
  loaded: 0,
  total: 0,
  from: "",
  uncached: "",
  backend: "",
  fallback: "",
  threads: 0,
  runs: 0,
  standby: false,
  stalled: 0,
  ms: 0,
  info: undefined,
};

export class Status {
  state = START;
  readonly #listeners = new Set<() => void>();

  /** Nothing changes any more once the kernel is gone. */
  set(change: Partial<State>): void {
    if (this.state.phase === "gone") return;
    this.state = { ...this.state, ...change };
    for (const listener of this.#listeners) listener();
  }

  watch(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

/** Those that kernels use. */
const FEATURES = ["shader-f16", "subgroups", "timestamp-query"];

const SAYS: Record<State["phase"], string> = {
  connecting: "connecting to the kernel",
  ready: "ready",
  loading: "loading",
  running: "running",
  failed: "failed",
  gone: "no kernel",
};

/** Puts the badge into `el`; returns what removes it. */
export function renderStatus(el: HTMLElement, status: Status): () => void {
  const root = element("details", "pyonnx-badge");
  const style = element("style");
  style.textContent = css;
  const summary = element("summary");
  const [dot, name, says, bar] = [
    element("span", "dot"),
    element("strong", "", "pyonnx_wasm"),
    element("span", "says"),
    element("progress"),
  ];
  says.setAttribute("role", "status");
  bar.max = 1;
  bar.setAttribute("aria-label", "model loaded");
  summary.append(dot, name, says, bar);
  const table = element("dl");
  root.append(summary, table);
  el.append(style, root);

  const show = (): void => {
    const { state } = status;
    root.dataset["phase"] = state.phase;
    says.textContent = sentence(state);
    bar.hidden = state.phase !== "loading" || !state.total;
    bar.value = state.total ? state.loaded / state.total : 0;
    table.replaceChildren(
      ...rows(state).flatMap(([term, value]) => [element("dt", "", term), element("dd", "", value)]),
    );
  };
  show();
  const stop = status.watch(show);
  return () => {
    stop();
    style.remove();
    root.remove();
  };
}

function sentence(state: State): string {
  const { phase, problem, model, backend, threads, runs, ms, loaded, total, standby, stalled } = state;
  if (problem) return `${SAYS[phase]}: ${problem}`;
  if (stalled) return `waiting for the kernel for ${Math.round(stalled)} s: it is busy, or gone`;
  if (standby && phase === "ready") return "stands by: another page runs the kernel's models";
  if (phase === "loading") return `${model} ${total ? `${size(loaded)} of ${size(total)}` : SAYS.loading}`;
  const where = backend && `${backend}${threads > 1 ? `, ${threads} threads` : ""}`;
  const speed = runs ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : "";
  return [model, where, phase === "running" ? "running" : speed || SAYS[phase]].filter(Boolean).join(" · ");
}

function rows({ info, from, uncached, runs, total, backend, fallback }: State): [string, string][] {
  const found: [string, string][] = [];
  if (total) {
    const origin = from === "cache" ? "from this browser's cache" : "from the kernel";
    found.push(["Model", `${size(total)} ${origin}${uncached && `; ${uncached}`}`]);
  }
  if (fallback) found.push(["Backend", `${backend}: ${fallback}`]);
  if (runs) found.push(["Runs", String(runs)]);
  if (!info) return found;
  const { adapter } = info;
  const adapterName =
    adapter && (adapter.description || [adapter.vendor, adapter.architecture].filter(Boolean).join(" "));
  found.push(["WebGPU", adapterName ?? `none: ${info.noAdapter}`]);
  if (adapter) {
    found.push([
      "Features",
      FEATURES.filter((name) => adapter.features.includes(name)).join(", ") || "none that matter",
    ]);
    found.push(["Largest buffer", size(adapter.limits["maxBufferSize"] ?? 0)]);
  }
  found.push([
    "Threads",
    info.crossOriginIsolated ? "yes, the page is isolated" : "one: the page is not cross-origin isolated",
  ]);
  found.push(["Secure context", info.isSecureContext ? "yes" : "no: open the notebook through https or localhost"]);
  return found;
}

function element<K extends keyof HTMLElementTagNameMap>(tag: K, name = "", text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}
