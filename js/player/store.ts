/** What this browser keeps, in its Cache API: no more than a limit, the least recently used goes first, checked by hash when read. */
import { size } from "./errors.js";

const CACHE = "pyonnx_wasm";
const MOST_BYTES = 2 ** 31;
const USED = "X-Used";
const SHA256 = "X-SHA256";

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
    if (!globalThis.caches || !globalThis.crypto?.subtle)
      throw new Error("the page is no secure context (https or localhost), so it has no cache");
    if (!("keys" in Cache.prototype)) throw new Error("the cache of this runtime cannot be bounded");
    const { quota } = (await navigator.storage?.estimate?.().catch(() => undefined)) ?? {};
    return new Store(await caches.open(CACHE), Math.min(MOST_BYTES, (quota ?? Infinity) / 2));
  }

  /** The file kept under a key; undefined if there is none, or it is not what was kept: then it is removed. */
  async find(key: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const found = await this.cache.match(addressOf(key));
    if (!found) return undefined;
    const bytes = new Uint8Array(await found.arrayBuffer());
    if ((await sha256(bytes)) !== (isHash(key) ? key : found.headers.get(SHA256))) {
      await this.forget(key);
      return undefined;
    }
    await this.#mark(key).catch(() => {});
    return bytes;
  }

  /** Throws for a file that is never kept. */
  check(bytes: number): void {
    if (bytes > this.limit) throw new Error(`${size(bytes)} are more than the ${size(this.limit)} that it keeps`);
  }

  /**
   * Keeps a file under a key; a key that is a SHA-256 must be the file's. Rejects, and keeps nothing, where the file finds no room
   * although all others were dropped.
   */
  async keep(key: string, file: Blob): Promise<void> {
    this.check(file.size);
    const hash = await sha256(await file.arrayBuffer());
    if (isHash(key) && hash !== key) throw new Error(`its bytes have the hash ${hash}, not ${key}`);
    const address = addressOf(key);
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
      [SHA256]: hash,
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

  async forget(key: string): Promise<void> {
    await this.#drop(addressOf(key));
  }

  /** The time of a reading lies beside the file, which cannot be changed without writing it again. */
  #mark(key: string): Promise<void> {
    return this.cache.put(markOf(addressOf(key)), new Response(null, { headers: { [USED]: String(Date.now()) } }));
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

/** In hexadecimal digits. */
export async function sha256(bytes: BufferSource): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const isHash = (key: string): boolean => /^[0-9a-f]{64}$/.test(key);
const addressOf = (key: string): string => `https://pyonnx-wasm.invalid/${key}`;
const markOf = (address: string): string => `${address}?used`;
