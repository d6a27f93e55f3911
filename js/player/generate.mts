/** pyonnx-wasm/generate: text from decoders with a cache. The same tokens for a seed as `pyonnx_wasm.generate` in Python. */
import { InferenceSession, Tensor } from "./index.js";
import type { SessionOptions } from "./types.js";
import { draft, lookup } from "./generate/ahead.js";
import { beams, type Beams, type BeamSettings } from "./generate/beams.js";
import { Decoder, type Parts, type Reopen } from "./generate/cache.js";
import { found, jsonOf, said } from "./generate/exports.js";
import {
  fitted,
  Progress,
  run,
  type Feed,
  type Foretell,
  type Plan,
  type Reason,
  type Row,
  type Sent,
  type Statistics,
  type Token,
} from "./generate/loop.js";
import { checked, seedOf, type Sampling } from "./generate/sampling.js";
import { Together } from "./generate/several.js";

export type { Beams, BeamSettings } from "./generate/beams.js";
export { ContextError, type Reason, type Statistics, type Token } from "./generate/loop.js";
export { choose, probabilities, uniform, type Sampling } from "./generate/sampling.js";

/** What Hugging Face's tokenizers in JavaScript have. */
export interface Tokenizer {
  encode(text: string): { ids: number[] };
  decode(ids: number[], options?: { skip_special_tokens?: boolean }): string;
}

/** What a text goes on from; behind an encoder, what that reads: a text, token ids, or a tensor, as features of sound are. */
export type Prompt = string | readonly number[] | Tensor;

export interface GeneratorOptions {
  /** Undefined: prompts are token ids. */
  tokenizer?: Tokenizer;
  /** How many tokens the model reads; undefined: as it says itself, else any number. */
  context?: number;
  /** Tokens that end a text; undefined: as the model says. */
  ends?: readonly number[];
  /** The token that texts begin with; undefined: as the model says. */
  begin?: number;
  /** `"error"` (default): a longer text is a ContextError; `"slide"`: the model reads its last part, half a context long. */
  overflow?: "error" | "slide";
  /** The session's kind of tensor, where it comes from another copy of this package. */
  tensor?: typeof Tensor;
  /**
   * Opens the model anew when a run failed, as after the loss of a GPU's device: the text goes on from its tokens, as if nothing
   * had been. A second failure at the same place ends it. `create` has one of its own
   * for addresses.
   */
  reopen?: Reopen;
  /** Reads what the model writes of, once (T5, BART, Whisper): a session, or for `create` an address or bytes. */
  encoder?: Model | undefined;
  /** Reads the beginning of a text, of exports in two files: the one without a past. */
  first?: Model | undefined;
  /** What texts begin with behind an encoder: a start, a language, a task (`decoder_start_token_id`, `forced_decoder_ids`). */
  decoderInputIds?: readonly number[];
  /** Tokens that are not chosen. */
  suppressTokens?: readonly number[];
  /** Tokens that are not chosen as the first. */
  beginSuppressTokens?: readonly number[];
  /** Tokens of a prompt that are read at once. */
  chunk?: number;
  /**
   * Foretells tokens, which the model reads together; the text stays what it is: `"prompt"` looks for what followed the last words
   * before, a smaller model with the same tokens writes them. Undefined: one by one.
   */
  draft?: "prompt" | Generator;
  /** How many tokens are foretold at most. */
  ahead?: number;
}

/** What `Generator.create` takes beside them. */
export interface CreateOptions extends Omit<GeneratorOptions, "tokenizer"> {
  /** Or what makes one of `tokenizer.json` and `tokenizer_config.json` beside the model. */
  tokenizer?: Tokenizer | ((words: object, config: object) => Tokenizer) | undefined;
  /**
   * The address of a `config.json`, beside which `generation_config.json` and `genai_config.json` are read where they are, or an object
   * that says what they do. It fills what other options leave out: `context`, `ends`, `begin`, and behind an encoder `decoderInputIds`,
   * `suppressTokens` and `beginSuppressTokens`. Undefined: of a folder, the one in it; else none.
   */
  config?: string | URL | Readonly<Record<string, unknown>> | undefined;
}

