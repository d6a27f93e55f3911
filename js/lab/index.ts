/** The JupyterLab plugin: opens `.onnx` and `.ponnx` files as graphs, with commands and settings. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
  type LayoutRestorer,
} from "@jupyterlab/application";
import { ICommandPalette, InputDialog, MainAreaWidget, WidgetTracker, type CommandPalette } from "@jupyterlab/apputils";
import {
  ABCWidgetFactory,
  DocumentModel,
  DocumentWidget,
  type Context,
  type ModelFactory,
} from "@jupyterlab/docregistry";
import { ISettingRegistry, type SettingRegistry } from "@jupyterlab/settingregistry";
import { Comparison } from "./comparison.js";
import style from "./style.css";
import { Source } from "./source.js";
import { GraphView, SETTINGS, type Settings } from "./view.js";
import { ComparisonViewer, ModelViewer } from "./viewer.js";

const FACTORY = "Model Graph";
const ID = "pyonnx-wasm:viewer";
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
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly settings: () => Settings,
  ) {
    const fileTypes = TYPES.map(({ name }) => name);
    super({ name: FACTORY, label: FACTORY, modelName: MODEL, fileTypes, defaultFor: fileTypes, readOnly: true });
  }

  protected createNewWidget(context: Context): DocumentWidget<ModelViewer> {
    const { serviceManager } = this.app;
    const source = new Source(serviceManager, context.path);
    const folder = (): string => serviceManager.contents.localPath(source.path).split("/").slice(0, -1).join("/");
    const view = new GraphView(source, folder, this.settings());
    const content = new ModelViewer(view);
    context.pathChanged.connect(() => (source.path = context.path));
    void context.ready.then(() => {
      void view.load();
      context.fileChanged.connect(() => void view.load());
    });
    return new DocumentWidget({ content, context });
  }
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Shows ONNX models and compiled models as graphs.",
  autoStart: true,
  optional: [ILayoutRestorer, ICommandPalette, ISettingRegistry],
  activate(
    app: JupyterFrontEnd,
    restorer?: LayoutRestorer | null,
    palette?: CommandPalette | null,
    registry?: SettingRegistry | null,
  ): void {
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
    let settings = SETTINGS;
    void registry
      ?.load(ID)
      .then((loaded) => {
        const take = (): void => void (settings = { ...SETTINGS, ...loaded.composite });
        take();
        loaded.changed.connect(take);
      })
      .catch((error: unknown) => console.warn("pyonnx-wasm: settings could not be read:", error));
    const factory = new Factory(app, () => settings);
    const tracker = new WidgetTracker<DocumentWidget<ModelViewer>>({ namespace: "pyonnx-wasm-viewer" });
    factory.widgetCreated.connect((_, widget: DocumentWidget<ModelViewer>) => {
      widget.title.iconClass = icon;
      widget.context.pathChanged.connect(() => void tracker.save(widget));
      void tracker.add(widget);
    });
    app.docRegistry.addWidgetFactory(factory);
    addCommands(app, tracker, palette ?? null, () => settings);
    void restorer?.restore(tracker, {
      command: "docmanager:open",
      args: (widget) => ({ path: (widget as DocumentWidget<ModelViewer>).context.path, factory: FACTORY }),
      name: (widget) => (widget as DocumentWidget<ModelViewer>).context.path,
    });
  },
};

type Tracker = WidgetTracker<DocumentWidget<ModelViewer>>;

function addCommands(
  app: JupyterFrontEnd,
  tracker: Tracker,
  palette: CommandPalette | null,
  settings: () => Settings,
): void {
  const { commands, shell } = app;
  const current = (): GraphView | null => {
    const widget = tracker.currentWidget;
    return widget && widget === shell.currentWidget ? widget.content.view : null;
  };
  const table: readonly (readonly [id: string, label: string, act: (view: GraphView) => unknown])[] = [
    ["search", "Search in the Model", (view) => view.focusSearch()],
    ["next-match", "Next Match in the Model", (view) => view.step(1)],
    ["previous-match", "Previous Match in the Model", (view) => view.step(-1)],
    ["fit", "Show the Whole Graph", (view) => view.fit()],
    ["open-all", "Open All Groups", (view) => view.openAll()],
    ["close-all", "Close All Groups", (view) => view.closeAll()],
    ["all-nodes", "Show All Nodes", (view) => view.toggleAllNodes()],
    ["outline", "Show the Outline", (view) => view.show("outline")],
    ["run", "Show the Run Panel", (view) => view.show("run")],
    ["save-svg", "Save the Graph as SVG", (view) => view.export("svg")],
    ["save-png", "Save the Graph as PNG", (view) => view.export("png")],
    ["compare", "Compare with Another Model…", () => compare(app, tracker, settings)],
  ];
  for (const [id, label, act] of table) {
    const command = `pyonnx-wasm:${id}`;
    commands.addCommand(command, {
      label,
      isEnabled: () => current() !== null,
      execute: () => {
        const view = current();
        return view && act(view);
      },
    });
    palette?.addItem({ command, category: "Model Graph" });
  }
  tracker.currentChanged.connect(() => commands.notifyCommandChanged());
}

/** Asks for a second model, of those beside the first and those that are open, and shows both. */
async function compare(app: JupyterFrontEnd, tracker: Tracker, settings: () => Settings): Promise<void> {
  const first = tracker.currentWidget!.context.path;
  const { contents } = app.serviceManager;
  const folder = first.split("/").slice(0, -1).join("/");
  const { content } = await contents.get(folder, { content: true });
  const beside = (content as { path: string }[]).map(({ path }) => path);
  const paths = new Set(beside.filter((path) => TYPES.some(({ extensions }) => path.endsWith(extensions[0]!))));
  tracker.forEach(({ context }) => void paths.add(context.path));
  paths.delete(first);
  const { value, button } = await InputDialog.getItem({
    title: "Compare with another model",
    label: `${first} with`,
    items: [...paths].sort(),
    editable: true,
    okLabel: "Compare",
  });
  if (!button.accept || !value) return;
  const { serviceManager } = app;
  const sources = [new Source(serviceManager, first), new Source(serviceManager, value)] as const;
  const shown = new Comparison(sources, () => contents.localPath(folder), settings());
  const widget = new MainAreaWidget({ content: new ComparisonViewer(shown) });
  widget.id = `pyonnx-wasm-comparison-${Math.random().toString(36).slice(2)}`;
  widget.title.label = `${first.split("/").at(-1)} · ${value.split("/").at(-1)}`;
  widget.title.closable = true;
  app.shell.add(widget, "main");
  app.shell.activateById(widget.id);
  void shown.load();
}

export default plugin;
