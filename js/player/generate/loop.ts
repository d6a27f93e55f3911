/** The order of things, without a model: what is fed next, which token follows, when it ends, which text may be shown. */
import { choose, leading, probabilities, wrong, type Choice, type Sampling } from "./sampling.js";

/** The text is longer than the model can read. */
export class ContextError extends RangeError {
  override readonly name = "ContextError";
}

/** One token as it came. */
export interface Token {
  id: number;
  /** What it adds to the text that may be shown; "" while a character or a stop string is incomplete. */
  text: string;
  /** That the model gave it, before sampling's settings. */
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
  /** Foretells tokens behind those that the model reads: given these, their number with what slid away, and how many at most. */
  ahead?: Foretell | undefined;
}

export type Foretell = (ids: readonly number[], position: number, most: number) => number[] | Promise<number[]>;

/** Tokens that the model shall read behind the first `keep` of those that its cache holds; asks for the last `want` ones' logits. */
export interface Feed {
  keep: number;
  ids: number[];
  want: number;
  /** The most likely tokens are enough. */
  brief: boolean;
}

/** Asks which tokens may follow, at most so many. */
export interface Ask {
  ask: number;
  window: readonly number[];
}

/** What a driver sends: the logits of the tokens wanted, row by row, or tokens foretold. */
export type Sent = { logits: readonly (ArrayLike<number> | Choice)[] } | { guess: number[] } | undefined;

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

/** Yields what to feed, and is sent the logits; yields tokens as they come. `cached` are those that the model's cache holds. */
export function* run(
  plan: Plan,
  progress: Progress,
  cached: readonly number[],
): Generator<Feed | Ask | Token, void, Sent> {
  const numbers = progress.statistics;
  const shown = new Shown(plan.decode, plan.stop);
  numbers.promptTokens = progress.ids.length;
  let window = fitted([...progress.ids], plan.context, plan.head);
  let keep = Math.min(shared(cached, window), window.length - 1);
  numbers.reusedTokens = keep;
  for (;;) {
    let begin = performance.now();
    const guess = yield* foretold(plan, numbers.newTokens, window);
    const rows = yield* read(window, guess, keep, plan);
    for (const [at, row] of rows.entries()) {
      const logits = "id" in row ? row : without(row, plan.never, numbers.newTokens ? [] : plan.neverFirst);
      const id = "id" in logits ? sure(logits) : choose(logits, plan.sampling, plan.seed, progress.ids.length, window);
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
      yield told(id, text, logits, plan.likely);
      if (last) return;
      begin = performance.now();
      const longer = fitted([...window, id], plan.context, plan.head);
      keep = longer.length > window.length ? longer.length - 1 : 0;
      window = longer;
      if (id !== guess[at] || !keep) break;
    }
  }
}

/** Logits by which these tokens are not chosen. */
function without(logits: ArrayLike<number>, ...tokens: (readonly number[])[]): ArrayLike<number> {
  if (tokens.every(({ length }) => !length)) return logits;
  const made = Float32Array.from(logits);
  for (const token of tokens.flat()) made[token] = -Infinity;
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
  { chunk, sampling: { temperature, repetitionPenalty }, likely, never, neverFirst }: Plan,
): Generator<Feed, readonly (ArrayLike<number> | Choice)[], Sent> {
  const brief = temperature === 0 && repetitionPenalty === 1 && !likely && !never.length && !neverFirst.length;
  for (; window.length - keep > chunk; keep += chunk)
    yield { keep, ids: window.slice(keep, keep + chunk), want: 1, brief };
  const sent = yield { keep, ids: [...window.slice(keep), ...guess], want: 1 + guess.length, brief };
  if (!sent || !("logits" in sent)) throw new Error("no logits came");
  return sent.logits;
}

/** The token that the model chose itself. */
function sure({ id, logit, sum }: Choice): number {
  if (!(logit > -Infinity) || Number.isNaN(sum)) throw wrong();
  return id;
}

function told(id: number, text: string, logits: ArrayLike<number> | Choice, count: number): Token {
  if ("id" in logits) {
    const probability = logits.logit === Infinity ? 1 : Math.exp(logits.logit - logits.sum);
    return { id, text, probability, likely: [] };
  }
  const shares = probabilities(logits);
  const likely = count ? leading(shares, count) : [];
  return { id, text, probability: shares[id]!, likely: likely.map((i) => ({ id: i, probability: shares[i]! })) };
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
