/** The part of JupyterLab 4 that the extension uses; JupyterLab itself provides these modules at run time. */
declare module "@jupyterlab/application" {
  import type { Widget } from "@lumino/widgets";
  export interface JupyterFrontEnd {
    readonly docRegistry: import("@jupyterlab/docregistry").DocumentRegistry;
    readonly serviceManager: {
      readonly contents: import("@jupyterlab/services").Contents;
      readonly serverSettings: import("@jupyterlab/services").Settings;
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
    add(widget: T): Promise<void>;
    save(widget: T): Promise<void>;
  }
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
  export const ServerConnection: {
    makeRequest(url: string, init: RequestInit, settings: Settings): Promise<Response>;
  };
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
    readonly title: { label: string; iconClass: string };
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
