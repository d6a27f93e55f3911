/** Runs that are to end before they have: the option `terminate`, which may be set while a run is under way. */

/** How often a run looks whether it is to end. */
const LOOK_MS = 50;

interface Ending {
  readonly terminate?: boolean | undefined;
}

export function terminated(): Error {
  return new Error("the run was terminated: its option terminate is set");
}

export function endedAlready({ terminate }: Ending): void {
  if (terminate) throw terminated();
}

/** What a run gives; its signal is aborted where it is to end. */
export async function unlessEnded<T>(run: (signal: AbortSignal) => Promise<T>, options: Ending): Promise<T> {
  const controller = new AbortController();
  const looking = setInterval(() => {
    if (options.terminate) controller.abort(terminated());
  }, LOOK_MS);
  try {
    const results = await run(controller.signal);
    endedAlready(options);
    return results;
  } finally {
    clearInterval(looking);
  }
}
