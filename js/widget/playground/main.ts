/** The anywidget module of pyonnx_wasm.jupyter.Playground. */
import ui from "../ui/ui.css";
import { widget, wire } from "../ui/mount.js";
import css from "./playground.css";
import { start } from "./page.js";
import { linked, unlinked, type Linked } from "./linked.js";
import { Playground } from "./playground.js";
import type { Rpc } from "../rpc.js";
import type { Spec } from "./panel.js";

const DISPLAY_MS = 5000;
const views = new Set<Playground>();

if (globalThis.document?.documentElement.dataset["pyonnxPage"] === "playground") start(ui + css);

export default widget(
  ui + css,
  ({ model, host, signal, settled }) => {
    const playground = new Playground({
      spec: model.get!("spec") as Spec,
      host,
      signal,
      sync: !!model.get!("sync"),
      onSync(sync) {
        model.set!("sync", sync);
        model.save_changes!();
      },
      onValue: (results) => {
        // Python has them from a call; this is for links.
        const value = linked(results);
        if (value) model.set!("value", value);
      },
      onSettled: settled,
    });
    const onInputs = (): void => {
      try {
        playground.give(unlinked((model.get!("inputs") ?? {}) as Linked, (model.get!("spec") as Spec).inputs));
      } catch (error) {
        playground.refuse(error);
      }
    };
    model.on("change:inputs", onInputs);
    if (Object.keys((model.get!("inputs") ?? {}) as Linked).length) onInputs();
    const onSync = (): void => playground.setSync(!!model.get!("sync"));
    model.on("change:sync", onSync);
    views.add(playground);
    signal.addEventListener("abort", () => {
      views.delete(playground);
      model.off("change:sync", onSync);
      model.off("change:inputs", onInputs);
    });
    return playground.element;
  },
  answer,
);

function answer(rpc: Rpc): void {
  rpc.handle("current", async () => {
    // A cell that asks may run before the one that displays has been drawn.
    for (let waited = 0; !views.size && waited < DISPLAY_MS; waited += 50)
      await new Promise((done) => setTimeout(done, 50));
    const [view] = [...views].slice(-1);
    if (!view) throw new Error("the widget is not displayed; display it in a cell first");
    return { buffers: wire(await view.current()) };
  });
}
