/** What this browser keeps by content hash, in its Cache API: no more than a limit, the least recently used goes first. */
import { size } from "../player/errors.js";

const CACHE = "pyonnx_wasm";
const MOST_BYTES = 2 ** 31;
const USED = "X-Used";

interface Kept {
  readonly address: string;
  bytes: number;
  /** When it was written or read, in milliseconds since 1970. */
  used: number;
}

export class Store {
  private constructor(
    readonly cache: Cache,
    /** Bytes of all files together: 2 GB, or half of what this browser grants the site. */
    readonly limit: number,
  ) {}

  /** Rejects with the reason why this page has no store. */
  static async open(): Promise<Store> {
    if (!("caches" in globalThis))
      throw new Error("the page is no secure context (https or localhost), so it has no cache");
    const { quota } = (await navigator.storage?.estimate?.().catch(() => undefined)) ?? {};
    return new Store(await caches.open(CACHE), Math.min(MOST_BYTES, (quota ?? Infinity) / 2));
  }

  async find(sha256: string): Promise<Response | undefined> {
    const found = await this.cache.match(addressOf(sha256));
    if (found) await this.#mark(sha256).catch(() => {});
    return found;
  }

  /** Throws for a file that is never kept. */
  check(bytes: number): void {
    if (bytes > this.limit) throw new Error(`${size(bytes)} are more than the ${size(this.limit)} that it keeps`);
  }

  /** Rejects, and keeps nothing, where the file finds no room although all others were dropped. */
  async keep(sha256: string, file: Blob): Promise<void> {
    this.check(file.size);
    const address = addressOf(sha256);
    const files = (await this.#files()).filter((kept) => kept.address !== address);
    let over = files.reduce((sum, { bytes }) => sum + bytes, file.size) - this.limit;
    const dropOldest = async (): Promise<number> => {
      const oldest = files.shift() as Kept;
      await this.#drop(oldest.address);
      return oldest.bytes;
    };
    while (over > 0) over -= await dropOldest();
    const headers = {
      "Content-Type": "application/octet-stream",
      "Content-Length": String(file.size),
      [USED]: String(Date.now()),
    };
    for (;;) {
      try {
        return await this.cache.put(address, new Response(file, { headers }));
      } catch (error) {
        if ((error as Error).name !== "QuotaExceededError" || !files.length) throw error;
        for (let freed = 0; files.length && freed < file.size;) freed += await dropOldest();
      }
    }
  }

  async forget(sha256: string): Promise<void> {
    await this.#drop(addressOf(sha256));
  }

  /** The time of a reading lies beside the file, which cannot be changed without writing it again. */
  #mark(sha256: string): Promise<void> {
    return this.cache.put(markOf(addressOf(sha256)), new Response(null, { headers: { [USED]: String(Date.now()) } }));
  }

  async #drop(address: string): Promise<void> {
    await Promise.all([address, markOf(address)].map((key) => this.cache.delete(key)));
  }

  /** The least recently used first. */
  async #files(): Promise<Kept[]> {
    const found = new Map<string, Kept>();
    for (const request of await this.cache.keys()) {
      const response = await this.cache.match(request);
      await response?.body?.cancel(); // an open file takes room even once it is deleted
      const headers = response?.headers;
      const address = request.url.split("?")[0] as string;
      const kept = found.get(address) ?? { address, bytes: 0, used: 0 };
      found.set(address, kept);
      kept.bytes += Number(headers?.get("Content-Length") ?? 0);
      kept.used = Math.max(kept.used, Number(headers?.get(USED) ?? 0));
    }
    return [...found.values()].sort((a, b) => a.used - b.used);
  }
}

const addressOf = (sha256: string): string => `https://pyonnx-wasm.invalid/${sha256}`;
const markOf = (address: string): string => `${address}?used`;