type Model = InferenceSession | string | URL | ArrayBuffer;

export interface Settings extends Partial<Sampling> {
  maxNewTokens?: number;
  /** Texts before which it ends. */
  stop?: readonly string[];
  /** Tells the probabilities of so many tokens at each place. */
  likely?: number;
  signal?: AbortSignal;
  /** What the text begins with behind an encoder; undefined: as the Generator says. */
  decoderInputIds?: readonly number[];
}

/** What a compiled model says of how text is made with it. */
interface Hints {
  context_length?: number;
  bos?: number;
  eos?: number;
  eot?: number;
  add_bos_token?: boolean;
}

/**
 * Writes on from prompts, one text at a time. What a prompt has in common with the text before, prompt and answer, is not
 * read again.
 */
export class Generator {
  readonly decoder: Decoder;
  readonly context: number;
  private readonly ends: ReadonlySet<number>;
  private readonly begin: number | undefined;
  private running: Generation | undefined;
  private joint: Together | undefined;

  constructor(
    session: InferenceSession,
    readonly options: GeneratorOptions = {},
  ) {
    const hints = hintsOf(session);
    const { chunk = 128, ahead = 4, context = hints.context_length ?? Infinity } = options;
    for (const [name, number] of Object.entries({ chunk, ahead }))
      if (!(number >= 1)) throw new RangeError(`${name} is ${number}; it must be 1 or more`);
    const part = (model: Model | undefined, name: string): InferenceSession | undefined => {
      if (model === undefined || (typeof model === "object" && "run" in model)) return model;
      throw new TypeError(`${name} is no session: Generator.create opens addresses`);
    };
    const parts = { session, first: part(options.first, "first"), encoder: part(options.encoder, "encoder") };
    this.decoder = new Decoder(parts, options.tensor);
    this.context = context;
    this.ends = new Set(options.ends ?? [hints.eos, hints.eot].filter((id) => id !== undefined));
    this.begin = options.begin ?? (hints.add_bos_token ? hints.bos : undefined);
  }

  /**
   * Opens a model, by its address or bytes, or an export by the address of its folder, which ends with "/": its decoder, where it has
   * them the parts beside it, and what its configuration says.
   */
  static async create(
    model: string | URL | ArrayBuffer,
    { config, tokenizer, ...given }: CreateOptions = {},
    session: SessionOptions = {},
  ): Promise<Generator> {
    const address = typeof model === "string" || model instanceof URL ? String(model) : "";
    const beside = address.endsWith("/") ? await found(address) : undefined;
    const { first, encoder } = { ...beside, ...given };
    const about = config instanceof URL ? config.href : (config ?? beside?.home);
    const known = about === undefined ? {} : await said(about, encoder !== undefined);
    const options: GeneratorOptions = { ...known, ...given, first, encoder };
    if (typeof tokenizer === "function") {
      const home = (typeof about === "string" ? about : address).replace(/[^/]*$/, "");
      const words = await jsonOf(`${home}tokenizer.json`);
      if (!words) throw new Error(`there is no ${home}tokenizer.json, which the tokenizer is to be made of`);
      options.tokenizer = tokenizer(words, (await jsonOf(`${home}tokenizer_config.json`)) ?? {});
    } else if (tokenizer) options.tokenizer = tokenizer;
    const [provider] = session.executionProviders ?? [];
    const gpu = (typeof provider === "object" ? provider.name : provider) === "webgpu";
    const kept: SessionOptions = { preferredOutputLocation: gpu ? "gpu-buffer" : "cpu-pinned", ...session };
    const main = beside?.model ?? model;
    const open = async (given: Model | undefined): Promise<InferenceSession | undefined> =>
      given === undefined || (typeof given === "object" && "run" in given)
        ? given
        : InferenceSession.create(given as string, kept);
    const parts = async (): Promise<Parts> => {
      const [opened, begins, reads] = await Promise.all([main, first, encoder].map(open));
      return { session: opened!, first: begins, encoder: reads };
    };
    const { session: opened, ...others } = await parts();
    // Bytes are not kept for it.
    const again = [main, first, encoder].some((part) => part instanceof ArrayBuffer);
    return new Generator(opened, { ...(again ? {} : { reopen: parts }), ...options, ...others });
  }

