/** Beam search, as transformers' `generate({ num_beams })` does it: the same candidates, scores and ends. */
import type { Tensor } from "../tensor.js";
import type { Decoder, Reopen } from "./cache.js";
import type { Plan } from "./loop.js";
import { leading, wrong } from "./sampling.js";
import { Joined, rowOf } from "./several.js";

/** One text that was found. */
export interface Beams {
  /** Behind the prompt, with the token that ended it. */
  ids: number[];
  text: string;
  /** Sum of the tokens' log probabilities over their number to the power of the length penalty. */
  score: number;
  /** The model ended it. */
  ended: boolean;
}

export interface BeamSettings {
  numBeams?: number;
  maxNewTokens?: number;
  /** A text's sum of log probabilities is divided by its number of new tokens to this power. */
  lengthPenalty?: number;
  /** `true`: ends once `numBeams` texts have ended; `false`: once no better one is likely; `"never"`: once there can be none. */
  earlyStopping?: boolean | "never";
  /** How many are given. */
  numReturn?: number;
  /** As the settings of a Generator's texts have them. */
  decoderInputIds?: readonly number[];
  signal?: AbortSignal;
}

/** A text with the sum of its log probabilities. */
interface Text {
  score: number;
  ids: number[];
}

/** Texts that go on and texts that have ended, the best first. */
class Search {
  going: Text[] = [{ score: 0, ids: [] }];
  ended: Text[] = [];

  constructor(
    private readonly ends: ReadonlySet<number>,
    private readonly how: Required<Omit<BeamSettings, "signal" | "decoderInputIds">>,
    private readonly never: readonly number[],
    private readonly neverFirst: readonly number[],
  ) {}

  /** Takes the next tokens' logits; returns which texts go on, by number, as they now stand. */
  advance(logits: readonly ArrayLike<number>[]): number[] {
    const { numBeams, maxNewTokens, lengthPenalty } = this.how;
    const words = logits[0]!.length;
    const sums = new Float64Array(logits.length * words);
    for (const [text, row] of logits.entries()) {
      let most = -Infinity;
      for (let i = 0; i < words; i++) most = Math.max(most, row[i]!);
      let sum = 0;
      for (let i = 0; i < words; i++) sum += Math.exp(row[i]! - most);
      if (Number.isNaN(sum)) throw wrong();
      const before = this.going[text]!.score - Math.log(sum);
      for (let i = 0; i < words; i++) sums[text * words + i] = row[i]! - most + before;
    }
    for (const token of [...this.never, ...(this.going[0]!.ids.length ? [] : this.neverFirst)])
      for (let text = 0; token < words && text < logits.length; text++) sums[text * words + token] = -Infinity;
    const origin: number[] = [];
    const going: Text[] = [];
    for (const [place, flat] of leading(sums, (1 + Math.max(1, this.ends.size)) * numBeams).entries()) {
      const text = Math.floor(flat / words);
      const token = flat % words;
      const ids = [...this.going[text]!.ids, token];
      const score = sums[flat]!;
      if (this.ends.has(token) || ids.length >= maxNewTokens) {
        if (place < numBeams) this.ended.push({ score: score / ids.length ** lengthPenalty, ids });
      } else if (going.length < numBeams) {
        going.push({ score, ids });
        origin.push(text);
      }
    }
    this.ended = this.ended.sort((a, b) => b.score - a.score).slice(0, numBeams);
    this.going = going;
    return origin;
  }

  get done(): boolean {
    const { numBeams, maxNewTokens, lengthPenalty, earlyStopping } = this.how;
    const [best] = this.going;
    if (!best) return true;
    if (this.ended.length < numBeams) return false;
    if (earlyStopping === true) return true;
    const length = earlyStopping === "never" && lengthPenalty > 0 ? maxNewTokens : best.ids.length;
    return best.score / length ** lengthPenalty <= this.ended.at(-1)!.score;
  }
}

export async function beams(
  decoder: Decoder,
  prompt: readonly number[],
  source: Tensor | undefined,
  { ends, decode, chunk, never, neverFirst }: Pick<Plan, "ends" | "decode" | "chunk" | "never" | "neverFirst">,
  { signal, ...given }: BeamSettings,
  reopen?: Reopen,
): Promise<Beams[]> {
  const how = {
    numBeams: 4,
    maxNewTokens: 128,
    lengthPenalty: 1,
    earlyStopping: false,
    numReturn: 1,
    ...given,
  } as const;
  const { numBeams, maxNewTokens, numReturn, earlyStopping } = how;
  const rules: [keyof typeof how, boolean, string][] = [
    ["numBeams", numBeams >= 1, "1 or more"],
    ["maxNewTokens", maxNewTokens >= 1, "1 or more"],
    ["numReturn", numReturn >= 1 && numReturn <= numBeams, "1 or more, at most numBeams"],
    ["earlyStopping", [true, false, "never"].includes(earlyStopping), 'true, false or "never"'],
  ];
  for (const [name, ok, want] of rules) if (!ok) throw new RangeError(`${name} is ${how[name]}; it must be ${want}`);
  if (numBeams > 1 && !decoder.many)
    throw new Error(
      "the model reads one text at a time (its input_ids have a batch of 1): export it with a batch of any size",
    );
  const search = new Search(ends, how, never, neverFirst);
  const joined = new Joined(decoder);
  let origin: number[] | undefined;
  /** Logits behind all texts; with an empty cache they are read anew. */
  const read = async (anew: boolean): Promise<ArrayLike<number>[]> => {
    const { going } = search;
    if (!anew) {
      await joined.select(origin!);
      return joined.step(going.map(({ ids }) => ids.at(-1)!));
    }
    const alone = decoder.another();
    let logits: ArrayLike<number>[] = [];
    await alone.listen(source);
    for (let at = 0; at < prompt.length; at += chunk) logits = await alone.step(prompt.slice(at, at + chunk));
    joined.lay([await rowOf(alone)]);
    await joined.hear(alone);
    alone.forget(0);
    await joined.select(going.map(() => 0));
    for (let at = 0; at < going[0]!.ids.length; at++) logits = await joined.step(going.map(({ ids }) => ids[at]!));
    return logits;
  };
  try {
    for (let failed = -1; ;) {
      signal?.throwIfAborted();
      const place = search.going[0]!.ids.length;
      let logits;
      try {
        logits = await read(!origin);
      } catch (error) {
        if (!reopen || failed === place) throw error;
        failed = place;
        await decoder.renew(reopen);
        logits = await read(true);
      }
      origin = search.advance(logits);
      if (search.done) break;
    }
  } finally {
    joined.lay([]);
  }
  return search.ended
    .slice(0, numReturn)
    .map(({ score, ids }) => ({ ids, text: decode(ids), score, ended: ends.has(ids.at(-1)!) }));
}
