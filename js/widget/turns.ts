/** Work that is done one piece after the other; what is given up before its turn is never begun. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  /** Rejects with the signal's reason where it aborts before the turn of `fn`. */
  take<T>(fn: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const mine = this.#last.then(() => {
      signal?.throwIfAborted();
      return fn();
    });
    this.#last = mine.catch(() => {});
    return mine;
  }
}
