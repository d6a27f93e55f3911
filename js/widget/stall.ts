/** Notices calls that got lost on the way, sends them again, and says after a few tries who did not answer. */

const TICK = 1000;
/** Milliseconds without a sign of a call before the other side is asked. */
const PATIENCE = 2000;
/** Milliseconds after which a question is asked again. */
const REPEAT = 5000;
const TRIES = 3;

export interface Line {
  /** Asks the other side for a sign of life; `answered` takes what it says. */
  ping(id: string): void;
  again(id: string): void;
  giveUp(id: string): void;
  /** Nothing was heard for so many seconds although a call waits. */
  onStall(seconds: number): void;
}

interface Waiting {
  since: number;
  tries: number;
}

export class Stalls {
  readonly #waiting = new Map<string, Waiting>();
  #timer: ReturnType<typeof setInterval> | undefined;
  #asked: { readonly id: string; readonly at: number } | undefined;
  #heard = 0;
  #next = 1;

  constructor(
    readonly line: Line,
    readonly now: () => number = () => performance.now(),
  ) {}

  add(id: string): void {
    if (!this.#waiting.size) this.#heard = this.now();
    this.#waiting.set(id, { since: this.now(), tries: 0 });
    this.#timer ??= setInterval(() => this.check(), TICK);
  }

  /** Something of the call came. */
  moved(id: string): void {
    const call = this.#waiting.get(id);
    if (call) call.since = this.now();
  }

  /** Something came, of whatever. */
  heard(): void {
    this.#heard = this.now();
  }

  done(id: string): void {
    this.#waiting.delete(id);
    if (!this.#waiting.size) this.stop();
  }

  stop(): void {
    this.#waiting.clear();
    clearInterval(this.#timer);
    this.#timer = this.#asked = undefined;
  }

  check(): void {
    const now = this.now();
    const late = [...this.#waiting.values()].some(({ since }) => now - since > PATIENCE);
    if (!late) return;
    if (now - this.#heard > REPEAT) this.line.onStall((now - this.#heard) / 1000);
    if (this.#asked && now - this.#asked.at < REPEAT) return;
    this.#asked = { id: `ping-${this.#next++}`, at: now };
    this.line.ping(this.#asked.id);
  }

  /** The other side answered a question: what it is not serving although it was called before was lost. */
  answered(id: string, serving: ReadonlySet<string> | undefined): void {
    const asked = this.#asked;
    if (asked?.id !== id) return;
    this.#asked = undefined;
    if (!serving) return;
    for (const [call, waiting] of [...this.#waiting]) {
      if (serving.has(call) || asked.at - waiting.since < PATIENCE) continue;
      waiting.since = this.now();
      if (++waiting.tries > TRIES) this.line.giveUp(call);
      else this.line.again(call);
    }
  }
}
