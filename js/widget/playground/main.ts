/** The anywidget module of pyonnx_wasm.jupyter.Playground. */
import ui from "../ui/ui.css";
import { widget, wire } from "../ui/mount.js";
import css from "./playground.css";
import { Playground } from "./playground.js";
import type { Spec } from "./panel.js";

const views = new Set<Playground>();

export default widget(ui + css, ({ model, rpc, host, signal, settled }) => {
  const playground = new Playground({
    spec: model.get!("spec") as Spec,
    host,
    signal,
    sync: !!model.get!("sync"),
    onSync(sync) {
      model.set!("sync", sync);
      model.save_changes!();
    },
    onSettled: settled,
  });
  const onSync = (): void => playground.setSync(!!model.get!("sync"));
  model.on("change:sync", onSync);
  views.add(playground);
  rpc.handle("current", async () => {
    const [view] = [...views].slice(-1);
    if (!view) throw new Error("the widget is not displayed; display it in a cell first");
    return { buffers: wire(await view.current()) };
  });
  signal.addEventListener("abort", () => {
    views.delete(playground);
    model.off("change:sync", onSync);
  });
  return playground.element;
});
