/** The order of things, without a model: what is fed next, which token follows, when it ends, which text may be shown. */
import { chooseOf, Leading } from "./leading.js";
import { choose, leading, sharesOf, type Sampling } from "./sampling.js";

/** The text is longer than the model can read. */
export class ContextError extends RangeError {
  override readonly name = "ContextError";
}

/** One token as it came. */
export interface Token {
  id: number;
  /** What it adds to the text that may be shown; "" while a character or a stop string is incomplete. */
  text: string;
  /** That the model gave it, before sampling's settings and whatever is never chosen. */
  probability: number;
  /** The most likely ones, as many as were asked for. */
  likely: { id: number; probability: number }[];
}

/** Of one generation: tokens and milliseconds of its two phases. */
export interface Statistics {
  promptTokens: number;
  /** Of the prompt, what the cache held already. */
  reusedTokens: number;
  prefillMs: number;
  newTokens: number;
  decodeMs: number;
  /** Tokens of the prompt per second, without those that the cache held. */
  readonly prefillRate: number;
  /** New tokens per second, the first aside: it comes with the prompt. */
  readonly decodeRate: number;
}

export type Reason = "end" | "stop" | "length" | "cancelled" | "error";

export interface Plan {
  limit: number;
  sampling: Sampling;
  seed: bigint;
  ends: ReadonlySet<number>;
  stop: readonly string[];
  decode: (ids: number[]) => string;
  /** How many tokens the model reads. */
  context: number;
  /** So many of the first tokens stay when the text slides; undefined: it does not slide. */
  head: number | undefined;
  chunk: number;
  likely: number;
  /** Tokens that are not chosen at all, and not as the first. */
  never: readonly number[];
  neverFirst: readonly number[];
  /** Of so many of its largest logits the model tells by itself; 0: it does not. */
  told: number;
  /** How many logits there are; Infinity: any number. */
  words: number;
  /** Foretells tokens behind those that the model reads: given these, their number with what slid away, and how many at most. */
  ahead?: Foretell | undefined;
}

export type Foretell = (ids: readonly number[], position: number, most: number) => number[] | Promise<number[]>;

/** Tokens that the model shall read behind the first `keep` of those that its cache holds; asks for the last `want` ones' logits. */
export interface Feed {
  keep: number;
  ids: number[];
  want: number;
  needs: Needs;
}

/** Of logits: all of them; what a model tells of them itself; that of the largest alone; what it tells, and all of them later perhaps. */
export type Needs = "logits" | "choice" | "first" | "both";

/** What meets the needs of several texts that are read at once. */
export function together(wishes: ReadonlySet<Needs>): Needs {
  const [one] = wishes;
  if (one && wishes.size === 1) return one;
  return [...wishes].every((wish) => wish === "first" || wish === "choice") ? "choice" : "both";
}

/** The logits of one token, or the largest of them. */
export type Row = ArrayLike<number> | Leading;

/** What of the logits of the next token is to be asked of a model that tells `told` of the largest of `words`. */
export function needs(how: Sampling, told: number, words: number, likely = 0, never = 0): Needs {
  const some = how.temperature === 0 ? 1 : how.topK;
  const sure = some > 0 && how.repetitionPenalty === 1;
  return needed(told, words, sure ? Math.max(some, likely) + never : Infinity, likely);
}

/** As `needs`, where so many of the largest are enough (Infinity: that hangs on what they are) and fewer than `least` never. */
export function needed(told: number, words: number, enough: number, least = 0): Needs {
  if (told >= words && enough !== 1) return "choice";
  if (told < Math.max(least, 1)) return "logits";
  if (enough === 1) return "first";
  return told >= enough ? "choice" : "both";
}

/** Asks which tokens may follow, at most so many. */
export interface Ask {
  ask: number;
  window: readonly number[];
}

/** What a driver sends: the logits of the tokens wanted, row by row, or tokens foretold. */
export type Sent = { logits: readonly Row[] } | { guess: number[] } | undefined;

