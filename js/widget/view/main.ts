/** The anywidget module of pyonnx_wasm.jupyter.View. */
import { Comparison } from "../../lab/comparison.js";
import { asking, type Ask, type Knowledge } from "../../lab/knowledge.js";
import type { Description } from "../../lab/model.js";
import lab from "../../lab/style.css";
import { GraphView, SETTINGS, type Settings } from "../../lab/view.js";
import type { Rpc } from "../rpc.js";
import { h } from "../ui/dom.js";
import { widget } from "../ui/mount.js";
import { repaints } from "../ui/still.js";
import ui from "../ui/ui.css";
import css from "./view.css";

interface Spec {
  readonly models: readonly string[];
  readonly title: string;
  readonly height: number;
  readonly boxes: number;
}

/** In cells the viewer has the widgets' colours. */
const PREFIX = "--pwv";

/** Knowledge from the kernel that made the widget. */
function known(rpc: Rpc, which: number, path: string): Knowledge {
  const ask: Ask = async (method, given, signal) => {
    const { json } = await rpc.call("ask", { method, given, which });
    signal.throwIfAborted();
    const { result, error } = json as { result?: unknown; error?: string };
    if (error !== undefined) throw new Error(error);
    return result;
  };
  return {
    path,
    server: true,
    graph: async (signal) => (await ask("graph", {}, signal)) as Description,
    ...asking(ask, {}),
  };
}

export default widget(ui + css + lab.replaceAll("--jp-", `${PREFIX}-`), ({ model, rpc, signal, settled }) => {
  const spec = model.get!("spec") as Spec;
  const settings: Settings = { ...SETTINGS, boxes: spec.boxes, prefix: PREFIX };
  const sources = spec.models.map((path, k) => known(rpc, k, path));
  const shown =
    sources.length > 1
      ? new Comparison([sources[0]!, sources[1]!], () => "", settings)
      : new GraphView(sources[0]!, () => "", settings);
  const views = shown instanceof Comparison ? shown.views : [shown];
  const section = h(
    "section",
    { class: "pwx pwx-view", "aria-label": `Graph of ${spec.title}`, style: `--height: ${spec.height}px` },
    views.length > 1 ? null : h("div", { class: "pwx-head pwx-title" }, spec.title),
    shown.element,
  );
  for (const view of views) {
    const { canvas, paint } = view.graph;
    repaints(canvas, (copy) => paint(copy, !!copy.closest(".pwx-dark")));
    view.onChange = () => settled(section);
    for (const part of view.element.querySelectorAll<HTMLElement>(".pw-toolbar, .pw-side, .pw-message"))
      part.dataset["still"] = "no";
  }
  // Keys and wheel belong to the graph, not to the notebook.
  section.addEventListener("keydown", (event) => event.stopPropagation());
  // A view measures itself: it is loaded once it is in the page.
  requestAnimationFrame(() => !signal.aborted && void shown.load());
  signal.addEventListener("abort", () => shown.dispose());
  return section;
});
