/** The anywidget module of pyonnx_wasm.jupyter.Playground. */
import ui from "../ui/ui.css";
import { widget, wire } from "../ui/mount.js";
import { follow, give, Views } from "../ui/views.js";
import css from "./playground.css";
import { start } from "./page.js";
import { linked, unlinked, type Linked } from "./linked.js";
import { Playground } from "./playground.js";
import type { Rpc } from "../rpc.js";
import type { Spec } from "./panel.js";

const views = new Views<Playground>();

if (globalThis.document?.documentElement.dataset["pyonnxPage"] === "playground") start(ui + css);

export default widget(
  ui + css,
  ({ model, host, signal, settled }) => {
    const playground = new Playground({
      spec: model.get!("spec") as Spec,
      host,
      signal,
      sync: !!model.get!("sync"),
      onSync: (sync) => give(model, "sync", sync),
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
    follow(model, "inputs", signal, onInputs);
    if (Object.keys((model.get!("inputs") ?? {}) as Linked).length) onInputs();
    follow(model, "sync", signal, () => playground.setSync(!!model.get!("sync")));
    views.add(playground, signal);
    return playground.element;
  },
  answer,
);

function answer(rpc: Rpc): void {
  rpc.handle("current", async () => ({ buffers: wire(await (await views.newest()).current()) }));
}
