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

/** A file beside the page; throws an error that names it. */
export async function read(name: string): Promise<Response> {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name}: HTTP ${response.status}`);
  return response;
}

export function megabytes(bytes: number): string {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1000)} KB` : `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

export function milliseconds(ms: number): string {
  return `${ms < 10 ? ms.toFixed(2) : ms.toFixed(0)} ms`;
}

/** How sure a probability is, in words. */
export function certainty(p: number): string {
  return p > 0.9 ? "quite sure" : p > 0.6 ? "probably" : "hard to say";
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

/** A row of a `.bars` list. */
export function bar(label: string): HTMLLIElement {
  const row = document.createElement("li");
  row.innerHTML = `<span></span><span class="track" aria-hidden="true"><span class="fill"></span></span><span class="percent"></span>`;
  row.firstElementChild!.textContent = label;
  return row;
}

/** Shows a probability from 0 to 1 in a row, or none. */
export function setBar(row: HTMLElement, p: number | undefined, best: boolean): void {
  row.classList.toggle("best", best);
  row.style.setProperty("--p", (p ?? 0).toFixed(4));
  row.querySelector(".percent")!.textContent = p === undefined ? "" : `${(100 * p).toFixed(1)} %`;
}

/** Calls back with the files that are dropped on a place. */
export function onDrop(place: HTMLElement, take: (files: File[]) => void): void {
  const over = (event: DragEvent): void => {
    event.preventDefault();
    place.classList.toggle("over", event.type === "dragover");
  };
  for (const kind of ["dragover", "dragleave", "drop"] as const) place.addEventListener(kind, over);
  place.addEventListener("drop", (event) => {
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) take(files);
  });
}
