/** Several texts at a time: those that wait for one more token each share a run, however long they are. */
import type { Tensor } from "../tensor.js";
import { Decoder, drop, type Reopen } from "./cache.js";
import type { Leading } from "./leading.js";
import {
  run,
  shared,
  type Ask,
  type Feed,
  type Needs,
  type Plan,
  type Progress,
  type Row as Logits,
  type Sent,
  together,
  type Token,
} from "./loop.js";

type Floats = Float32Array | Uint16Array;

/** Keys and values [heads, length, size] of one text, by the name of the model's input. */
export interface Row {
  readonly length: number;
  readonly values: ReadonlyMap<string, Floats>;
}

/** A text of the several. */
export interface Writing {
  readonly plan: Plan;
  readonly prompt: readonly number[];
  readonly progress: Progress;
  /** What it is about, where an encoder reads that. */
  readonly source: Tensor | undefined;
  /** Ends it with what went wrong. */
  fail(error: unknown): void;
}

/** Tokens that make a finished text's cache worth keeping. */
const LEAST_SHARED = 4;

/** Texts' own of values that hold several, whose last `length` places are each one's. */
async function parted(values: ReadonlyMap<string, Tensor>, lengths: readonly number[]): Promise<Row[]> {
  const rows = lengths.map((length) => ({ length, values: new Map<string, Floats>() }));
  for (const [name, value] of values) {
    const [, heads, most, size] = value.dims as [number, number, number, number];
    const from = (await value.getData(true)) as Floats;
    for (const [i, row] of rows.entries()) {
      const part = row.length * size;
      const own = new (from.constructor as Float32ArrayConstructor)(heads * part);
      for (let head = 0; head < heads; head++) {
        const end = (i * heads + head + 1) * most * size;
        own.set(from.subarray(end - part, end), head * part);
      }
      row.values.set(name, own);
    }
  }
  return rows;
}

/** The cache of one text that is alone. */
export async function rowOf(decoder: Decoder): Promise<Row> {
  const [row] = await parted(decoder.own, [decoder.ids.length]);
  return row!;
}

/** The caches of several texts in one, whose shorter ones begin with places that nothing looks at. */
export class Joined {
  lengths: number[] = [];
  private values = new Map<string, Tensor>();
  /** What an encoder told of the source of all, by the number of texts. */
  private told: ((count: number) => ReadonlyMap<string, Tensor>) | undefined;

  constructor(readonly decoder: Decoder) {}

  /** All of them are about what this one is about. */
  async hear({ crossed, heard, values, tensor }: Decoder): Promise<void> {
    if (!heard) return;
    const every: [string, Tensor, Float32Array][] = [];
    for (const [name, value] of [...heard.told, ...values])
      if (heard.told.has(name) || crossed.has(name)) every.push([name, value, (await value.getData()) as Float32Array]);
    let last = new Map<string, Tensor>();
    this.told = (count) => {
      if (last.get("encoder_hidden_states")?.dims[0] === count) return last;
      last = new Map();
      for (const [name, { type, dims }, from] of every) {
        const whole = new (from.constructor as Float32ArrayConstructor)(from.length * count);
        for (let i = 0; i < count; i++) whole.set(from, i * from.length);
        last.set(name, new tensor(type as "float32", whole, [count, ...dims.slice(1)]));
      }
      return last;
    };
  }

  /** Begins anew with these. */
  lay(rows: readonly Row[]): void {
    this.lengths = rows.map(({ length }) => length);
    const most = Math.max(0, ...this.lengths);
    const { crossed, empty, tensor } = this.decoder;
    const laid = new Map<string, Tensor>();
    for (const [name, { type, dims }] of rows.length ? empty : []) {
      if (crossed.has(name)) continue;
      const [, heads, , size] = dims as [number, number, number, number];
      const { constructor } = rows[0]!.values.get(name)!;
      const whole = new (constructor as Float32ArrayConstructor)(rows.length * heads * most * size);
      for (const [i, { length, values }] of rows.entries())
        for (let head = 0; head < heads; head++) {
          const part = values.get(name)!.subarray(head * length * size, (head + 1) * length * size);
          whole.set(part, ((i * heads + head + 1) * most - length) * size);
        }
      laid.set(name, new tensor(type as "float32", whole, [rows.length, heads, most, size]));
    }
    this.take(laid);
  }

  rows(): Promise<Row[]> {
    return parted(this.values, this.lengths);
  }

  /** Goes on with these rows, which may come twice. */
  async select(order: readonly number[]): Promise<void> {
    if (order.length === this.lengths.length && order.every((row, i) => row === i)) return;
    const rows = await this.rows();
    this.lay(order.map((row) => rows[row]!));
  }