  get session(): InferenceSession {
    return this.decoder.session;
  }

  encode(text: string): number[] {
    const { tokenizer } = this.options;
    if (!tokenizer) throw new Error("the model has no tokenizer: give one, or prompts as token ids");
    const { ids } = tokenizer.encode(text);
    return !this.decoder.encoder && this.begin !== undefined && ids[0] !== this.begin ? [this.begin, ...ids] : ids;
  }

  decode(ids: number[]): string {
    if (!ids.length) return "";
    return this.options.tokenizer?.decode(ids, { skip_special_tokens: true }) ?? "";
  }

  /** Begins a text; nothing is computed before it is asked for tokens. */
  generate(prompt: Prompt, settings: Settings = {}): Generation {
    const { maxNewTokens = 128, stop = [], likely = 0, signal, decoderInputIds, ...sampling } = settings;
    const how = checked(sampling);
    if (!(maxNewTokens >= 1)) throw new RangeError(`maxNewTokens is ${maxNewTokens}; it must be 1 or more`);
    const { ids, source } = this.read(prompt, decoderInputIds);
    const stays = source ? ids.length : Number(ids[0] === this.begin);
    const head = this.options.overflow === "slide" ? stays : undefined;
    fitted(ids, this.context, head);
    const seed = seedOf(how.seed);
    const plan: Plan = {
      ...this.manner,
      limit: maxNewTokens,
      sampling: how,
      seed,
      stop: stop.filter(Boolean),
      context: this.context,
      head,
      likely,
      told: this.decoder.told,
      words: this.decoder.words,
      ahead: this.foretold(how, seed),
    };
    const starts = (begun: Generation): void => {
      this.running?.cancel();
      this.running = begun;
    };
    return new Generation(this.decoder, plan, ids, source, signal, starts, this.options.reopen);
  }

  private get manner(): Pick<Plan, "ends" | "decode" | "chunk" | "never" | "neverFirst"> {
    const { chunk = 128, suppressTokens: never = [], beginSuppressTokens: neverFirst = [] } = this.options;
    return { ends: this.ends, decode: (part) => this.decode(part), chunk, never, neverFirst };
  }

  /** The tokens that a text begins with, and what it is about where an encoder reads that. */
  private read(prompt: Prompt, begins: readonly number[] | undefined): { ids: number[]; source: Tensor | undefined } {
    const { encoder } = this.decoder;
    if (!encoder) {
      if (begins) throw new Error("decoderInputIds are for models with an encoder: this one has none");
      return { ids: this.ids(prompt), source: undefined };
    }
    const starts = begins ?? this.options.decoderInputIds;
    if (!starts) throw new Error("nothing says what the decoder's texts begin with: give decoderInputIds");
    const input = encoder.inputMetadata.find(({ name }) => name !== "attention_mask")!;
    const tensor = this.options.tensor ?? Tensor;
    let source: Tensor;
    if (input.name === "input_ids") {
      const ids = this.ids(prompt);
      source = new tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
    } else {
      if (typeof prompt === "string" || !("dims" in prompt))
        throw new TypeError(`the encoder reads ${input.name}: give a tensor`);
      source = prompt.dims.length < input.shape.length ? (prompt.reshape([1, ...prompt.dims]) as Tensor) : prompt;
    }
    return { ids: this.ids(starts), source };
  }

