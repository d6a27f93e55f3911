/** Starts workers: of pages, of other workers, of Node.js, Deno and Bun. */
import { messageOf } from "./errors.js";
import { builtin, type ServerWorker } from "./server.js";

/** What the player uses of a worker. */
export interface WorkerLike {
  onmessage: ((event: MessageEvent) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
  postMessage(message: unknown, transfer: Transferable[]): void;
  terminate(): void;
  /** Whether it keeps the process alive; pages have none to keep. */
  ref?(): void;
  unref?(): void;
}

/** There is nothing to start workers with. */
export class NoWorker extends Error {}

/** Whether this is a worker of Firefox: a worker's constructor may block for ever there (10 of 923 times in 153). */
function mayBlock(): boolean {
  const { WorkerGlobalScope: Scope, navigator } = globalThis as { WorkerGlobalScope?: Function; navigator?: Navigator };
  return typeof Scope === "function" && globalThis instanceof Scope && /\bFirefox\//.test(navigator?.userAgent ?? "");
}

/** Starts a module as a worker. Throws NoWorker; a script that does not load is told to `onerror`. */
export function startWorker(script: string, name: string): WorkerLike {
  if (mayBlock()) throw new NoWorker("a worker that starts another may stand still in Firefox");
  try {
    const threads = builtin("worker_threads");
    // A Worker without unref keeps the process alive.
    if (typeof Worker === "function" && (!threads || "unref" in Worker.prototype))
      return new Worker(ownScript(script), { type: "module", name });
    if (threads) return new ThreadWorker(new threads.Worker(new URL(script), { name }));
  } catch (error) {
    throw new NoWorker(messageOf(error));
  }
  throw new NoWorker("there are no workers here");
}

const imported = new Map<string, string>();

/** A script from another origin cannot be a worker, but one of this origin may import it. */
function ownScript(script: string): string {
  const { protocol, origin } = new URL(script);
  if (!globalThis.origin || !protocol.startsWith("http") || origin === globalThis.origin) return script;
  let address = imported.get(script);
  if (!address) {
    address = URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" }));
    imported.set(script, address);
  }
  return address;
}

/** A thread of Node.js with the face of a page's worker. */
class ThreadWorker implements WorkerLike {
  onmessage: ((event: MessageEvent) => void) | null = null;
  onerror: ((event: ErrorEvent) => void) | null = null;

  constructor(readonly thread: ServerWorker) {
    thread.on("message", (data) => this.onmessage?.({ data } as unknown as MessageEvent));
    thread.on("error", (error: Error) =>
      this.onerror?.({ message: error.message, preventDefault: () => {} } as ErrorEvent),
    );
  }

  postMessage(message: unknown, transfer: Transferable[]): void {
    this.thread.postMessage(message, transfer);
  }

  terminate(): void {
    void this.thread.terminate();
  }

  ref(): void {
    this.thread.ref();
  }

  unref(): void {
    this.thread.unref();
  }
}

/** Lets the process end although a port is open or a timer runs; pages do not need it. */
export function unref(kept: unknown): void {
  const { Deno } = globalThis as { Deno?: { unrefTimer(id: number): void } };
  if (typeof kept === "number") Deno?.unrefTimer(kept);
  else (kept as { unref?(): void } | undefined)?.unref?.();
}
