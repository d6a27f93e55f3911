/** The anywidget module of pyonnx_wasm.jupyter.Profile. */
import ui from "../ui/ui.css";
import { given, widget } from "../ui/mount.js";
import { follow } from "../ui/views.js";
import type { Step } from "../ui/host.js";
import css from "./profile.css";
import { Profile, type Spec } from "./profile.js";

export default widget(ui + css, ({ model, rpc, host, signal, settled }) => {
  const spec = model.get!("spec") as Spec & { readonly given: boolean };
  const profile = new Profile({
    spec,
    host,
    signal,
    given: given(rpc, spec.given),
    onSteps: (steps, backend) => void rpc.call("value", { steps, backend }).catch(() => {}),
    onSettled: settled,
  });
  const show = (): void => {
    const steps = model.get!("trace") as readonly Step[];
    if (steps.length) profile.trace(steps);
  };
  follow(model, "trace", signal, show);
  show();
  return profile.element;
});
