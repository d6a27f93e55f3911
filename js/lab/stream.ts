/** A file as a stream that is read forwards: small parts are looked at, large ones skipped, by a range request where the server knows them. */

const FAR = 4 << 20;

export class Stream {
  position = 0;
  private buffer: Uint8Array = new Uint8Array(0);
  private at = 0;
  private ended = false;

  private constructor(
    private readonly address: () => Promise<string>,
    private readonly signal: AbortSignal,
    readonly total: number | null,
    private readonly progress: (read: number, total: number | null) => void,
    private reader: ReadableStreamDefaultReader<Uint8Array>,
    private readonly ranges: boolean,
  ) {}

  static async open(
    address: () => Promise<string>,
    signal: AbortSignal,
    size: number | null,
    progress: (read: number, total: number | null) => void,
  ): Promise<Stream> {
    const response = await fetched(await address(), signal);
    const length = Number(response.headers.get("Content-Length")) || size;
    const ranges = response.headers.get("Accept-Ranges") === "bytes";
    return new Stream(address, signal, length, progress, response.body!.getReader(), ranges);
  }

  /** Whether the file ends here. */
  async end(): Promise<boolean> {
    return this.at === this.buffer.length && !(await this.pull());
  }

  /** The next bytes, without moving on; fewer at the end of the file. */
  async peek(count: number): Promise<Uint8Array> {
    while (this.buffer.length - this.at < count && (await this.pull()));
    return this.buffer.subarray(this.at, this.at + count);
  }

  /** The next `count` bytes; an error where the file ends before. */
  async read(count: number): Promise<Uint8Array> {
    const bytes = await this.peek(count);
    if (bytes.length < count)
      throw new Error(`byte ${this.position}: the file ends in the middle of its contents; is it complete?`);
    const copy = bytes.slice();
    this.at += count;
    this.position += count;
    return copy;
  }

  /** Passes over bytes; an error where the file ends before. */
  async skip(count: number): Promise<void> {
    let left = count - (this.buffer.length - this.at);
    if (left > FAR && this.ranges && (this.total === null || this.position + count < this.total)) {
      await this.reader.cancel();
      this.position += count;
      this.buffer = new Uint8Array(0);
      this.at = 0;
      const response = await fetched(await this.address(), this.signal, `bytes=${this.position}-`);
      if (response.status !== 206) throw new Error("the server does not answer a range request as it said it would");
      this.reader = response.body!.getReader();
      return;
    }
    while (left > 0) {
      this.at = this.buffer.length;
      if (!(await this.pull()))
        throw new Error(`byte ${this.position}: the file ends before byte ${this.position + count}; is it complete?`);
      left -= this.buffer.length - this.at;
    }
    this.at = this.buffer.length + left;
    this.position += count;
  }

  close(): void {
    void this.reader.cancel().catch(() => undefined);
  }

  private async pull(): Promise<boolean> {
    if (this.ended) return false;
    const { done, value } = await this.reader.read();
    if (done) return !(this.ended = true);
    const rest = this.buffer.subarray(this.at);
    if (rest.length) {
      const joined = new Uint8Array(rest.length + value.length);
      joined.set(rest);
      joined.set(value, rest.length);
      this.buffer = joined;
    } else this.buffer = value;
    this.at = 0;
    this.progress(this.position, this.total);
    return true;
  }
}

async function fetched(address: string, signal: AbortSignal, range?: string): Promise<Response> {
  const response = await fetch(address, { signal, cache: "no-store", headers: range ? { Range: range } : {} });
  if (!response.ok || !response.body)
    throw new Error(`the file cannot be read: the server answers ${response.status} ${response.statusText}`);
  return response;
}
