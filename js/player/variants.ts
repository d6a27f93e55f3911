/**
 * Models without the declared ranks, or sizes, that their structure hangs on: compiled for what is fed, once for each.
 * A session has one in place of its engine.
 */
import type { Compiled } from "./compile.mjs";
import type { How } from "./compiler.js";
import type { Loaded } from "./engine.mjs";
import type { ValueInfo } from "./format.js";
import type { Host } from "./host.js";
import type { Feed, Output } from "./feed.js";
import { partsOf } from "./strings.js";
import type { TensorType } from "./tensor.js";
import type { StepTime } from "./types.js";

interface Declared {
  readonly name: string;
  readonly dtype: TensorType;
  readonly shape: readonly (number | string)[] | null;
}

/** What has to be known before a model can be compiled. */
export interface Pending {
  /** Whose ranks. */
  readonly inputs: readonly string[];
  /** Axes whose sizes, by name. */
  readonly symbols: readonly string[];
  readonly signature: readonly [readonly Declared[], readonly Declared[]];
}

const MARK = '{"needs"';
/** Vectors of integers so short are sizes and axes: how many they are decides ranks. */
const FEW = 64;
/** Kept of one model; the one that was made first goes first. */
const MOST = 16;

/** What the compiler asks for in place of a model. */
export function pendingOf(model: Uint8Array): Pending | undefined {
  const text = new TextDecoder();
  if (text.decode(model.subarray(0, MARK.length)) !== MARK) return undefined;
  return (JSON.parse(text.decode(model)) as { needs: Pending }).needs;
}

export class Variants implements Host {
  /** What is known of the model; where it runs, from the first run on. */
  readonly loaded: Loaded;
  readonly #made = new Map<string, number>();
  readonly #unranked: ReadonlySet<string>;
  #symbols: ReadonlySet<string>;
  #source: Compiled;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(
    readonly host: Host,
    source: Compiled,
    readonly loadOne: (compiled: Compiled) => Promise<Loaded>,
  ) {
    const { inputs, symbols, signature } = source.pending as Pending;
    this.#unranked = new Set(inputs);
    this.#symbols = new Set(symbols);
    this.#source = source;
    const [ins, outs] = signature.map((side) =>
      side.map(({ name, dtype, shape }): ValueInfo => ({ name, type: dtype, shape: shape ?? [], anyRank: !shape })),
    ) as [ValueInfo[], ValueInfo[]];
    this.loaded = { id: 0, inputs: ins, outputs: outs, faces: undefined, threads: 0, backend: "wasm" };
  }

  get lost(): boolean {
    return this.host.lost;
  }

  get home(): unknown {
    return this.host.home;
  }

  get inPlace(): boolean {
    return this.host.inPlace;
  }

  load(): Promise<Loaded> {
    throw new Error("a variant is loaded when it is run");
  }

  async run(
    _: number,
    feeds: readonly Feed[],
    wanted: readonly number[],
    keep: readonly number[],
    signal?: AbortSignal,
  ): Promise<Output[]> {
    return this.#with(feeds, (id, given) => this.host.run(id, given, wanted, keep, signal));
  }

  async profile(_: number, feeds: readonly Feed[]): Promise<StepTime[]> {
    return this.#with(feeds, (id, given) => this.host.profile(id, given));
  }

  download(tensor: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.host.download(tensor);
  }

  dispose(tensor: number): void {
    this.host.dispose(tensor);
  }

  bufferOf(tensor: number): ReturnType<Host["bufferOf"]> {
    return this.host.bufferOf(tensor);
  }

  memoryBytes(): Promise<number> {
    return this.host.memoryBytes();
  }

  stage(...args: Parameters<Host["stage"]>): ReturnType<Host["stage"]> {
    return this.host.stage(...args);
  }

  staged(...args: Parameters<Host["staged"]>): ReturnType<Host["staged"]> {
    return this.host.staged(...args);
  }

  unstage(id: number): void {
    this.host.unstage(id);
  }

  stop(): void {
    this.host.stop();
  }

  async release(): Promise<void> {
    await this.#queue;
    const made = [...this.#made.values()];
    this.#made.clear();
    this.#source.forget();
    await Promise.all(made.map((id) => this.host.release(id)));
  }

  /** Runs are asked for in order; feeds are copied where they have to wait. */
  #with<T>(feeds: readonly Feed[], run: (id: number, feeds: readonly Feed[]) => Promise<T>): Promise<T> {
    const given = feeds.map((feed) => ({ ...feed, data: feed.data.slice() }));
    const answer = this.#queue.then(async () => {
      const id = await this.#variant(given);
      return { running: run(id, given) };
    });
    this.#queue = answer.catch(() => {});
    return answer.then(({ running }) => running);
  }

  async #variant(feeds: readonly Feed[]): Promise<number> {
    const known = this.#known(feeds);
    const key = JSON.stringify(known);
    const there = this.#made.get(key);
    if (there !== undefined) return there;
    const compiled = await this.#source.given(known);
    this.#source = compiled; // Its files have been to the compiler and back.
    if (compiled.pending) {
      const { symbols } = compiled.pending;
      if (symbols.every((name) => this.#symbols.has(name)))
        throw new Error(`the model's structure hangs on the size of ${symbols.join(", ")}, which no input has`);
      this.#symbols = new Set([...this.#symbols, ...symbols]);
      return this.#variant(feeds);
    }
    const [oldest] = this.#made;
    if (oldest && this.#made.size >= MOST) {
      this.#made.delete(oldest[0]);
      await this.host.release(oldest[1]);
    }
    const { id, threads, backend, fallback, adapter } = await this.loadOne(compiled);
    Object.assign(this.loaded, { threads, backend, fallback, adapter });
    this.#made.set(key, id);
    return id;
  }

  #known(feeds: readonly Feed[]): Required<Pick<How, "shapes" | "sizes">> {
    const shapes: Record<string, readonly (number | string)[]> = {};
    const sizes: Record<string, number> = {};
    let at = 0;
    for (const { name, type, shape } of this.loaded.inputs) {
      const { dims } = feeds[at] as Feed;
      at += partsOf(type);
      const few = /int/.test(type) && dims.length === 1 && (dims[0] as number) <= FEW;
      const own = this.#unranked.has(name) ? (few ? dims : dims.map((_, axis) => `${name}[${axis}]`)) : shape;
      if (own !== shape) shapes[name] = own;
      for (const [axis, dim] of own.entries())
        if (typeof dim === "string" && this.#symbols.has(dim)) sizes[dim] = dims[axis] as number;
    }
    return { shapes, sizes };
  }
}
