/** Feeds decoders, and keeps what they remember between the tokens: keys and values of every layer. */
import type { Feeds, InferenceSession } from "../session.js";
import type { Tensor as TensorType } from "../tensor.js";
import { Tensor as OwnTensor } from "../index.js";
import { Leading } from "./leading.js";
import type { Needs, Row } from "./loop.js";

const PAST = /^past(?:_key_values)?\.(\d+\.(?:(encoder)\.|decoder\.)?(?:key|value))$/;
const KNOWN = new Set(["input_ids", "attention_mask", "position_ids", "use_cache_branch", "num_logits_to_keep"]);
const CROSSED = new Set([
  "encoder_hidden_states",
  "encoder_attention_mask",
  "decoder_attention_mask",
  "cache_position",
]);

/** A decoder with what belongs to it. */
export interface Parts {
  session: InferenceSession;
  /** Reads the beginning of a text where `session` does not: exports in two files. */
  first?: InferenceSession | undefined;
  /** Reads what a text is about. */
  encoder?: InferenceSession | undefined;
}
/** Opens a model anew. */
export type Reopen = () => Promise<InferenceSession | Parts>;

/** A run's tokens, row by row of one length, with what is seen of the past and of them, and their places. */
export interface Request {
  readonly ids: readonly (readonly number[])[];
  readonly mask: readonly (readonly number[])[];
  readonly places: readonly (readonly number[])[];
  /** The past, by the input's name. */
  readonly values: ReadonlyMap<string, TensorType>;
  /** Of so many last tokens of each row the logits are given. */
  readonly want: number;
  readonly needs?: Needs;
  /** What an encoder told, by the input's name. */
  readonly told?: ReadonlyMap<string, TensorType> | undefined;
}

/** Gives an engine its memory back. */
export function drop(value: TensorType): void {
  try {
    value.dispose();
  } catch {
    // The engine is lost, and its memory with it.
  }
}

/** A decoder and its cache, one text at a time. */
export class Decoder {
  /** Tokens that the cache holds. */
  ids: number[] = [];
  /** Of these the values hold keys; while a run goes back, they hold more. */
  private held = 0;
  /** Tokens that the model knows; Infinity where it does not say. */
  readonly words: number;
  /** Of so many of its largest logits the model tells by itself; 0: it does not. */
  readonly told: number;
  /** It tells of the largest alone, too. */
  private readonly single: boolean;
  /** Of every layer's keys and values without a token, by the name of the model's input. */
  readonly empty = new Map<string, { type: "float32" | "float16"; dims: number[] }>();
  private readonly source = new Map<string, string>(); // an input's name by that of the output that follows it
  /** Names of keys and values of what an encoder has read, which come with a text's first tokens and stay. */
  readonly crossed = new Set<string>();
  /** What the encoder has read, and what it tells. */
  heard: { source: TensorType; told: Map<string, TensorType> } | undefined;
  session: InferenceSession;
  first: InferenceSession | undefined;
  encoder: InferenceSession | undefined;
  values = new Map<string, TensorType>();
  /** All logits of the last run, which may be asked for until the next. */
  private unread: TensorType | undefined;
  private types = new Map<string, string>();

  constructor(
    { session, first, encoder }: Parts,
    readonly tensor: typeof OwnTensor = OwnTensor,
  ) {
    this.session = session;
    this.first = first;
    this.encoder = encoder;
    for (const { name, type } of first?.inputMetadata ?? []) this.types.set(name, type);
    for (const given of session.inputMetadata) {
      if (!given.isTensor) throw new Error(`the model wants ${given.name}, which is no tensor`);
      this.types.set(given.name, given.type);
      const place = PAST.exec(given.name);
      if (!place) {
        if (!KNOWN.has(given.name) && !(CROSSED.has(given.name) && encoder))
          throw new Error(`the model wants the input ${given.name}, which decoders do not`);
        continue;
      }
      const follower = [...session.outputNames, ...(first?.outputNames ?? [])].find((name) =>
        name.endsWith(`.${place[1]}`),
      );
      if (place[2]) this.crossed.add(given.name);
      const [, heads, , size] = given.shape;
      if (!follower || typeof heads !== "number" || typeof size !== "number")
        throw new Error(`the cache ${given.name} is of no kind that is known, or no output continues it`);
      this.empty.set(given.name, { type: given.type as "float32" | "float16", dims: [1, heads, 0, size] });
      this.source.set(follower, given.name);
    }
    if (!this.empty.size)
      throw new Error("the model has no cache of keys and values; export it with one (text-generation-with-past)");
    const logits = session.outputMetadata.find(({ name }) => name === "logits");
    if (!logits?.isTensor) throw new Error("the model gives no output logits");
    const words = logits.shape.at(-1);
    this.words = typeof words === "number" ? words : Infinity;
    this.told = Math.min(toldBy(session), toldBy(first ?? session));
    this.single = [session, first ?? session].every(({ outputNames }) => outputNames.includes("first"));
    this.forget(0);
  }