  /** Reads one token of each text; gives their logits, or what is needed of them. */
  async step(tokens: readonly number[], needs: Needs = "logits"): Promise<Logits[]> {
    const most = Math.max(...this.lengths);
    const told = this.told?.(tokens.length);
    const { rows, values } = await this.decoder.execute({
      ids: tokens.map((token) => [token]),
      mask: this.lengths.map((length) => Array.from({ length: most + 1 }, (_, at) => Number(at >= most - length))),
      places: this.lengths.map((length) => [length]),
      values: told ? new Map([...this.values, ...told]) : this.values,
      want: 1,
      needs,
      told,
    });
    this.take(new Map(values));
    this.lengths = this.lengths.map((length) => length + 1);
    return rows;
  }

  private take(values: Map<string, Tensor>): void {
    this.values.forEach(drop);
    this.values = values;
  }
}

/** Whether texts of several lengths do not disturb each other in one run: tried out, as exports say nothing of it. */
export async function apart(decoder: Decoder): Promise<boolean> {
  const names = decoder.session.inputNames;
  if (
    decoder.first ||
    decoder.encoder ||
    !decoder.many ||
    !names.includes("attention_mask") ||
    !names.includes("position_ids")
  )
    return false;
  const rows: Row[] = [];
  const want: Float32Array[] = [];
  for (const ids of [
    [0, 1, 2, 1],
    [1, 2],
    [2, 0, 1],
  ]) {
    const alone = decoder.another();
    await alone.step(ids.slice(0, -1));
    rows.push(await rowOf(alone));
    want.push(...(await alone.step(ids.slice(-1))));
    alone.forget(0);
  }
  const joined = new Joined(decoder);
  try {
    joined.lay(rows);
    const found = (await joined.step([1, 2, 1])) as Float32Array[];
    const most = want.reduce((most, row) => row.reduce((a, x) => Math.max(a, Math.abs(x)), most), 0);
    return want.every((row, i) => row.every((x, k) => Math.abs(found[i]![k]! - x) <= 1e-3 * (most + Math.abs(x))));
  } catch {
    return false;
  } finally {
    joined.lay([]);
  }
}

/** One of the texts: what it waits for, and its own cache while it is not joined. */
class Member {
  readonly steps: Generator<Feed | Ask | Leading | Token, void, Sent>;
  feed: Feed | undefined;
  joined = false;
  /** Of the last rows the one whose logits were lost before they were read. */
  private lost: number | undefined;

  constructor(
    readonly text: Writing,
    readonly tell: (token: Token) => void,
    readonly decoder: Decoder,
  ) {
    this.steps = run(text.plan, text.progress, decoder.ids);
  }

  get ended(): boolean {
    return !this.feed || this.text.progress.reason !== undefined;
  }

  /** Whether all it waits for is one token behind those of its cache. */
  get single(): boolean {
    const held = this.decoder.ids.length;
    return this.feed?.ids.length === 1 && this.feed.keep === held && held > 0;
  }

  /** To its next wish. */
  async goOn(sent?: Sent): Promise<void> {
    const { plan, progress } = this.text;
    const { feed } = this;
    const rows = sent && "logits" in sent ? sent.logits : [];
    this.feed = undefined;
    if (this.lost !== undefined) sent = { logits: rows.slice(this.lost, this.lost + 1) };
    this.lost = undefined;
    try {
      while (progress.reason !== "cancelled") {
        const { done, value } = this.steps.next(sent);
        sent = undefined;
        if (done) return;
        if ("every" in value) {
          const every = await value.every().catch(() => undefined);
          if (every) sent = { logits: [every] };
          else {
            this.feed = { ...feed!, needs: "logits" };
            this.lost = rows.indexOf(value);
            return;
          }
        } else if ("ask" in value) sent = { guess: await plan.ahead!(value.window, progress.ids.length, value.ask) };
        else if ("id" in value) this.tell(value);
        else {
          this.feed = value;
          return;
        }
      }
    } catch (error) {
      this.text.fail(error);
    }
  }

  /** Begins its reading again, with an empty cache. */
  restart(model: Decoder): void {
    const { keep, ids } = this.feed!;
    this.feed = { ...this.feed!, keep: 0, ids: [...this.decoder.ids.slice(0, keep), ...ids] };
    this.decoder.replace(model);
    this.joined = false;
  }
}

/**
 * Texts that are written at the same time over one model.
 *
 * In each turn one of those that have more than a token to read reads a part, and all others get their next token in one run. Where
 * the model cannot keep texts of several lengths apart in a run, each has its own.
 */
export class Together {
  private waiting: { text: Writing; tell: (token: Token) => void }[] = [];
  private members: Member[] = [];
  private rows: Member[] = [];
  private kept: Decoder[] = []; // of texts that have ended, the newest last
  private readonly joined: Joined;
  private shares: boolean | undefined;
  private under: Promise<void> | undefined;
  private failedAt = -1;

  /** At most `atOnce` texts are written; more of them wait. */
  constructor(
    private readonly decoder: Decoder,
    readonly atOnce = 8,
    private readonly reopen?: Reopen,
  ) {
    if (!(atOnce >= 1)) throw new RangeError(`atOnce is ${atOnce}; it must be 1 or more`);
    this.joined = new Joined(decoder);
  }

  get busy(): boolean {
    return this.members.length + this.waiting.length > 0;
  }

