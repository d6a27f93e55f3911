/** Chooses tokens: the same ones for a seed as `pyonnx_wasm/generate/sampling.py`, step by step. */

/** How the next token is chosen. In this order: penalty, temperature, topK, topP, minP. */
export interface Sampling {
  /** Logits are divided by it; 0 takes the most likely token, whatever follows says. */
  temperature: number;
  /** Keeps so many of the most likely tokens; 0: all. */
  topK: number;
  /** Keeps the fewest of the most likely tokens that have this share together; 1: all. */
  topP: number;
  /** Keeps tokens at least so likely as this share of the most likely one; 0: all. */
  minP: number;
  /** Divides positive logits of tokens that came before, and multiplies negative ones. */
  repetitionPenalty: number;
  /** Of the random numbers; undefined: one that nobody knows. */
  seed?: number | bigint | undefined;
}

export const DEFAULTS: Sampling = { temperature: 0.8, topK: 40, topP: 0.95, minP: 0, repetitionPenalty: 1 };

/** Throws a RangeError that names what is out of range. */
export function checked(given: Partial<Sampling>): Sampling {
  const how = { ...DEFAULTS, ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) };
  const rules: [keyof Sampling, boolean, string][] = [
    ["temperature", how.temperature >= 0, "0 or more"],
    ["topK", how.topK >= 0 && Number.isInteger(how.topK), "a whole number, 0 or more"],
    ["topP", how.topP > 0 && how.topP <= 1, "above 0, at most 1"],
    ["minP", how.minP >= 0 && how.minP <= 1, "0 to 1"],
    ["repetitionPenalty", how.repetitionPenalty > 0, "above 0"],
  ];
  for (const [name, ok, want] of rules) if (!ok) throw new RangeError(`${name} is ${how[name]}; it must be ${want}`);
  return how;
}

/** A seed as 64 bits. */
export function seedOf(seed: number | bigint | undefined): bigint {
  if (seed !== undefined) return BigInt.asUintN(64, BigInt(seed));
  return crypto.getRandomValues(new BigUint64Array(1))[0]!;
}

const TURNS = [
  [17, 29, 16, 24],
  [13, 15, 26, 6],
] as const;

/** In [0, 1), from 53 bits of Threefry-2x32 with 20 rounds (Salmon et al., 2011) of the counter (position, 0). */
export function uniform(seed: bigint, position: number): number {
  const low = Number(seed & 0xffffffffn);
  const high = Number(seed >> 32n);
  const key = [low, high, (0x1bd11bda ^ low ^ high) >>> 0];
  let a = (position + low) >>> 0;
  let b = high;
  for (let group = 1; group <= 5; group++) {
    for (const turn of TURNS[group & 1]!) {
      a = (a + b) >>> 0;
      b = (((b << turn) | (b >>> (32 - turn))) ^ a) >>> 0;
    }
    a = (a + key[group % 3]!) >>> 0;
    b = (b + key[(group + 1) % 3]! + group) >>> 0;
  }
  return ((a >>> 5) * 2 ** 26 + (b >>> 6)) * 2 ** -53;
}

export const wrong = (): Error => new Error("the model's logits are not numbers; its weights or inputs are damaged");

/** So many of the largest logits are tried first: sorting all takes about as long as making them. */
const FIRST = 256;

/** The place of the largest, of equals the first. */
function largest(logits: ArrayLike<number>): number {
  let most = -Infinity;
  let at = -1;
  for (let i = 0, n = logits.length; i < n; i++) {
    const x = logits[i]!;
    if (x <= most) continue;
    if (x !== x) throw wrong();
    most = x;
    at = i;
  }
  if (at < 0) throw wrong();
  return at;
}

/** Probabilities of logits, before any choice. */
export function probabilities(logits: ArrayLike<number>): Float64Array {
  return Float64Array.from(logits, sharesOf(logits));
}

/** What makes probabilities of some of the logits. */
export function sharesOf(logits: ArrayLike<number>): (logit: number) => number {
  const most = logits[largest(logits)]!;
  const power = (x: number): number => (most === Infinity ? Number(x === most) : Math.exp(x - most));
  let sum = 0;
  if (most === Infinity) for (let i = 0; i < logits.length; i++) sum += power(logits[i]!);
  else sum = powers(logits, most);
  return (x) => power(x) / sum;
}

const HALVES = Float64Array.from({ length: 65 }, (_, n) => 2 ** -n);

/** The sum of exp(x - most) of many logits, to 1e-13 of it, in 0.4 of the time of Math.exp: a token has as many as there are words. */
function powers(logits: ArrayLike<number>, most: number): number {
  let sum = 0;
  for (let i = 0, count = logits.length; i < count; i++) {
    const x = logits[i]! - most;
    if (!(x > -44)) continue; // below 1e-19
    const n = (0.5 - x * Math.LOG2E) | 0;
    const f = x + n * Math.LN2;
    const end = f * (1 / 40320 + f * (1 / 362880 + f * (1 / 3628800)));
    sum +=
      HALVES[n]! *
      (1 + f * (1 + f * (1 / 2 + f * (1 / 6 + f * (1 / 24 + f * (1 / 120 + f * (1 / 720 + f * (1 / 5040 + end))))))));
  }
  return sum;
}

