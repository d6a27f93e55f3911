/** Runs that can be given up: they stop now and then, let this thread's messages come in, and look at their signal. */

/** Operations of the core until a run stops; milliseconds, at most a tenth of a second. */
export const SLICE = 2 ** 26;
/** Milliseconds that a run keeps its thread from others: longer ones are long tasks (https://w3c.github.io/longtasks/). */
const TURN_MS = 50;

/** Settles when the messages and timers that wait had their turn. Timers wait longer the more of them there were. */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}

/** Lets others have their turn; throws the signal's reason where it was aborted. */
export async function pause(signal: AbortSignal | undefined): Promise<void> {
  await turn();
  signal?.throwIfAborted();
}

/** The stops of one run: others have their turn at those that come late enough. */
export class Stops {
  readonly #signal: AbortSignal | undefined;
  #since = performance.now();

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  /** Settles when the run may go on; undefined: at once. Throws the signal's reason where it was aborted. */
  stop(): Promise<void> | undefined {
    return performance.now() - this.#since < TURN_MS ? undefined : this.#pause();
  }

  async #pause(): Promise<void> {
    await pause(this.#signal);
    this.#since = performance.now();
  }
}
