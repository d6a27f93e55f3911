/** Times of something that is run again and again. */

export interface Times {
  /** What the first run took, which makes ready what later ones find. */
  readonly first: number;
  readonly median: number;
  /** Between these lie four runs of five. */
  readonly low: number;
  readonly high: number;
  readonly runs: number;
}

const LEAST = 5;
const MOST = 50;
const LEAST_MS = 250;
const MOST_MS = 2000;
/** Browsers' clocks tick up to a millisecond apart: a sample of several runs lasts longer. */
const SAMPLE_MS = 5;

/**
 * Times runs after `first`: five to fifty samples, about a quarter of a second. `once` gives the milliseconds of a run, or nothing
 * where the clock here is to tell. `tell` hears how many samples there are; `stop` ends it early.
 */
export async function measure(
  once: () => Promise<number | undefined>,
  first: number,
  tell: (runs: number) => void,
  stop: () => boolean,
): Promise<Times> {
  const samples: number[] = [];
  let batch = 1;
  let runs = 0;
  const begin = performance.now();
  for (;;) {
    const passed = performance.now() - begin;
    if (samples.length && (stop() || passed > MOST_MS || samples.length >= MOST)) break;
    if (samples.length >= LEAST && passed > LEAST_MS) break;
    const start = performance.now();
    let inside: number | undefined;
    for (let i = 0; i < batch; i++) {
      const ms = await once();
      if (ms !== undefined) inside = (inside ?? 0) + ms;
    }
    runs += batch;
    const took = performance.now() - start;
    if (took < SAMPLE_MS && batch < 64) {
      batch *= 2;
      continue;
    }
    samples.push((inside ?? took) / batch);
    tell(runs);
  }
  samples.sort((a, b) => a - b);
  const at = (share: number): number => samples[Math.round(share * (samples.length - 1))]!;
  return { first, median: at(0.5), low: at(0.1), high: at(0.9), runs };
}