export class Progress {
  text = "";
  reason: Reason | undefined;
  readonly statistics: Statistics = {
    promptTokens: 0,
    reusedTokens: 0,
    prefillMs: 0,
    newTokens: 0,
    decodeMs: 0,
    get prefillRate() {
      return this.prefillMs ? (1000 * (this.promptTokens - this.reusedTokens)) / this.prefillMs : 0;
    },
    get decodeRate() {
      return this.decodeMs ? (1000 * Math.max(this.newTokens - 1, 0)) / this.decodeMs : 0;
    },
  };

  constructor(readonly ids: number[]) {}
}

/** What the model reads of a text: all, or, where that is too much, the first tokens and the last ones, half of the context. */
export function fitted(ids: number[], context: number, head: number | undefined): number[] {
  if (ids.length < context) return ids;
  if (head === undefined)
    throw new ContextError(
      `the text has ${ids.length} tokens, the model reads ${context}: shorten it, or let it slide (overflow: "slide")`,
    );
  const rest = Math.max(Math.floor(context / 2) - head, 1);
  return [...ids.slice(0, head), ...ids.slice(ids.length - rest)];
}

export function shared(a: readonly number[], b: readonly number[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/**
 * Yields what to feed, and is sent the logits; yields the largest logits where all are needed, and is sent these; yields tokens as they
 * come. `cached` are those that the model's cache holds.
 */
export function* run(
  plan: Plan,
  progress: Progress,
  cached: readonly number[],
): Generator<Feed | Ask | Leading | Token, void, Sent> {
  const numbers = progress.statistics;
  const shown = new Shown(plan.decode, plan.stop);
  numbers.promptTokens = progress.ids.length;
  let window = fitted([...progress.ids], plan.context, plan.head);
  let keep = Math.min(shared(cached, window), window.length - 1);
  numbers.reusedTokens = keep;
  for (;;) {
    let begin = performance.now();
    const guess = yield* foretold(plan, numbers.newTokens, window);
    const never = numbers.newTokens ? plan.never : [...plan.never, ...plan.neverFirst];
    const rows = yield* read(window, guess, keep, plan, never.length);
    for (const [at, given] of rows.entries()) {
      const [id, row] = yield* chosen(given, plan, progress.ids.length, window, never);
      const spent = performance.now() - begin;
      if (numbers.newTokens++) numbers.decodeMs += spent;
      else numbers.prefillMs = spent;
      if (plan.ends.has(id)) {
        progress.reason = "end";
        progress.text += shown.rest();
        return;
      }
      progress.ids.push(id);
      let text = shown.add(id);
      const last = shown.stopped || numbers.newTokens >= plan.limit;
      if (last) {
        text += shown.rest();
        progress.reason = shown.stopped ? "stop" : "length";
      }
      progress.text += text;
      yield told(id, text, row, plan.likely, never);
      if (last) return;
      begin = performance.now();
      const longer = fitted([...window, id], plan.context, plan.head);
      keep = longer.length > window.length ? longer.length - 1 : 0;
      window = longer;
      if (id !== guess[at] || !keep) break;
    }
  }
}

/** The next token, and by what it was chosen: the largest logits where they are enough, else all of them. */
function* chosen(
  given: Row,
  { sampling, seed, likely }: Plan,
  position: number,
  window: readonly number[],
  never: readonly number[],
): Generator<Leading, [number, Row], Sent> {
  let row = given;
  if (row instanceof Leading) {
    const few = row.without(never);
    const id = chooseOf(few, sampling, seed, position, window);
    if (id !== undefined && (few.whole || few.allowed.length >= likely)) return [id, few];
    const sent = yield row;
    row = (sent as { logits: ArrayLike<number>[] }).logits[0]!;
  }
  return [choose(without(row, never), sampling, seed, position, window), row];
}

/** Logits by which these tokens are not chosen. */
function without(logits: ArrayLike<number>, tokens: readonly number[]): ArrayLike<number> {
  if (!tokens.length) return logits;
  const made = Float32Array.from(logits);
  for (const token of tokens) made[token] = -Infinity;
  return made;
}

/** Tokens that may follow, no more than there is room and need for. */
function* foretold(plan: Plan, made: number, window: readonly number[]): Generator<Ask, number[], Sent> {
  if (!plan.ahead || !made) return [];
  const most = Math.min(plan.limit - made - 1, plan.context - window.length - 1);
  if (most <= 0) return [];
  const sent = yield { ask: most, window };
  return sent && "guess" in sent ? sent.guess.slice(0, most) : [];
}

/** Has the model read a text behind its first tokens, in chunks, and what may follow it; the logits of its end and of that. */
function* read(
  window: readonly number[],
  guess: readonly number[],
  keep: number,
  { chunk, sampling, told, words, likely }: Plan,
  never: number,
): Generator<Feed, readonly Row[], Sent> {
  const what = needs(sampling, told, words, likely, never);
  for (; window.length - keep > chunk; keep += chunk)
    yield { keep, ids: window.slice(keep, keep + chunk), want: 1, needs: what };
  const sent = yield { keep, ids: [...window.slice(keep), ...guess], want: 1 + guess.length, needs: what };
  if (!sent || !("logits" in sent)) throw new Error("no logits came");
  return sent.logits;
}

function told(id: number, text: string, row: Row, count: number, never: readonly number[]): Token {
  if (row instanceof Leading) {
    const likely = count ? row.allowed.slice(0, count) : [];
    return {
      id,
      text,
      probability: row.share(id),
      likely: likely.map(([i]) => ({ id: i, probability: row.share(i) })),
    };
  }
  const share = sharesOf(row);
  const likely = count ? leading(without(row, never), count) : [];
  const of = (i: number): number => share(row[i]!);
  return { id, text, probability: of(id), likely: likely.map((i) => ({ id: i, probability: of(i) })) };
}

/** Text that comes token by token: characters only when they are whole, nothing that a stop string may begin with. */
export class Shown {
  stopped = false;
  private readonly ids: number[] = [];
  private settled = 0;
  private text = "";
  private told = 0;

  constructor(
    private readonly decode: (ids: number[]) => string,
    private readonly stop: readonly string[],
  ) {}

  /** The text that may be shown now and could not before. */
  add(id: number): string {
    this.ids.push(id);
    const fresh = this.fresh();
    if (!fresh.endsWith("\ufffd") || this.ids.length - this.settled > 8) this.settle(fresh);
    for (const stop of this.stop) {
      const at = this.text.indexOf(stop, Math.max(this.told - stop.length, 0));
      if (at >= 0) {
        this.text = this.text.slice(0, at);
        this.stopped = true;
      }
    }
    const begun = (stop: string): number => {
      for (let k = stop.length - 1; k > 0; k--) if (this.text.endsWith(stop.slice(0, k))) return k;
      return 0;
    };
    return this.tell(this.text.length - (this.stopped ? 0 : Math.max(0, ...this.stop.map(begun))));
  }

  /** What was held back. */
  rest(): string {
    if (this.settled < this.ids.length && !this.stopped) this.settle(this.fresh());
    return this.tell(this.text.length);
  }

  private fresh(): string {
    const start = Math.max(this.settled - 4, 0); // some decoders treat the first token of all in its own way
    const before = this.decode(this.ids.slice(start, this.settled));
    return this.decode(this.ids.slice(start)).slice(before.length);
  }

  private settle(fresh: string): void {
    this.text += fresh;
    this.settled = this.ids.length;
  }

  private tell(end: number): string {
    const fresh = this.text.slice(this.told, Math.max(end, this.told));
    this.told = Math.max(end, this.told);
    return fresh;
  }
}