const PLACES = 2 ** 20;

/** Indices of all, largest first, of equals the first: by numbers that are ordered like float32's bits, which sort in a tenth of the time. */
function sorted(values: Float32Array): number[] {
  const bits = new Uint32Array(Float32Array.from(values, (x) => x + 0).buffer); // which makes 0 of -0
  const keys = Float64Array.from(bits, (b, i) => (b >>> 31 ? b : ~b & 0x7fffffff) * PLACES + i);
  return Array.from(keys.sort(), (key) => key % PLACES);
}

/** Indices of the `count` largest, largest first, of equals the first. */
export function leading(values: ArrayLike<number>, count: number): number[] {
  if (count >= values.length) {
    if (values instanceof Float32Array && values.length < PLACES) return sorted(values);
    const every = Array.from(values, (_, i) => i);
    return every.sort((i, j) => values[j]! - values[i]! || i - j);
  }
  const found: number[] = [];
  for (let i = 0, n = values.length; i < n; i++) {
    const value = values[i]!;
    if (found.length === count && value <= values[found[count - 1]!]!) continue;
    let at = found.length;
    while (at > 0 && values[found[at - 1]!]! < value) at--;
    found.splice(at, 0, i);
    if (found.length > count) found.pop();
  }
  return found;
}

/** The logit of a token that came before. */
export const penalised = (logit: number, penalty: number): number => (logit > 0 ? logit / penalty : logit * penalty);

/** The token at `position`, which is the number of tokens before it; `before` are those that are penalised. */
export function choose(
  logits: ArrayLike<number>,
  how: Sampling,
  seed: bigint,
  position: number,
  before: Iterable<number>,
): number {
  const first = largest(logits);
  let wide = logits;
  if (how.repetitionPenalty === 1) {
    if (how.temperature === 0) return first;
  } else {
    const made = (wide = new Float64Array(logits));
    for (const id of new Set(before)) if (id < made.length) made[id] = penalised(made[id]!, how.repetitionPenalty);
  }
  if (how.temperature === 0) return leading(wide, 1)[0]!;
  const at = uniform(seed, position);
  if (!how.topK && FIRST < wide.length) {
    const order = leading(wide, FIRST);
    const values = order.map((id) => wide[id]!);
    let total = 0;
    for (let i = 0; i < wide.length; i++) total += Math.exp((wide[i]! - values[0]!) / how.temperature);
    const place = drawnOfMore(values, [total * (1 - 1e-9), total * (1 + 1e-9)], how, at);
    if (place !== undefined) return order[place]!;
  }
  const order = leading(wide, how.topK || wide.length);
  const values = order.map((id) => wide[id]!);
  return order[drawn(values, how, at)]!;
}

/** The place of one among logits, the largest first, by a number in [0, 1). */
export function drawn(values: readonly number[], how: Sampling, at: number): number {
  const powers = values.map((x) => Math.exp((x - values[0]!) / how.temperature));
  let total = 0;
  const sums = powers.map((power) => (total += power));
  const enough = how.topP < 1 ? sums.findIndex((sum) => sum >= how.topP * total) + 1 : values.length;
  const likely = powers.filter((power) => power >= how.minP * powers[0]!).length;
  const kept = Math.min(enough, likely);
  const place = sums.findIndex((sum) => sum > at * sums[kept - 1]!);
  return place < 0 ? kept - 1 : Math.min(place, kept - 1);
}

/**
 * As `drawn` of more than `values`, the largest, where the sum of all powers is `low` to `high`; undefined where it hangs on the
 * others.
 */
export function drawnOfMore(
  values: readonly number[],
  [low, high]: readonly [number, number],
  how: Sampling,
  at: number,
): number | undefined {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return undefined;
  const n = values.length;
  const powers = values.map((x) => Math.exp((x - values[0]!) / how.temperature));
  let sum = 0;
  const sums = powers.map((power) => (sum += power));
  /** Of the first sum that is so much, or more than that; n where there is none. */
  const place = (some: (sum: number) => boolean): number => (sums.findIndex(some) + n + 1) % (n + 1);
  const likely = powers.filter((power) => power >= how.minP * powers[0]!).length;
  const enough = (all: number): number => (how.topP === 1 ? n : place((sum) => sum >= how.topP * all)) + 1;
  const least = Math.min(enough(low), likely);
  const most = Math.min(enough(high), likely < n ? likely : n + 1);
  const lower = how.minP === 0 && enough(low) > n ? Math.max(sums[n - 1]!, how.topP * low) : sums[least - 1]!;
  const upper = most <= n ? sums[most - 1]! : high;
  const [first, last] = [lower, upper].map((all) => place((sum) => sum > at * all)) as [number, number];
  if (least === most && most <= n) return Math.min(first, most - 1);
  return first === last && first < least ? first : undefined;
}
