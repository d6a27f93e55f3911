/** Where the viewer's knowledge comes from: the Jupyter server's extension, or, without one, the file read in the browser. */
import { ServerConnection, type Contents, type Settings } from "@jupyterlab/services";
import { describe } from "./read.js";
import { Stream } from "./stream.js";
import type { Description, Size } from "./model.js";

export interface Statistics {
  readonly count: number;
  readonly nan: number;
  readonly inf: number;
  readonly zero: number;
  readonly head: readonly (number | string)[];
  readonly min: number | null;
  readonly max: number | null;
  readonly mean: number | null;
  readonly std: number | null;
  readonly histogram: readonly number[];
}

export interface Shapes {
  readonly values: Readonly<Record<string, readonly [string, readonly Size[], (readonly Size[])?]>>;
  readonly failures: Readonly<Record<string, string>>;
}

export interface RunRequest {
  readonly sizes: Readonly<Record<string, number>>;
  readonly inputs: Readonly<Record<string, { readonly fill: string } | { readonly file: string }>>;
}

export interface RunResult {
  readonly outputs: readonly {
    readonly name: string;
    readonly dtype: string;
    readonly shape: readonly number[];
    readonly statistics: Statistics;
  }[];
  readonly steps: readonly (readonly [string, number])[];
  readonly compile_ms: number;
  readonly first_ms: number;
  readonly best_ms: number;
  readonly runs: number;
  readonly arena_bytes: number;
}

/** The server has no such extension, or its files are not its own. */
class Unavailable extends Error {}

export class Source {
  /** Whether the server's extension answers; unknown before the first request. */
  server: boolean | null = null;

  constructor(
    private readonly contents: Contents,
    private readonly settings: Settings,
    public path: string,
  ) {}

  /** The graph; the file is never held whole. */
  async graph(signal: AbortSignal, progress: (read: number, total: number | null) => void): Promise<Description> {
    if (this.contents.driveName(this.path)) this.server = false;
    if (this.server !== false) {
      try {
        const found = await this.get<Description>("graph", {}, signal);
        this.server = true;
        return found;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        this.server = false;
      }
    }
    const { size } = await this.contents.get(this.path, { content: false });
    const open = (address: () => Promise<string>): Promise<Stream> =>
      Stream.open(address, signal, size ?? null, progress);
    const stream = await open(() => this.contents.getDownloadUrl(this.path)).catch((error: unknown) => {
      if (signal.aborted) throw error;
      return open(() => this.inline());
    });
    try {
      return await describe(stream, this.local.split("/").at(-1)!);
    } finally {
      stream.close();
    }
  }

  shapes(signal: AbortSignal): Promise<Shapes> {
    return this.get("shapes", {}, signal);
  }

  weight(name: string, signal: AbortSignal): Promise<Statistics> {
    return this.get("weight", { name }, signal);
  }

  run(request: RunRequest, signal: AbortSignal): Promise<RunResult> {
    const body = JSON.stringify({ path: this.local, ...request });
    return this.request("run", { method: "POST", body, signal });
  }

  private get local(): string {
    return this.contents.localPath(this.path);
  }

  /** The file as an address, for drives whose files have none. */
  private async inline(): Promise<string> {
    const { content } = await this.contents.get(this.path, { content: true, type: "file", format: "base64" });
    return `data:application/octet-stream;base64,${String(content)}`;
  }

  private get<T>(what: string, query: Record<string, string>, signal: AbortSignal): Promise<T> {
    return this.request(`${what}?${new URLSearchParams({ path: this.local, ...query })}`, { signal });
  }

  private async request<T>(what: string, init: RequestInit): Promise<T> {
    const address = `${this.settings.baseUrl}pyonnx-wasm/${what}`;
    const response = await ServerConnection.makeRequest(address, init, this.settings).catch((error: unknown) => {
      if (init.signal?.aborted) throw error;
      throw new Unavailable("the Jupyter server does not answer");
    });
    const isJson = response.headers.get("Content-Type")?.includes("json") ?? false;
    const answer: unknown = isJson ? await response.json() : null;
    if (response.ok && isJson) return answer as T;
    const text = typeof answer === "object" && answer && "message" in answer ? String(answer.message) : "";
    if (
      response.status === 501 ||
      response.status === 405 ||
      (response.status === 404 && !text.includes("no file")) ||
      response.ok
    )
      throw new Unavailable(text);
    throw new Error(text || `the Jupyter server answers ${response.status} ${response.statusText}`);
  }
}