  /** Goes back to the first tokens that it has read. */
  forget(keep: number): void {
    if (keep >= this.ids.length && keep > 0) return;
    this.ids.length = keep;
    this.held = Math.min(this.held, keep);
    if (keep === 0) this.clear();
  }

  /** Goes on with other sessions of the same model, with an empty cache. */
  replace(opened: InferenceSession | Parts): void {
    const { session, first, encoder } = "session" in opened ? opened : { ...this, session: opened };
    Object.assign(this, { session, first, encoder });
    this.ids = [];
    this.clear();
  }

  private clear(): void {
    this.held = 0;
    this.letGo();
    for (const [name, { type, dims }] of this.empty)
      this.put(name, new this.tensor(type, type === "float32" ? new Float32Array() : new Uint16Array(), dims));
  }

  /** Whether a run may read several texts, by what the model says of its inputs. */
  get many(): boolean {
    return typeof this.session.inputMetadata.find(({ name }) => name === "input_ids")?.shape[0] !== "number";
  }

  /** Opens the model anew, and lets go of what is lost. */
  async renew(reopen: Reopen): Promise<void> {
    const before = [this.session, this.first, this.encoder];
    this.replace(await reopen());
    const after = [this.session, this.first, this.encoder];
    for (const session of before) if (!after.includes(session)) void session?.release().catch(() => {});
  }

  /** One of the same model, with a cache of its own. */
  another(): Decoder {
    const made = new Decoder(this, this.tensor);
    made.heard = this.heard;
    return made;
  }

  /** Has the encoder read what the next text is about, unless it is what it has read last. */
  async listen(source: TensorType | undefined): Promise<void> {
    if (!source || !this.encoder || (this.heard && same(this.heard.source, source))) return;
    this.forget(0);
    const ones = (name: string, length: number): TensorType =>
      this.whole(name, new Array<number>(length).fill(1), [1, length]);
    const given = (name: string): TensorType => (name === "attention_mask" ? ones("", source.dims.at(-1)!) : source);
    const feeds = Object.fromEntries(this.encoder.inputNames.map((name) => [name, given(name)]));
    const hidden = (await this.encoder.run(feeds, ["last_hidden_state"]))["last_hidden_state"] as TensorType;
    await hidden.getData(true); // it outlives a device
    const mask = ones("encoder_attention_mask", hidden.dims[1]!);
    const told = new Map([["encoder_hidden_states", hidden]]);
    this.heard = { source, told: told.set("encoder_attention_mask", mask) };
  }

  /** Of one text, keys and values of its own tokens. */
  get own(): Map<string, TensorType> {
    return new Map([...this.values].filter(([name]) => !this.crossed.has(name)));
  }

  /** Takes keys and values [heads, length, size] of its tokens for its own; without, it has none until it takes some. */
  hold(rows: ReadonlyMap<string, Float32Array | Uint16Array> = new Map()): void {
    this.held = this.ids.length;
    this.letGo();
    for (const [name, { type, dims }] of this.empty) {
      const [, heads, , size] = dims as [number, number, number, number];
      const row = rows.get(name);
      if (row) this.put(name, new this.tensor(type as "float32", row as Float32Array, [1, heads, this.held, size]));
      else this.values.get(name)?.dispose();
    }
  }

  /** A value takes the place of another, whose memory an engine may have back. */
  put(name: string, value: TensorType): void {
    const before = this.values.get(name);
    this.values.set(name, value);
    if (before && before !== value) drop(before);
  }

  /** Reads tokens; gives the logits of the last `want` ones, row by row. */
  async step(ids: readonly number[], want = 1): Promise<Float32Array[]> {
    return (await this.read(ids, want)) as Float32Array[];
  }

  /** As `step`, but where less is needed, what the model tells of the logits itself. */
  async read(ids: readonly number[], want = 1, needs: Needs = "logits"): Promise<Row[]> {
    const past = this.ids.length;
    if (this.encoder && past && ids.length > 1) {
      // Decoders behind an encoder are exported for one token behind others, and each run's logits go with the next.
      const rows: Row[] = [];
      for (const id of ids) rows.push(...(await this.read([id], 1, needs === "both" ? "logits" : needs)));
      return rows.slice(-want);
    }
    for (const [name, value] of this.own)
      if (value.dims[2] !== this.held) this.put(name, await this.shortened(value, this.held));
    const mask = [new Array<number>(past + ids.length).fill(1)];
    const places = [ids.map((_, i) => past + i)];
    const { rows, values } = await this.execute({ ids: [ids], mask, places, values: this.values, want, needs });
    for (const [name, value] of values) this.put(name, value);
    this.ids.push(...ids);
    this.held = this.ids.length;
    return rows;
  }

