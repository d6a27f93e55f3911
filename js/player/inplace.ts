/** The engine in the thread that uses it. */
import type { Engine, Loaded, Target } from "./engine.mjs";
import { isCoreLost } from "./errors.js";
import { Copies, returned } from "./copies.js";
import type { Feed, Output } from "./feed.js";
import type { Answer, External, Host } from "./host.js";
import { open, type ModelSource, type Source } from "./source.js";
import type { Arrived } from "./staged.js";
import type { Tensor } from "./tensor.js";
import type { Progress, StepTime } from "./types.js";

export class LocalHost implements Host {
  lost = false;
  readonly home = this;
  readonly inPlace = true;
  readonly #copies = new Copies();

  constructor(readonly engine: Engine) {}

  async load(
    source: ModelSource,
    external: readonly External[],
    target: Target,
    onProgress: (p: Progress) => void,
    answer: Answer,
  ): Promise<Loaded> {
    const find = (file: string): Promise<Source> | undefined => {
      const found = external.find(({ path }) => path === file);
      return found && open(found.data);
    };
    const staged = new Map(
      external.flatMap(({ path, data }) => ((data as Source).staged ? [[path, (data as Source).staged!]] : [])),
    );
    const opened = await open(source);
    return this.#watch(() => this.engine.load(opened, { external: find, onProgress, answer }, target, staged));
  }

  run(
    session: number,
    feeds: readonly Feed[],
    wanted: readonly number[],
    keep: readonly number[],
    signal?: AbortSignal,
  ): Promise<Output[]> {
    const copies = this.#copies.of(feeds);
    const run = (): Promise<Output[]> => this.engine.run(session, copies, wanted, keep, signal);
    return this.#watch(run).finally(() => this.#copies.takeBack(returned(copies)));
  }

  download(tensor: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.#watch(() => this.engine.download(tensor));
  }

  dispose(tensor: number): void {
    void this.engine.dispose([tensor]);
  }

  bufferOf(tensor: number): Tensor.GpuBufferType | undefined {
    return this.engine.bufferOf(tensor);
  }

  profile(session: number, feeds: readonly Feed[]): Promise<StepTime[]> {
    const copies = this.#copies.of(feeds);
    const run = (): Promise<StepTime[]> => this.engine.profile(session, copies);
    return this.#watch(run).finally(() => this.#copies.takeBack(returned(copies)));
  }

  release(session: number): Promise<void> {
    return this.#watch(() => this.engine.release(session));
  }

  async memoryBytes(): Promise<number> {
    return this.engine.memoryBytes();
  }

  stage(source: Source, bytes: number): Promise<Arrived> {
    return this.#watch(() => this.engine.stage(source, bytes));
  }

  staged(id: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.#watch(() => this.engine.staged(id, start, end));
  }

  unstage(id: number): void {
    this.engine.unstage(id);
  }

  stop(): void {
    this.engine.stop();
  }

  async #watch<T>(fn: () => T | Promise<T>): Promise<T> {
    try {
      return await fn();
    } catch (error) {
      this.lost ||= isCoreLost(error);
      throw error;
    }
  }
}