  add(text: Writing, tell: (token: Token) => void): void {
    this.waiting.push({ text, tell });
  }

  /** One turn; the one under way where there is one. */
  turn(): Promise<void> {
    this.under ??= this.next().finally(() => (this.under = undefined));
    return this.under;
  }

  private async next(): Promise<void> {
    this.shares ??= await apart(this.decoder);
    await this.clear();
    await this.admit();
    const reads = this.members.filter((member) => !member.single);
    const goes = this.members.filter((member) => member.single);
    for (const member of [...reads.slice(0, 1), ...(this.shares ? [] : goes)]) await this.alone(member);
    if (this.shares && goes.length) await this.step(goes.filter((member) => member.single));
    await this.clear();
  }

  private async clear(): Promise<void> {
    for (const member of this.members.filter(({ ended }) => ended)) {
      await this.part(member);
      this.members.splice(this.members.indexOf(member), 1);
      if (member.decoder.encoder) member.decoder.forget(0);
      else this.kept.push(member.decoder);
      while (this.kept.length > this.atOnce) this.kept.shift()!.forget(0);
    }
  }

  private async admit(): Promise<void> {
    this.waiting = this.waiting.filter(({ text }) => text.progress.reason === undefined);
    while (this.waiting.length && this.members.length < this.atOnce) {
      const { text, tell } = this.waiting.shift()!;
      const member = new Member(text, tell, this.decoderFor(text.prompt));
      this.members.push(member);
      try {
        await member.decoder.listen(text.source);
        await member.goOn();
      } catch (error) {
        text.fail(error);
      }
    }
  }

  /** One that remembers what a text that has ended began with. */
  private decoderFor(prompt: readonly number[]): Decoder {
    const alike = this.kept.map(({ ids }) => shared(ids, prompt));
    const most = Math.max(...alike);
    if (most < LEAST_SHARED) return this.decoder.another();
    return this.kept.splice(alike.indexOf(most), 1)[0]!;
  }

  private async alone(member: Member): Promise<void> {
    const { feed, decoder } = member;
    if (!feed) return;
    await this.part(member);
    try {
      decoder.forget(feed.keep);
      // A text that begins again has more to read than a part.
      for (const { chunk } = member.text.plan; feed.ids.length > Math.max(chunk, feed.want);) {
        const first = Math.min(chunk, feed.ids.length - feed.want);
        await decoder.step(feed.ids.slice(0, first));
        feed.keep += first;
        feed.ids.splice(0, first);
      }
      await member.goOn({ logits: await decoder.read(feed.ids, feed.want, feed.needs) });
    } catch (error) {
      await this.failed(error, [member]);
    }
  }

  private async step(goes: readonly Member[]): Promise<void> {
    try {
      const fresh = goes.filter((member) => !member.joined);
      if (fresh.length) {
        const rows = await this.joined.rows();
        for (const { decoder } of fresh) rows.push(await rowOf(decoder));
        this.joined.lay(rows);
        for (const member of fresh) {
          member.joined = true;
          member.decoder.hold();
        }
        this.rows.push(...fresh);
      }
      const members = [...this.rows];
      const needs = together(new Set(members.map(({ feed }) => feed!.needs)));
      const rows = await this.joined.step(
        members.map(({ feed }) => feed!.ids[0]!),
        needs,
      );
      for (const [i, member] of members.entries()) {
        member.decoder.ids.push(...member.feed!.ids);
        await member.goOn({ logits: [rows[i]!] });
      }
      for (const member of members) if (!member.ended && !member.single) await this.part(member);
    } catch (error) {
      await this.failed(error, this.rows);
    }
  }

  /** Its cache is its own again. */
  private async part(member: Member): Promise<void> {
    const at = this.rows.indexOf(member);
    if (at < 0) return;
    const rows = await this.joined.rows();
    member.decoder.hold(rows[at]!.values);
    this.rows.splice(at, 1);
    rows.splice(at, 1);
    this.joined.lay(rows);
    member.joined = false;
  }

  /** Has all texts read again in a session anew, unless a run failed here before; else these end. */
  private async failed(error: unknown, members: readonly Member[]): Promise<void> {
    const ending = [...members];
    const place = this.members.reduce((sum, { text }) => sum + text.progress.ids.length, 0);
    const anew = this.failedAt !== place && (await this.renewed(ending).catch(() => false));
    this.failedAt = place;
    if (anew || ending.some(({ joined }) => joined)) {
      for (const member of this.rows) member.joined = false;
      this.rows = [];
      this.joined.lay([]);
    }
    if (anew) {
      this.kept = [];
      for (const member of this.members) if (!member.ended) member.restart(this.decoder);
    } else
      for (const { text, decoder } of ending) {
        text.fail(error);
        decoder.forget(0);
      }
  }

  private async renewed(members: readonly Member[]): Promise<boolean> {
    if (!this.reopen) return false;
    const { session } = this.decoder;
    if (members.every(({ decoder }) => decoder.session !== session)) return true; // somebody else has opened it
    await this.decoder.renew(this.reopen);
    return true;
  }
}
