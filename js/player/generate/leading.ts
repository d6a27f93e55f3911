/** Chooses among a model's largest logits alone, where these decide, as `pyonnx_wasm/generate/leading.py` does, step by step. */
import { drawn, drawnOfMore, penalised, uniform, wrong, type Sampling } from "./sampling.js";

type Every = () => Promise<ArrayLike<number>>;

/** The largest of one token's logits, the largest first, of equal ones that of the lower id. */
export class Leading {
  constructor(
    readonly ids: readonly number[],
    readonly logits: readonly number[],
    /** Logarithm of the sum of all logits' powers, as float32 sums it. */
    readonly sum: number,
    /** How many logits there are; Infinity: any number. */
    readonly words: number,
    /** Reads all of them. */
    readonly every: Every,
    /** Tokens that are not to be chosen. */
    readonly never: ReadonlySet<number> = new Set(),
  ) {}

  /** What a model's output "choice" tells of one token: `k` ids, their logits, the sum. */
  static of(told: ArrayLike<number>, words: number, every: Every): Leading {
    const all = Array.from(told);
    const k = all.length >> 1;
    return new Leading(all.slice(0, k), all.slice(k, -1), all.at(-1)!, words, every);
  }

  /** Throws where there are NaNs among all logits, or none is above -Infinity. */
  check(): void {
    if (!(this.logits[0]! > -Infinity) || Number.isNaN(this.sum)) throw wrong();
  }

  /** Whether there are no others. */
  get whole(): boolean {
    return this.ids.length >= this.words;
  }

  without(tokens: readonly number[]): Leading {
    if (!tokens.length) return this;
    const { ids, logits, sum, words, every, never } = this;
    return new Leading(ids, logits, sum, words, every, new Set([...never, ...tokens]));
  }

  /** Ids and logits of those that may be chosen, in order; where there are no others, those that may not be are at -Infinity. */
  get allowed(): Pair[] {
    const pairs = this.ids.map((id, i): Pair => [id, this.never.has(id) ? -Infinity : this.logits[i]!]);
    return this.whole ? sorted(pairs) : pairs.filter(([id]) => !this.never.has(id));
  }

  /** The probability of one of them. */
  share(id: number): number {
    const logit = this.logits[this.ids.indexOf(id)]!;
    if (this.sum < Infinity) return Math.exp(logit - this.sum);
    return Number(logit === Infinity) / this.logits.filter((x) => x === Infinity).length;
  }
}

/** An id and its logit. */
type Pair = [number, number];

const sorted = (pairs: Pair[]): Pair[] => pairs.sort(([i, a], [j, b]) => (a === b ? i - j : b - a));

/** As `choose` of all logits; undefined where these are needed. */
export function chooseOf(
  few: Leading,
  how: Sampling,
  seed: bigint,
  position: number,
  before: Iterable<number>,
): number | undefined {
  few.check();
  const { whole, logits } = few;
  const { repetitionPenalty: penalty, topK } = how;
  const least = logits.at(-1)!;
  let pairs = few.allowed;
  let count = pairs.length;
  if (penalty !== 1) {
    const marked = new Set(before);
    if (penalty < 1 || pairs.some(([id]) => marked.has(id))) {
      pairs = sorted(pairs.map(([id, x]): Pair => [id, marked.has(id) ? penalised(x, penalty) : x]));
      // What is not among the leading ones may be as large as the least of them, or what a penalty below 1 makes of it.
      const bound = penalty < 1 ? Math.max(least, penalised(least, penalty)) : least;
      if (!whole) count = pairs.filter(([, x]) => x > bound).length;
    }
  }
  if (!count) return undefined;
  if (!(pairs[0]![1] > -Infinity)) throw wrong();
  if (how.temperature === 0) return pairs[0]![0];
  const at = uniform(seed, position);
  const values = pairs.map(([, x]) => x);
  if (whole || (topK > 0 && topK <= count)) return pairs[drawn(topK ? values.slice(0, topK) : values, how, at)]![0];
  if (penalty < 1) return undefined;
  const place = drawnOfMore(values.slice(0, count), totalOf(few, values, count, how), how, at);
  return place === undefined ? undefined : pairs[place]![0];
}

const total = (powers: readonly number[]): number => powers.reduce((sum, x) => sum + x, 0);

/**
 * Between which bounds the sum of the powers of all that may be chosen lies, that of the first of `values` being 1; of `values` the
 * first `count` are the largest of all in order.
 */
function totalOf(few: Leading, values: readonly number[], count: number, how: Sampling): readonly [number, number] {
  const first = values[0]!;
  const p = 1 / how.temperature;
  const powers = values.map((x) => Math.exp((x - first) * p));
  const sure = total(powers.slice(0, count));
  const more = total(powers.slice(count));
  const least = Math.exp(few.logits.at(-1)! - first);
  const everything = Math.exp(few.sum - first);
  const known = total(few.logits.map((x) => Math.exp(x - first)));
  // float32's error of the sum: runs of 256 additions at most, of powers that are good to a few units in the last place, 2^-24 each;
  // and of its logarithm, which is rounded by as much of itself.
  const error = everything * (2 ** -14 + Math.abs(few.sum) * 2 ** -22);
  const others = few.words - few.ids.length;
  // At this temperature powers x become x^p. Of those of the others, which have a sum s and are at most `least`, the sum is then
  // on one side of least^(p - 1) s, and on the other of what equal ones would come to.
  const sides = (s: number): [number, number] => [least ** (p - 1) * s, others ** (1 - p) * s ** p];
  const high = Math.min(Math.max(...sides(Math.max(everything - known, 0) + error)), others * least ** p);
  const leastSum = Math.max(everything - known - error, 0);
  const lowered = how.repetitionPenalty !== 1 || few.never.size > 0;
  const low = lowered || leastSum === 0 ? 0 : Math.min(...sides(leastSum));
  const most = (sure + more + high) * (1 + 1e-9);
  return [how.topK ? sure : Math.max(sure, (sure + more + low) * (1 - 1e-9)), most];
}
