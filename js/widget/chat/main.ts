/** The anywidget module of pyonnx_wasm.jupyter.Chat. */
import ui from "../ui/ui.css";
import { engine } from "../engine.js";
import { widget } from "../ui/mount.js";
import { follow, give, Views } from "../ui/views.js";
import type { Rpc } from "../rpc.js";
import css from "./chat.css";
import { Chat, type Message, type Settings, type Spec } from "./chat.js";

const views = new Views<Chat>();

export default widget(
  ui + css,
  ({ model, rpc, host, signal, settled }) => {
    const chat = new Chat({
      spec: model.get!("spec") as Spec,
      host,
      signal,
      player: async () => (await engine(rpc)).player,
      settings: () => model.get!("settings") as Settings,
      onMessages: (messages) => give(model, "messages", messages),
      onSystem: (system) => give(model, "system", system),
      onSettled: settled,
    });
    const show = (): void =>
      chat.show((model.get!("messages") ?? []) as Message[], (model.get!("system") ?? "") as string);
    follow(model, "messages", signal, show);
    follow(model, "system", signal, show);
    show();
    views.add(chat, signal);
    return chat.element;
  },
  answer,
);

function answer(rpc: Rpc): void {
  rpc.handle("current", async () => ({ json: { messages: await (await views.newest()).current() } }));
  rpc.handle("ask", async ({ json }) => {
    const { text } = json as { text: string };
    return { json: { messages: await (await views.newest()).ask(text) } };
  });
}
