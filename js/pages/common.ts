import type { InferenceSession } from "pyonnx-wasm";

/** The element with that id. */
export function element<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

/** Shows an error to the person and keeps it in the console for the developer. */
export function fail(status: HTMLElement, error: unknown): void {
  status.textContent = `This page could not run the model: ${error instanceof Error ? error.message : String(error)}`;
  status.classList.add("failed");
  console.error(error);
}

export function megabytes(bytes: number): string {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1000)} KB` : `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

export function milliseconds(ms: number): string {
  return `${ms < 10 ? ms.toFixed(2) : ms.toFixed(0)} ms`;
}

/** Which backend runs, on how many threads, as a person reads it. */
export function describe(session: InferenceSession): string {
  const { backend, threads } = session;
  return `${backend} · ${threads === 1 ? "one thread" : `${threads} threads`}`;
}

/** Runs one job at a time; of those asked for meanwhile only the last. */
export function latest<T>(job: (value: T) => Promise<void>): (value: T) => Promise<void> {
  let waiting: { value: T } | undefined;
  let running: Promise<void> | undefined;
  const drain = async (): Promise<void> => {
    while (waiting) {
      const { value } = waiting;
      waiting = undefined;
      await job(value);
    }
  };
  return (value) => {
    waiting = { value };
    running ??= drain().finally(() => (running = undefined));
    return running;
  };
}
