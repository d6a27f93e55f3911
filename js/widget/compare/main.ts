/** The anywidget module of pyonnx_wasm.jupyter.Compare. */
import ui from "../ui/ui.css";
import { given, widget } from "../ui/mount.js";
import css from "./compare.css";
import { Compare, type Spec } from "./compare.js";

export default widget(ui + css, ({ model, rpc, host, signal, settled }) => {
  const spec = model.get!("spec") as Spec & { readonly given: boolean };
  const compare = new Compare({
    spec,
    host,
    signal,
    given: given(rpc, spec.given),
    onFigures: (figures) => void rpc.call("value", figures).catch(() => {}),
    onSettled: settled,
  });
  return compare.element;
});