  /**
   * Begins several texts, which are written at the same time, each the one that it would be alone; more than `atOnce` wait.
   *
   * `settings` are those of all, or of each.
   */
  generateMany(prompts: readonly Prompt[], settings: Settings | readonly Settings[] = {}, atOnce = 8): Generations {
    const of = (k: number): Settings => ("length" in settings ? settings[k] : settings) ?? {};
    const texts = prompts.map((prompt, k) => this.generate(prompt, of(k)));
    if (this.joint?.atOnce !== atOnce) this.joint = new Together(this.decoder, atOnce, this.options.reopen);
    return new Generations(texts, this.joint);
  }

  /**
   * The most likely texts that beam search finds, the best first (as transformers' `generate` with `num_beams`).
   *
   * Rejects with a RangeError where a setting is out of range, and with the signal's reason.
   */
  async search(prompt: Prompt, { decoderInputIds, ...settings }: BeamSettings = {}): Promise<Beams[]> {
    const { ids, source } = this.read(prompt, decoderInputIds);
    fitted(ids, this.context, undefined);
    const how = { ...settings, maxNewTokens: Math.min(settings.maxNewTokens ?? 128, this.context - ids.length) };
    return beams(this.decoder, ids, source, this.manner, how, this.options.reopen);
  }

  /** Token ids of a prompt, checked. */
  private ids(prompt: Prompt): number[] {
    if (typeof prompt !== "string" && "dims" in prompt) throw new TypeError("the model reads tokens, not a tensor");
    const ids = typeof prompt === "string" ? this.encode(prompt) : [...prompt];
    if (!ids.length) throw new RangeError("the prompt is empty: give at least one token");
    const { words } = this.decoder;
    const wrong = ids.find((id) => !(id >= 0 && id < words && Number.isInteger(id)));
    if (wrong !== undefined)
      throw new RangeError(`token ${wrong} is none of the model's${words < Infinity ? ` ${words}` : ""}`);
    return ids;
  }

  private foretold(how: Sampling, seed: bigint): Foretell | undefined {
    const { draft: writer, ahead = 4 } = this.options;
    if (!writer) return undefined;
    return writer === "prompt" ? lookup(ahead) : draft(writer.decoder, how, seed, ahead, writer.context);
  }

  async release(): Promise<void> {
    this.running?.cancel();
    const { session, first, encoder } = this.decoder;
    await Promise.all([session, first, encoder].map((part) => part?.release()));
  }
}

/** One text as it comes: `for await` gives its tokens. */
export class Generation implements AsyncIterable<Token> {
  /** What went wrong, where it is one of several. */
  error: unknown;
  /** @internal */
  readonly progress: Progress;
  private begun = false;
  private failedAt = -1;

  constructor(
    private readonly decoder: Decoder,
    readonly plan: Plan,
    readonly prompt: readonly number[],
    /** What an encoder reads. */
    readonly source: Tensor | undefined,
    signal: AbortSignal | undefined,
    private readonly starts: (begun: Generation) => void,
    private readonly reopen?: Reopen,
  ) {
    this.progress = new Progress([...prompt]);
    if (signal?.aborted) this.cancel();
    signal?.addEventListener("abort", () => this.cancel(), { once: true });
  }

  /** What was told so far; whole when it has ended. */
  get text(): string {
    return this.progress.text;
  }

  /** The tokens behind the prompt. */
  get ids(): number[] {
    return this.progress.ids.slice(this.prompt.length);
  }

  /** Why it ended; undefined before. */
  get reason(): Reason | undefined {
    return this.progress.reason;
  }

  get statistics(): Statistics {
    return this.progress.statistics;
  }

  /** Ends it behind the step that is under way. */
  cancel(): void {
    this.progress.reason ??= "cancelled";
  }

  /** Ends it with what went wrong. @internal */
  fail(error: unknown): void {
    if (this.reason === undefined) this.error = error;
    this.progress.reason ??= "error";
  }

  /** @internal */
  start(): void {
    if (this.begun) throw new Error("this text has begun already: generate() makes another");
    this.begun = true;
  }

