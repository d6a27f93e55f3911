/** Runs one job at a time: what is asked for while it runs is done once, afterwards, with the newest inputs. */
import { milliseconds } from "./tensor.js";

export interface Timing {
  readonly pre: number;
  readonly run: number;
  readonly post: number;
}

const WINDOW = 1500;

export class Runner {
  #running = false;
  #asked = false;
  #ends: number[] = [];
  #dropped = 0;
  timing: Timing | undefined;

  constructor(
    readonly job: () => Promise<Timing | undefined>,
    readonly done: () => void,
    readonly fail: (error: unknown) => void,
    readonly signal: AbortSignal,
  ) {}

  get running(): boolean {
    return this.#running;
  }

  /** Whether another run waits for this one to end. */
  get asked(): boolean {
    return this.#asked;
  }

  ask(): void {
    if (this.#asked) this.#dropped++;
    this.#asked = true;
    if (!this.#running) void this.#drain();
  }

  async #drain(): Promise<void> {
    this.#running = true;
    while (this.#asked && !this.signal.aborted) {
      this.#asked = false;
      try {
        const timing = await this.job();
        if (timing) this.#count(timing);
      } catch (error) {
        if (!this.signal.aborted) this.fail(error);
      }
    }
    this.#running = false;
    if (!this.signal.aborted) this.done();
  }

  #count(timing: Timing): void {
    const now = performance.now();
    this.timing = timing;
    this.#ends = [...this.#ends.filter((end, i, all) => now - end < WINDOW || i === all.length - 1), now];
  }

  /** Times of the last run, and the rate of a stream of them. */
  text(streaming: boolean): string {
    if (!this.timing) return "";
    const { pre, run, post } = this.timing;
    const parts = [`pre ${milliseconds(pre)}`, `run ${milliseconds(run)}`, `post ${milliseconds(post)}`];
    const span = (this.#ends.at(-1) ?? 0) - (this.#ends[0] ?? 0);
    const rate = ((this.#ends.length - 1) * 1000) / span;
    if (streaming && span > 0) parts.unshift(`${rate.toFixed(rate < 10 ? 1 : 0)} fps`);
    if (streaming && this.#dropped) parts.push(`${this.#dropped} frames dropped`);
    return parts.join(" · ");
  }
}
