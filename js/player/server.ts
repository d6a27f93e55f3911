/** What Node.js, Deno and Bun have and pages have not: files, and worker threads. */

interface FileHandle {
  read(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number | null,
  ): Promise<{ readonly bytesRead: number }>;
  stat(): Promise<{ readonly size: number }>;
  close(): Promise<void>;
}
interface ParentPort extends MessagePort {
  unref?(): void;
}
export interface ServerWorker {
  on(event: "message" | "error" | "exit", listener: (value: never) => void): void;
  postMessage(message: unknown, transfer: readonly unknown[]): void;
  terminate(): Promise<unknown>;
  ref(): void;
  unref(): void;
}
interface Builtins {
  readonly "fs/promises": { open(path: URL): Promise<FileHandle> };
  readonly url: { pathToFileURL(path: string): URL; fileURLToPath(address: string): string };
  readonly os: { availableParallelism?(): number };
  readonly worker_threads: {
    readonly Worker: new (script: URL, options: { readonly name: string }) => ServerWorker;
    readonly parentPort: ParentPort | null;
  };
}

/** A module of the runtime's own; undefined in pages and their workers. */
export function builtin<K extends keyof Builtins>(name: K): Builtins[K] | undefined {
  const { process } = globalThis as { process?: { getBuiltinModule?(name: string): Builtins[K] | undefined } };
  // Electron's pages have both: they are pages.
  return typeof document === "object" ? undefined : process?.getBuiltinModule?.(`node:${name}`);
}

/** The address of a file that was given by its path; undefined for addresses, and where there are no files. */
export function pathAddress(path: string): string | undefined {
  const isAddress = /^[a-z][a-z\d+.-]+:/i.test(path); // a single letter is a drive
  return isAddress || globalThis.location ? undefined : builtin("url")?.pathToFileURL(path).href;
}

/** The path behind a `file:` address; undefined for other addresses, and where there are no files. */
export function addressPath(address: string): string | undefined {
  return address.startsWith("file:") ? builtin("url")?.fileURLToPath(address) : undefined;
}

export interface OpenFile {
  /** Up to `most` bytes, in memory of their own; none at the end. Without a position, those that come next. */
  read(most: number, position?: number): Promise<Uint8Array<ArrayBuffer>>;
  size(): Promise<number>;
  close(): void;
}

/** Opens the file behind a `file:` address; undefined for other addresses, and where there are no files. */
export async function openFile(address: string): Promise<OpenFile | undefined> {
  const fs = address.startsWith("file:") ? builtin("fs/promises") : undefined;
  if (!fs) return undefined;
  const handle = await fs.open(new URL(address));
  return {
    async read(most, position) {
      const buffer = new Uint8Array(most);
      const { bytesRead } = await handle.read(buffer, 0, most, position ?? null);
      return buffer.subarray(0, bytesRead);
    },
    size: async () => (await handle.stat()).size,
    close: () => void handle.close().catch(() => {}),
  };
}

/** Processors that this process may use. */
export function processors(): number {
  const { navigator } = globalThis as { navigator?: Navigator }; // Node.js 20 has none
  return navigator?.hardwareConcurrency || builtin("os")?.availableParallelism?.() || 1;
}
