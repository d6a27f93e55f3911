/** The page in which VS Code's Jupyter extension draws widgets, as far as its packages are to be had: bundled by `vscode.py`. */
import { KernelConnection } from "@jupyterlab/services/lib/kernel/default";
import { ServerConnection } from "@jupyterlab/services";
import { activate } from "ipywidgets8";

const WIDGET = "application/vnd.jupyter.widget-view+json";

/** Exact ArrayBuffers arrive; of a view the extension sends the whole buffer behind it. */
function asTheExtensionSends(comm) {
  const { send } = comm;
  comm.send = (data, metadata, buffers, ...rest) =>
    send.call(comm, data, metadata, buffers?.map((b) => (ArrayBuffer.isView(b) ? b.buffer : b)), ...rest);
}

/** Runs cells one after the other in the kernel; draws their widgets, and pictures by VS Code's own renderer. */
globalThis.host = async ({ baseUrl, token, id, anywidget, renderer }) => {
  requirejs.config({ paths: { anywidget } });
  activate();
  globalThis.vscIPyWidgets8.load();
  const wsUrl = baseUrl.replace("http", "ws");
  const settings = ServerConnection.makeSettings({ baseUrl, wsUrl, token, appendToken: true });
  const model = { id, name: "python3" };
  const kernel = new KernelConnection({ serverSettings: settings, model, handleComms: true });
  Object.defineProperty(kernel, "supportsSubshells", { get: () => false }); // the webview's kernel says so
  const create = kernel.createComm.bind(kernel);
  kernel.createComm = (...given) => {
    const comm = create(...given);
    asTheExtensionSends(comm);
    return comm;
  };
  const register = kernel.registerCommTarget.bind(kernel);
  kernel.registerCommTarget = (target, opened) =>
    register(target, (comm, message) => (asTheExtensionSends(comm), opened(comm, message)));
  const loader = {
    widgetsRegisteredInRequireJs: new Set(["anywidget"]),
    loadWidgetScript: () => Promise.resolve(),
    successHandler: () => {},
    errorHandler: (...told) => console.error("widget not loaded", ...told.map(String)),
  };
  const manager = new globalThis.vscIPyWidgets.WidgetManager(kernel, document.body, loader, () => {});
  const settingsOf = { lineLimit: 30, outputScrolling: true, outputWordWrap: true, linkifyFilePaths: false, minimalError: false };
  const drawn = await (await import(renderer)).activate({
    setState() {},
    getState() {},
    workspace: { isTrusted: true },
    settings: settingsOf,
    onDidChangeSettings: () => ({ dispose() {} }),
  });
  globalThis.run = async (code) => {
    const cell = document.body.appendChild(document.createElement("div"));
    const future = kernel.requestExecute({ code, store_history: true });
    let text = "";
    future.onIOPub = async ({ header, content }) => {
      if (header.msg_type === "stream") text += content.text;
      else if (header.msg_type === "error") text += `${content.ename}: ${content.evalue}`;
      else if (content.data?.[WIDGET]) {
        const node = cell.appendChild(document.createElement("div"));
        const found = await manager.get_model(content.data[WIDGET].model_id);
        await manager.display_view(null, await manager.create_view(found, { el: node }), { node });
      }
    };
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error("the cell does not end")), 60_000));
    await Promise.race([future.done, late]);
    return text;
  };
  globalThis.show = async (mime, base64) => {
    const data = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const node = document.body.appendChild(document.createElement("div"));
    const text = () => new TextDecoder().decode(data);
    const item = { id: crypto.randomUUID(), mime, metadata: {}, data: () => data, text, blob: () => new Blob([data], { type: mime }) };
    await drawn.renderOutputItem(item, node, new AbortController().signal);
    return node.innerHTML.length;
  };
};
