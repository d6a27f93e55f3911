/** Knowledge in JupyterLab: from the server's extension; without one the graph is read in the browser, and a kernel tells the rest. */
import { ServerConnection, type Contents, type Sessions, type Settings } from "@jupyterlab/services";
import { kernelAsk } from "./kernel.js";
import { asking, type Documentation, type Knowledge, type Plane, type Progress } from "./knowledge.js";
import type { RunRequest, RunResult, Shapes, Statistics } from "./knowledge.js";
import type { Description } from "./model.js";
import { describe } from "./read.js";
import { Stream } from "./stream.js";

/** The server has no such extension, or its files are not its own. */
class Unavailable extends Error {}

export class Source implements Knowledge {
  /** Whether the server's extension answers; unknown before the first request. JupyterLite has no server. */
  private found: boolean | null = document.querySelector("[data-jupyter-lite-root]") ? false : null;
  private kernel: ReturnType<typeof asking> | null = null;

  constructor(
    private readonly services: {
      readonly contents: Contents;
      readonly serverSettings: Settings;
      readonly sessions: Sessions;
    },
    public path: string,
  ) {}

  get server(): boolean {
    return this.found === true || this.kernel !== null;
  }

  get more(): Knowledge["more"] {
    if (this.server || this.services.contents.driveName(this.path)) return undefined;
    return async (signal) => {
      const folder = this.local.split("/").slice(0, -1).join("/");
      const ask = await kernelAsk(this.services.sessions, folder, signal);
      this.kernel = asking(ask, { path: this.local.split("/").at(-1)! });
    };
  }

  async graph(signal: AbortSignal, progress: Progress): Promise<Description> {
    const { contents } = this.services;
    if (contents.driveName(this.path)) this.found = false;
    if (this.found !== false) {
      try {
        const told = await this.get<Description>("graph", {}, signal);
        this.found = true;
        return told;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        this.found = false;
      }
    }
    const { size } = await contents.get(this.path, { content: false });
    const open = (address: () => Promise<string>): Promise<Stream> =>
      Stream.open(address, signal, size ?? null, progress);
    const stream = await open(() => contents.getDownloadUrl(this.path)).catch((error: unknown) => {
      if (signal.aborted) throw error;
      return open(() => this.inline());
    });
    try {
      return await describe(stream, this.local.split("/").at(-1)!);
    } finally {
      stream.close();
    }
  }

  async shapes(signal: AbortSignal): Promise<Shapes> {
    return this.kernel ? this.kernel.shapes(signal) : this.get("shapes", {}, signal);
  }

  async weight(name: string, signal: AbortSignal): Promise<Statistics> {
    return this.kernel ? this.kernel.weight(name, signal) : this.get("weight", { name }, signal);
  }

  async plane(name: string, index: number, signal: AbortSignal): Promise<Plane> {
    return this.kernel
      ? this.kernel.plane(name, index, signal)
      : this.get("plane", { name, index: `${index}` }, signal);
  }

  async npy(name: string, signal: AbortSignal): Promise<Blob> {
    if (this.kernel) return this.kernel.npy(name, signal);
    return (await this.response(this.query("npy", { name }), { signal })).blob();
  }

  async digests(signal: AbortSignal): Promise<Readonly<Record<string, string>>> {
    return this.kernel ? this.kernel.digests(signal) : this.get("digests", {}, signal);
  }

  async operator(domain: string, name: string, opset: number, signal: AbortSignal): Promise<Documentation> {
    if (this.kernel) return this.kernel.operator(domain, name, opset, signal);
    return this.request(`operator?${new URLSearchParams({ domain, name, opset: `${opset}` })}`, { signal });
  }

  async run(request: RunRequest, signal: AbortSignal): Promise<RunResult> {
    if (this.kernel) return this.kernel.run(request, signal);
    const body = JSON.stringify({ path: this.local, ...request });
    return this.request("run", { method: "POST", body, signal });
  }

  private get local(): string {
    return this.services.contents.localPath(this.path);
  }

  /** The file as an address, for drives whose files have none. */
  private async inline(): Promise<string> {
    const { content } = await this.services.contents.get(this.path, { content: true, type: "file", format: "base64" });
    return `data:application/octet-stream;base64,${String(content)}`;
  }

  private query(what: string, query: Record<string, string>): string {
    return `${what}?${new URLSearchParams({ path: this.local, ...query })}`;
  }

  private get<T>(what: string, query: Record<string, string>, signal: AbortSignal): Promise<T> {
    return this.request(this.query(what, query), { signal });
  }

  private async request<T>(what: string, init: RequestInit): Promise<T> {
    const response = await this.response(what, init);
    if (!response.headers.get("Content-Type")?.includes("json")) throw new Unavailable("");
    return (await response.json()) as T;
  }

  private async response(what: string, init: RequestInit): Promise<Response> {
    const { serverSettings } = this.services;
    const address = `${serverSettings.baseUrl}pyonnx-wasm/${what}`;
    const response = await ServerConnection.makeRequest(address, init, serverSettings).catch((error: unknown) => {
      if (init.signal?.aborted) throw error;
      throw new Unavailable("the Jupyter server does not answer");
    });
    if (response.ok) return response;
    const isJson = response.headers.get("Content-Type")?.includes("json") ?? false;
    const answer: unknown = isJson ? await response.json() : null;
    const text = typeof answer === "object" && answer && "message" in answer ? String(answer.message) : "";
    if (response.status === 501 || response.status === 405 || (response.status === 404 && !text.includes("no file")))
      throw new Unavailable(text);
    throw new Error(text || `the Jupyter server answers ${response.status} ${response.statusText}`);
  }
}
