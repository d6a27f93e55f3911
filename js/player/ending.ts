/** Runs that are to end before they have: the option `terminate`, which may be set while a run is under way. */
import type { Host } from "./host.js";

/** How often a run looks whether it is to end. */
const LOOK_MS = 50;

interface Ending {
  readonly terminate?: boolean | undefined;
}

export function endedAlready({ terminate }: Ending): void {
  if (terminate) throw new Error("the run was terminated: its option terminate is set");
}

/**
 * What a run gives. Where it is to end, an error: with the run itself, or at once where it is in a module of the file's own, whose engine
 * ends with it.
 */
export async function unlessEnded<T>(running: Promise<T>, options: Ending, host: Host): Promise<T> {
  const looking = setInterval(() => {
    if (options.terminate) host.giveUp();
  }, LOOK_MS);
  try {
    const results = await running;
    endedAlready(options);
    return results;
  } finally {
    clearInterval(looking);
  }
}