  private letGo(): void {
    if (this.unread) drop(this.unread);
    this.unread = undefined;
  }

  /** One run: logits, row by row, and what follows the past. Where what the model tells of them may not do, the next run ends them. */
  async execute({ ids, mask, places, values, want, needs = "logits", told = this.heard?.told }: Request): Promise<{
    rows: Row[];
    values: [string, TensorType][];
  }> {
    const whole = (name: string, rows: readonly (readonly number[])[]): TensorType =>
      this.whole(name, rows.flat(), [rows.length, rows[0]!.length]);
    const given: Record<string, () => TensorType> = {
      input_ids: () => whole("input_ids", ids),
      attention_mask: () => whole("attention_mask", mask),
      decoder_attention_mask: () => whole("decoder_attention_mask", mask),
      position_ids: () => whole("position_ids", places),
      cache_position: () => this.whole("cache_position", places[0]!, [places[0]!.length]),
      use_cache_branch: () => new this.tensor("bool", [mask[0]!.length > ids[0]!.length], [1]),
      num_logits_to_keep: () => this.whole("num_logits_to_keep", [want], []),
    };
    const begins = mask[0]!.length === ids[0]!.length;
    const session = (begins && this.first) || this.session;
    const feeds: Record<string, TensorType> = {};
    for (const name of session.inputNames) feeds[name] = values.get(name) ?? told?.get(name) ?? given[name]!();
    const follow = [...this.source].filter(([, input]) => begins || !this.crossed.has(input));
    const least = needs === "first" && this.single ? "first" : "choice";
    const names = this.told && needs !== "logits" ? [least, ...(needs === "both" ? ["logits"] : [])] : ["logits"];
    const results = await session.run(feeds as Feeds, [...names, ...follow.map(([output]) => output)]);
    this.letGo();
    const made = results[names[0]!] as TensorType;
    const length = made.dims[1]!;
    if (length < want)
      throw new Error("the model gives the logits of the last token alone; nothing can be foretold for it (draft)");
    const parts = async (value: TensorType): Promise<Float32Array[]> => {
      const all = (await value.getData()) as Float32Array;
      const words = value.dims[2]!;
      return ids.flatMap((_, row) =>
        Array.from({ length: want }, (_, i) => {
          const at = ((row + 1) * length - want + i) * words;
          return all.slice(at, at + words);
        }),
      );
    };
    let rows: Row[] = await parts(made);
    made.dispose();
    if (names[0] !== "logits") {
      const all = (this.unread = results["logits"] as TensorType | undefined);
      let every: Promise<Float32Array[]> | undefined;
      const one = async (row: number): Promise<Float32Array> => (await (every ??= parts(all!)))[row]!;
      rows = (rows as Float32Array[]).map((told, row) => Leading.of(told, this.words, () => one(row)));
    }
    return { rows, values: follow.map(([output, input]) => [input, results[output] as TensorType]) };
  }

  private whole(name: string, values: readonly number[], dims: number[]): TensorType {
    if (this.types.get(name) === "int32") return new this.tensor("int32", Int32Array.from(values), dims);
    // In two words each: to make a BigInt of every place of a long text takes longer than a token's smaller products.
    const words = new Int32Array(2 * values.length);
    for (let i = 0; i < values.length; i++) {
      const value = (words[2 * i] = values[i]!);
      words[2 * i + 1] = value >> 31;
      if ((value | 0) !== value) return new this.tensor("int64", BigInt64Array.from(values, BigInt), dims);
    }
    return new this.tensor("int64", new BigInt64Array(words.buffer), dims);
  }

  /** The first `length` places along axis 2. */
  private async shortened(value: TensorType, length: number): Promise<TensorType> {
    const [batch, heads, have, size] = value.dims as [number, number, number, number];
    const from = (await value.getData(true)) as Float32Array | Uint16Array;
    const into = new (from.constructor as Float32ArrayConstructor)(batch * heads * length * size);
    for (let row = 0; row < batch * heads; row++)
      into.set(from.subarray(row * have * size, (row * have + length) * size), row * length * size);
    return new this.tensor(value.type as "float32", into, [batch, heads, length, size]);
  }
}

/** Of how many of its largest logits a model tells. */
function toldBy({ outputMetadata }: InferenceSession): number {
  const size = outputMetadata
    .flatMap((output) => (output.name === "choice" && output.isTensor ? output.shape : []))
    .at(-1);
  return typeof size === "number" ? size >> 1 : 0;
}

function same(a: TensorType, b: TensorType): boolean {
  if (a === b) return true;
  const [x, y] = [a.data as Float32Array, b.data as Float32Array];
  return a.dims.join() === b.dims.join() && x.length === y.length && x.every((value, i) => value === y[i]);
}
