/** The part of JupyterLab 4 that the extension uses; JupyterLab itself provides these modules at run time. */
declare module "@jupyterlab/application" {
  import type { Widget } from "@lumino/widgets";
  export interface JupyterFrontEnd {
    readonly docRegistry: import("@jupyterlab/docregistry").DocumentRegistry;
    readonly serviceManager: {
      readonly contents: import("@jupyterlab/services").Contents;
      readonly serverSettings: import("@jupyterlab/services").Settings;
      readonly sessions: import("@jupyterlab/services").Sessions;
    };
    readonly commands: {
      addCommand(
        id: string,
        options: {
          label: string;
          caption?: string;
          execute(): unknown;
          isEnabled?(): boolean;
          isVisible?(): boolean;
          isToggled?(): boolean;
        },
      ): object;
      notifyCommandChanged(): void;
    };
    readonly shell: {
      readonly currentWidget: Widget | null;
      add(widget: Widget, area: string): void;
      activateById(id: string): void;
    };
    readonly restored: Promise<void>;
  }
  export interface JupyterFrontEndPlugin<T> {
    readonly id: string;
    readonly description: string;
    readonly autoStart: boolean;
    readonly optional: readonly unknown[];
    activate(app: JupyterFrontEnd, ...services: never[]): T;
  }
  export interface LayoutRestorer {
    restore(
      tracker: import("@jupyterlab/apputils").WidgetTracker<Widget>,
      options: { command: string; args(widget: Widget): object; name(widget: Widget): string },
    ): Promise<unknown>;
  }
  export const ILayoutRestorer: unknown;
}

declare module "@jupyterlab/apputils" {
  import type { Widget } from "@lumino/widgets";
  export class WidgetTracker<T extends Widget> {
    constructor(options: { namespace: string });
    readonly currentWidget: T | null;
    readonly currentChanged: import("@lumino/signaling").Signal;
    add(widget: T): Promise<void>;
    save(widget: T): Promise<void>;
    forEach(visit: (widget: T) => void): void;
  }
  export class MainAreaWidget<T extends Widget> extends Widget {
    constructor(options: { content: T });
    readonly content: T;
  }
  export const ICommandPalette: unknown;
  export interface CommandPalette {
    addItem(options: { command: string; category: string }): object;
  }
  export const InputDialog: {
    getItem(options: {
      title: string;
      label?: string;
      items: readonly string[];
      editable?: boolean;
      okLabel?: string;
    }): Promise<{ value: string | null; button: { accept: boolean } }>;
  };
}

declare module "@jupyterlab/services" {
  export interface Contents {
    localPath(path: string): string;
    driveName(path: string): string;
    getDownloadUrl(path: string): Promise<string>;
    get(
      path: string,
      options: { content: boolean; format?: string; type?: string },
    ): Promise<{ size?: number; content: unknown; format: string | null }>;
  }
  export interface Settings {
    readonly baseUrl: string;
  }
  export interface Kernel {
    readonly isDisposed: boolean;
    readonly status: string;
    interrupt(): Promise<void>;
    shutdown(): Promise<void>;
    requestExecute(content: { code: string; silent: boolean; store_history: boolean; allow_stdin: boolean }): {
      readonly done: Promise<unknown>;
      onIOPub: (message: {
        readonly header: { readonly msg_type: string };
        readonly content: {
          readonly data?: Readonly<Record<string, unknown>>;
          readonly ename?: string;
          readonly evalue?: string;
        };
      }) => void;
    };
  }
  export interface Sessions {
    startNew(options: {
      path: string;
      name: string;
      type: string;
      kernel: { name: string };
    }): Promise<{ readonly kernel: Kernel | null }>;
  }
  export const ServerConnection: {
    makeRequest(url: string, init: RequestInit, settings: Settings): Promise<Response>;
  };
}

declare module "@jupyterlab/settingregistry" {
  export const ISettingRegistry: unknown;
  export interface SettingRegistry {
    load(plugin: string): Promise<{
      readonly composite: Readonly<Record<string, unknown>>;
      readonly changed: import("@lumino/signaling").Signal;
    }>;
  }
}

declare module "@jupyterlab/docregistry" {
  import type { Widget } from "@lumino/widgets";
  export interface Context {
    readonly path: string;
    readonly ready: Promise<void>;
    readonly pathChanged: import("@lumino/signaling").Signal;
    readonly fileChanged: import("@lumino/signaling").Signal;
  }
  export interface ModelFactory {
    readonly name: string;
    readonly contentType: string;
    readonly fileFormat: null;
    readonly isDisposed: boolean;
    dispose(): void;
    preferredLanguage(path: string): string;
    createNew(options?: object): object;
  }
  export interface DocumentRegistry {
    addFileType(type: object): void;
    addModelFactory(factory: ModelFactory): void;
    addWidgetFactory(factory: ABCWidgetFactory): void;
  }
  export class DocumentModel {
    constructor(options?: object);
  }
  export class DocumentWidget<T extends Widget> extends Widget {
    constructor(options: { content: T; context: Context });
    readonly content: T;
    readonly context: Context;
  }
  export abstract class ABCWidgetFactory {
    constructor(options: object);
    readonly widgetCreated: import("@lumino/signaling").Signal;
    protected abstract createNewWidget(context: Context): Widget;
  }
}

declare module "@lumino/signaling" {
  export interface Signal {
    connect(slot: (sender: unknown, args: never) => void): boolean;
  }
}

declare module "@lumino/widgets" {
  export class Widget {
    constructor(options?: { node?: HTMLElement });
    readonly node: HTMLElement;
    readonly isDisposed: boolean;
    id: string;
    readonly title: { label: string; iconClass: string; closable: boolean };
    addClass(name: string): void;
    dispose(): void;
    protected onActivateRequest(message: object): void;
  }
}

declare module "*.css" {
  const text: string;
  export default text;
}

/** Built from layout.worker.ts. */
declare module "layout-worker" {
  const source: string;
  export default source;
}
