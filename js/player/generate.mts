/** pyonnx-wasm/generate: text from decoders with a cache. The same tokens for a seed as `pyonnx_wasm.generate` in Python. */
import { InferenceSession } from "./index.js";
import type { SessionOptions } from "./types.js";
import { Decoder } from "./generate/cache.js";
import {
  fitted,
  Progress,
  run,
  type Feed,
  type Plan,
  type Reason,
  type Statistics,
  type Token,
} from "./generate/loop.js";
import { checked, seedOf, type Sampling } from "./generate/sampling.js";

export { ContextError, type Reason, type Statistics, type Token } from "./generate/loop.js";
export { choose, probabilities, uniform, type Sampling } from "./generate/sampling.js";

/** What Hugging Face's tokenizers in JavaScript have. */
export interface Tokenizer {
  encode(text: string): { ids: number[] };
  decode(ids: number[], options?: { skip_special_tokens?: boolean }): string;
}

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
  /** Tokens of a prompt that are read at once. */
  chunk?: number;
}

export interface Settings extends Partial<Sampling> {
  maxNewTokens?: number;
  /** Texts before which it ends. */
  stop?: readonly string[];
  /** Tells the probabilities of so many tokens at each place. */
  likely?: number;
  signal?: AbortSignal;
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

  constructor(
    session: InferenceSession,
    readonly options: GeneratorOptions = {},
    hints: Hints = {},
  ) {
    const { chunk = 128, context = hints.context_length ?? Infinity } = options;
    if (!(chunk >= 1)) throw new RangeError(`chunk is ${chunk}; it must be 1 or more`);
    this.decoder = new Decoder(session);
    this.context = context;
    this.ends = new Set(options.ends ?? [hints.eos, hints.eot].filter((id) => id !== undefined));
    this.begin = options.begin ?? (hints.add_bos_token ? hints.bos : undefined);
  }

  /** Opens a compiled model, by its address or bytes. */
  static async create(
    model: string | URL | ArrayBuffer,
    options: GeneratorOptions = {},
    session: SessionOptions = {},
  ): Promise<Generator> {
    const bytes = model instanceof ArrayBuffer ? model : await fetched(model);
    const hints = hintsOf(bytes);
    return new Generator(await InferenceSession.create(bytes, session), options, hints);
  }

  get session(): InferenceSession {
    return this.decoder.session;
  }

  encode(text: string): number[] {
    const { tokenizer } = this.options;
    if (!tokenizer) throw new Error("the model has no tokenizer: give one, or prompts as token ids");
    const { ids } = tokenizer.encode(text);
    return this.begin !== undefined && ids[0] !== this.begin ? [this.begin, ...ids] : ids;
  }

  decode(ids: number[]): string {
    if (!ids.length) return "";
    return this.options.tokenizer?.decode(ids, { skip_special_tokens: true }) ?? "";
  }

  /** Begins a text; nothing is computed before it is asked for tokens. */
  generate(prompt: string | readonly number[], settings: Settings = {}): Generation {
    const { maxNewTokens = 128, stop = [], likely = 0, signal, ...sampling } = settings;
    const how = checked(sampling);
    if (!(maxNewTokens >= 1)) throw new RangeError(`maxNewTokens is ${maxNewTokens}; it must be 1 or more`);
    const ids = typeof prompt === "string" ? this.encode(prompt) : [...prompt];
    if (!ids.length) throw new RangeError("the prompt is empty: give at least one token");
    const wrong = ids.find((id) => !(id >= 0 && Number.isInteger(id)));
    if (wrong !== undefined) throw new RangeError(`token ${wrong} is none of the model's`);
    const head = this.options.overflow === "slide" ? Number(ids[0] === this.begin) : undefined;
    fitted(ids, this.context, head);
    const plan: Plan = {
      limit: maxNewTokens,
      sampling: how,
      seed: seedOf(how.seed),
      ends: this.ends,
      stop: stop.filter(Boolean),
      decode: (part) => this.decode(part),
      context: this.context,
      head,
      chunk: this.options.chunk ?? 128,
      likely,
    };
    return new Generation(this.decoder, plan, ids, signal, (begun) => {
      this.running?.cancel();
      this.running = begun;
    });
  }

  async release(): Promise<void> {
    this.running?.cancel();
    await this.session.release();
  }
}

/** One text as it comes: `for await` gives its tokens. */
export class Generation implements AsyncIterable<Token> {
  private readonly progress: Progress;
  private begun = false;

  constructor(
    private readonly decoder: Decoder,
    readonly plan: Plan,
    readonly prompt: readonly number[],
    signal: AbortSignal | undefined,
    private readonly starts: (begun: Generation) => void,
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

  async *[Symbol.asyncIterator](): AsyncGenerator<Token, void, undefined> {
    if (this.begun) throw new Error("this text has begun already: generate() makes another");
    this.begun = true;
    this.starts(this);
    await idle.get(this.decoder);
    const steps = run(this.plan, this.progress, this.decoder.ids);
    let sent: ArrayLike<number> | undefined;
    while (this.reason !== "cancelled") {
      let item: Feed | Token;
      try {
        const next = steps.next(sent);
        sent = undefined;
        if (next.done) return;
        item = next.value;
        if ("keep" in item) {
          this.decoder.forget(item.keep);
          const step = this.decoder.step(item.ids);
          idle.set(
            this.decoder,
            step.catch(() => undefined),
          );
          sent = await step;
          continue;
        }
      } catch (error) {
        this.decoder.forget(0);
        this.progress.reason = "error";
        throw error;
      }
      yield item;
    }
  }
}

/** The step that each decoder takes: a text that was cancelled may still be in one. */
const idle = new WeakMap<Decoder, Promise<unknown>>();

async function fetched(address: string | URL): Promise<ArrayBuffer> {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${String(address)}: HTTP ${response.status}`);
  return response.arrayBuffer();
}

/** The metadata entry "generation" of a compiled model: in the JSON behind the header's length (PROGRAM.md, section 1). */
function hintsOf(model: ArrayBuffer): Hints {
  const length = Number(new DataView(model).getBigUint64(0, true));
  if (length > model.byteLength - 8) return {};
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(model, 8, length))) as {
    provenance?: { model?: { metadata?: { generation?: string } } };
  };
  return JSON.parse(header.provenance?.model?.metadata?.generation ?? "{}") as Hints;
}
