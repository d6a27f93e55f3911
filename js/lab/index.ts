/** The JupyterLab plugin: opens `.onnx` and `.ponnx` files as graphs. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
  type LayoutRestorer,
} from "@jupyterlab/application";
import { WidgetTracker } from "@jupyterlab/apputils";
import {
  ABCWidgetFactory,
  DocumentModel,
  DocumentWidget,
  type Context,
  type ModelFactory,
} from "@jupyterlab/docregistry";
import style from "./style.css";
import { Source } from "./source.js";
import { ModelViewer } from "./viewer.js";

const FACTORY = "Model Graph";
const MODEL = "onnx-not-loaded";
const TYPES = [
  { name: "onnx", displayName: "ONNX Model", extensions: [".onnx"], mimeTypes: ["application/onnx"] },
  { name: "ponnx", displayName: "Compiled ONNX Model", extensions: [".ponnx"], mimeTypes: ["application/vnd.ponnx"] },
];

/** A document without contents: the viewer reads the file itself, piece by piece. */
class Unloaded implements ModelFactory {
  readonly name = MODEL;
  readonly contentType = "file";
  readonly fileFormat = null;
  isDisposed = false;
  dispose(): void {
    this.isDisposed = true;
  }
  preferredLanguage(): string {
    return "";
  }
  createNew(options?: object): object {
    return new DocumentModel(options);
  }
}

class Factory extends ABCWidgetFactory {
  constructor(private readonly app: JupyterFrontEnd) {
    const fileTypes = TYPES.map(({ name }) => name);
    super({ name: FACTORY, label: FACTORY, modelName: MODEL, fileTypes, defaultFor: fileTypes, readOnly: true });
  }

  protected createNewWidget(context: Context): DocumentWidget<ModelViewer> {
    const { contents, serverSettings } = this.app.serviceManager;
    const source = new Source(contents, serverSettings, context.path);
    const folder = (): string => contents.localPath(source.path).split("/").slice(0, -1).join("/");
    const content = new ModelViewer(source, folder);
    context.pathChanged.connect(() => (source.path = context.path));
    void context.ready.then(() => {
      void content.load();
      context.fileChanged.connect(() => void content.load());
    });
    return new DocumentWidget({ content, context });
  }
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: "pyonnx-wasm:viewer",
  description: "Shows ONNX models and compiled models as graphs.",
  autoStart: true,
  optional: [ILayoutRestorer],
  activate(app: JupyterFrontEnd, restorer?: LayoutRestorer | null): void {
    if (!document.getElementById("pyonnx-wasm-viewer")) {
      const sheet = document.createElement("style");
      sheet.id = "pyonnx-wasm-viewer";
      sheet.textContent = style;
      document.head.append(sheet);
    }
    const icon = "jp-MaterialIcon pw-icon";
    for (const type of TYPES)
      app.docRegistry.addFileType({ ...type, contentType: "file", fileFormat: "base64", iconClass: icon });
    app.docRegistry.addModelFactory(new Unloaded());
    const factory = new Factory(app);
    const tracker = new WidgetTracker<DocumentWidget<ModelViewer>>({ namespace: "pyonnx-wasm-viewer" });
    factory.widgetCreated.connect((_, widget: DocumentWidget<ModelViewer>) => {
      widget.title.iconClass = icon;
      widget.context.pathChanged.connect(() => void tracker.save(widget));
      void tracker.add(widget);
    });
    app.docRegistry.addWidgetFactory(factory);
    void restorer?.restore(tracker, {
      command: "docmanager:open",
      args: (widget) => ({ path: (widget as DocumentWidget<ModelViewer>).context.path, factory: FACTORY }),
      name: (widget) => (widget as DocumentWidget<ModelViewer>).context.path,
    });
  },
};

export default plugin;
