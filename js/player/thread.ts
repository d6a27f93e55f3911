/** Threads of the core: what starts one, and what one does: it joins the pool and serves it until it is destroyed. */
import type { Said, ThreadExports, ThreadLike, ThreadStart } from "./core.js";
import { startWorker, unref, type WorkerLike } from "./workers.js";

const JOIN_MS = 5000;

/**
 * Starts a thread whose script takes a ThreadStart. Of an engine in a worker the page does so, as not every worker may start another.
 */
export function startThread(script: string, start: ThreadStart): ThreadLike {
  const worker = startWorker(script, "pyonnx-wasm-thread");
  try {
    worker.postMessage(start, []);
  } catch (error) {
    worker.terminate();
    throw error;
  }
  return new Thread(worker);
}

class Thread implements ThreadLike {
  onmessage: ThreadLike["onmessage"] = null;
  onerror: ThreadLike["onerror"] = null;

  constructor(readonly worker: WorkerLike) {
    const fail = (message: string): void => this.onerror?.({ message, preventDefault: () => {} } as ErrorEvent);
    const overdue = setTimeout(fail, JOIN_MS, "it does not start");
    worker.onmessage = (event) => {
      clearTimeout(overdue);
      this.onmessage?.(event);
    };
    worker.onerror = (event) => {
      clearTimeout(overdue);
      event.preventDefault();
      fail(event.message || "its script did not load");
    };
    unref(overdue);
  }

  terminate(): void {
    this.worker.terminate();
  }

  unref(): void {
    this.worker.unref?.();
  }
}

export async function serveThread(start: ThreadStart, say: (said: Said) => void): Promise<void> {
  const { module, memory, pool, index, stackTop, tls } = start;
  const instance = await WebAssembly.instantiate(module, { env: { memory } });
  const core = instance.exports as unknown as ThreadExports;
  core.__stack_pointer.value = stackTop;
  if (Number(core.__tls_size.value) > 0) core.__wasm_init_tls(tls);
  say("joined");
  try {
    core.pwx_worker(pool, index);
  } catch (error) {
    say({ trap: String(error) });
  }
}
