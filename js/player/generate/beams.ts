/** Beam search, as transformers' `generate({ num_beams })` does it: the same candidates, scores and ends. */
import type { Tensor } from "../tensor.js";
import type { Decoder, Reopen } from "./cache.js";
import { Leading } from "./leading.js";
import { needed, type Needs, type Plan, type Row } from "./loop.js";
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

/** A text with one token more: the sums of log probabilities, the largest in order or those of all tokens, and the tokens. */
interface Longer {
  sums: Float64Array;
  token: (place: number) => number;
}

function continued(row: Row, never: readonly number[], score: number): Longer {
  if (row instanceof Leading) {
    row.check();
    const pairs = row.without(never).allowed;
    return { sums: Float64Array.from(pairs, ([, x]) => x - row.sum + score), token: (place) => pairs[place]![0] };
  }
  let most = -Infinity;
  for (let i = 0; i < row.length; i++) most = Math.max(most, row[i]!);
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp(row[i]! - most);
  if (Number.isNaN(sum)) throw wrong();
  const before = score - Math.log(sum);
  const sums = Float64Array.from(row, (x) => x - most + before);
  for (const id of never) if (id < sums.length) sums[id] = -Infinity;
  return { sums, token: (place) => place };
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

  /** How many texts are looked at in each step. */
  private get some(): number {
    return (1 + Math.max(1, this.ends.size)) * this.how.numBeams;
  }

  private get forbidden(): readonly number[] {
    return this.going[0]!.ids.length ? this.never : [...this.never, ...this.neverFirst];
  }

  needs({ told, words }: Decoder): Needs {
    return needed(told, words, this.some + this.forbidden.length);
  }

  /** Texts with a token more, those of each row behind each other, and the places of the best. */
  private ranked(rows: readonly Row[]): { texts: Longer[]; sums: Float64Array; ends: number[]; best: number[] } {
    const texts = rows.map((row, i) => continued(row, this.forbidden, this.going[i]!.score));
    let count = 0;
    const ends = texts.map(({ sums }) => (count += sums.length));
    const sums = new Float64Array(count);
    for (const [i, { sums: own }] of texts.entries()) sums.set(own, ends[i]! - own.length);
    return { texts, sums, ends, best: leading(sums, this.some) };
  }

  /** Of rows with the largest logits alone, those that all are needed of. */
  short(rows: readonly Row[]): number[] {
    const { texts, ends, best } = this.ranked(rows);
    // What is not among a row's leading logits is behind the last of these: it matters where that is not the last of the best.
    const early = new Set(best.slice(0, this.some - 1));
    return rows.flatMap((row, i) =>
      row instanceof Leading && !row.whole && (!texts[i]!.sums.length || early.has(ends[i]! - 1)) ? [i] : [],
    );
  }

  /** Takes the next tokens' logits, a row for each text; returns which texts go on, by number, as they now stand. */
  advance(rows: readonly Row[]): number[] {
    const { numBeams, maxNewTokens, lengthPenalty } = this.how;
    const { texts, sums, ends, best } = this.ranked(rows);
    const origin: number[] = [];
    const going: Text[] = [];
    for (const [place, flat] of best.entries()) {
      const text = ends.findIndex((end) => flat < end);
      const token = texts[text]!.token(flat - ends[text]! + texts[text]!.sums.length);
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
      "the model reads one text at a time (its input_ids have a batch of 1): export it with a batch of any size, " +
        "or compile a .gguf file with `pyonnx-wasm compile --several`",
    );
  const search = new Search(ends, how, never, neverFirst);
  const joined = new Joined(decoder);
  let origin: number[] | undefined;
  /** Logits behind all texts; with an empty cache they are read anew. */
  const read = async (anew: boolean): Promise<Row[]> => {
    const { going } = search;
    const needs = search.needs(decoder);
    const whole = async (rows: Row[]): Promise<Row[]> => {
      for (let short; (short = search.short(rows)).length;)
        for (const i of short) rows[i] = await (rows[i] as Leading).every();
      return rows;
    };
    if (!anew) {
      await joined.select(origin!);
      return whole(
        await joined.step(
          going.map(({ ids }) => ids.at(-1)!),
          needs,
        ),
      );
    }
    const alone = decoder.another();
    let rows: Row[] = [];
    await alone.listen(source);
    for (let at = 0; at < prompt.length; at += chunk) rows = await alone.read(prompt.slice(at, at + chunk), 1, needs);
    if (!going[0]!.ids.length) rows = await whole(rows);
    joined.lay([await rowOf(alone)]);
    await joined.hear(alone);
    alone.forget(0);
    await joined.select(going.map(() => 0));
    for (let at = 0; at < going[0]!.ids.length; at++)
      rows = await joined.step(
        going.map(({ ids }) => ids[at]!),
        needs,
      );
    return whole(rows);
  };
  try {
    for (let failed = -1; ;) {
      signal?.throwIfAborted();
      const place = search.going[0]!.ids.length;
      let rows;
      try {
        rows = await read(!origin);
      } catch (error) {
        if (!reopen || failed === place) throw error;
        failed = place;
        await decoder.renew(reopen);
        rows = await read(true);
      }
      origin = search.advance(rows);
      if (search.done) break;
    }
  } finally {
    joined.lay([]);
  }
  return search.ended
    .slice(0, numReturn)
    .map(({ score, ids }) => ({ ids, text: decode(ids), score, ended: ends.has(ids.at(-1)!) }));
}
