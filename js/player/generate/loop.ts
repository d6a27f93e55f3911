/** The order of things, without a model: what is fed next, which token follows, when it ends, which text may be shown. */
import { choose, leading, probabilities, type Sampling } from "./sampling.js";

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
}

/** Tokens that the model shall read behind the first `keep` of those that its cache holds; asks for the last one's logits. */
export interface Feed {
  keep: number;
  ids: number[];
}

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

function shared(a: readonly number[], b: readonly number[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/** Yields what to feed, and is sent the logits; yields tokens as they come. `cached` are those that the model's cache holds. */
export function* run(
  plan: Plan,
  progress: Progress,
  cached: readonly number[],
): Generator<Feed | Token, void, ArrayLike<number> | undefined> {
  const numbers = progress.statistics;
  const shown = new Shown(plan.decode, plan.stop);
  numbers.promptTokens = progress.ids.length;
  let window = fitted([...progress.ids], plan.context, plan.head);
  let keep = Math.min(shared(cached, window), window.length - 1);
  numbers.reusedTokens = keep;
  for (;;) {
    const begin = performance.now();
    let logits: ArrayLike<number> | undefined;
    while (keep < window.length) {
      const ids = window.slice(keep, keep + plan.chunk);
      logits = yield { keep, ids };
      keep += ids.length;
    }
    if (!logits) throw new Error("no logits came");
    const id = choose(logits, plan.sampling, plan.seed, progress.ids.length, window);
    const spent = performance.now() - begin;
    if (numbers.newTokens++) numbers.decodeMs += spent;
    else numbers.prefillMs = spent;
    if (plan.ends.has(id)) {
      progress.reason = "end";
      break;
    }
    progress.ids.push(id);
    let text = shown.add(id);
    const last = shown.stopped || numbers.newTokens >= plan.limit;
    if (last) {
      text += shown.rest();
      progress.reason = shown.stopped ? "stop" : "length";
    }
    progress.text += text;
    const shares = probabilities(logits);
    const likely = plan.likely ? leading(shares, plan.likely) : [];
    yield {
      id,
      text,
      probability: shares[id]!,
      likely: likely.map((i) => ({ id: i, probability: shares[i]! })),
    };
    if (last) return;
    window = fitted([...window, id], plan.context, plan.head);
    keep = window.length > keep ? window.length - 1 : 0;
  }
  progress.text += shown.rest();
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