  /** Has the model read tokens, in a session anew where a run fails. */
  private async read({ keep, ids, want, needs }: Feed): Promise<readonly Row[]> {
    const step = (): Promise<Row[]> => this.decoder.read(ids, want, needs);
    const known = this.decoder.ids.slice(0, keep);
    try {
      this.decoder.forget(keep);
      return await step();
    } catch (error) {
      const place = this.progress.ids.length;
      if (!this.reopen || this.failedAt === place || this.reason === "cancelled") throw error;
      this.failedAt = place;
      await this.decoder.renew(this.reopen);
      for (let at = 0; at < known.length; at += this.plan.chunk)
        await this.decoder.step(known.slice(at, at + this.plan.chunk));
      return step();
    }
  }

  private async listen(): Promise<void> {
    const { decoder, source, reopen } = this;
    try {
      await decoder.listen(source).catch(async (error: unknown) => {
        if (!reopen) throw error;
        await decoder.renew(reopen);
        await decoder.listen(source);
      });
    } catch (error) {
      this.fail(error);
      throw error;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Token, void, undefined> {
    this.start();
    this.starts(this);
    await idle.get(this.decoder);
    await this.listen();
    const steps = run(this.plan, this.progress, this.decoder.ids);
    let sent: Sent;
    let feed: Feed | undefined;
    let rows: readonly Row[] = [];
    const under = (step: Promise<unknown>): void => {
      idle.set(
        this.decoder,
        step.catch(() => undefined),
      );
    };
    while (this.reason !== "cancelled") {
      let item: Token;
      try {
        const next = steps.next(sent);
        sent = undefined;
        if (next.done) return;
        if ("ask" in next.value) {
          const { ask, window } = next.value;
          sent = { guess: await this.plan.ahead!(window, this.progress.ids.length, ask) };
          continue;
        }
        if ("keep" in next.value) {
          const step = this.read((feed = next.value));
          under(step);
          sent = { logits: (rows = await step) };
          continue;
        }
        if ("every" in next.value) {
          // What was to be read later is gone with a device: the run is made again.
          const place = rows.indexOf(next.value);
          const again = async (): Promise<Row> => (await this.read({ ...feed!, needs: "logits" }))[place]!;
          const step: Promise<Row> = next.value.every().catch(again);
          under(step);
          sent = { logits: [await step] };
          continue;
        }
        item = next.value;
      } catch (error) {
        this.decoder.forget(0);
        this.progress.reason = "error";
        throw error;
      }
      yield item;
    }
  }
}

/** Several texts as they come: `for await` gives each token with the number of its text. */
export class Generations implements AsyncIterable<{ index: number; token: Token }> {
  constructor(
    /** Each may be cancelled for itself. */
    readonly texts: readonly Generation[],
    private readonly together: Together,
  ) {}

  /** Ends all of them. */
  cancel(): void {
    for (const text of this.texts) text.cancel();
  }

  /** Throws what went wrong in one of them when all have ended. */
  async *[Symbol.asyncIterator](): AsyncGenerator<{ index: number; token: Token }, void, undefined> {
    const told: { index: number; token: Token }[] = [];
    for (const text of this.texts) text.start();
    for (const [index, text] of this.texts.entries()) this.together.add(text, (token) => told.push({ index, token }));
    try {
      while (this.texts.some(({ reason }) => reason === undefined)) {
        await this.together.turn();
        yield* told.splice(0);
      }
    } finally {
      this.cancel();
      await this.together.turn(); // lets go of those that have ended
    }
    const failed = this.texts.find(({ error }) => error !== undefined);
    if (failed) throw failed.error;
  }
}

/** The step that each decoder takes: a text that was cancelled may still be in one. */
const idle = new WeakMap<Decoder, Promise<unknown>>();

/** What the compiler kept of the file: the metadata entry "generation". */
function hintsOf({ metadata }: InferenceSession): Hints {
  const told = metadata?.custom["generation"] ?? "{}";
  try {
    return JSON.parse(told) as Hints;
  } catch {
    throw new Error(`the model's metadata "generation" is no JSON: ${told.slice(0, 60)}`);
  }
}
