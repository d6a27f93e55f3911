/** A compiled model in core memory: streamed in, initialised, run step by step of its script. */
import type { Core } from "./core.js";
import type { Type } from "./dtypes.js";
import {
  headerLength,
  homeOf,
  parseHeader,
  PREFIX_BYTES,
  type Header,
  type ProgramInfo,
  type WeightInfo,
} from "./format.js";
import { Program, Staging, type Slot, type StepTime } from "./program.js";
import { Reader, urlSource, type Source } from "./source.js";

export interface Progress {
  readonly phase: "model" | "init" | "ready";
  /** Bytes read so far; never falls. */
  readonly loaded: number;
  /** Bytes of the model with all its files, as its header says; 0 until that is read. */
  readonly total: number;
}

export interface LoadOptions {
  /** Opens a file that a thin model refers to, if the caller gave it. */
  readonly external: (file: string) => Promise<Source> | undefined;
  readonly onProgress: (progress: Progress) => void;
}

/** One input, contiguous and row-major, in the order of the signature. */
export interface Feed {
  readonly data: Uint8Array;
  readonly type: Type;
  readonly dims: readonly number[];
}

export interface Output {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly type: Type;
  readonly dims: readonly number[];
}

interface Range {
  readonly start: number;
  readonly end: number;
  readonly address: number;
}

interface Step {
  readonly program: Program;
  readonly inputs: readonly number[];
}

const HEAD_BYTES = 64;
const PROGRESS_BYTES = 2 ** 18;

export class Model {
  readonly #inputs: Staging[];
  readonly #weights: number[];
  readonly #owned = new Set<number>();
  readonly #steps: Step[] = [];

  private constructor(
    readonly core: Core,
    readonly header: Header,
  ) {
    this.#inputs = header.inputs.map(() => new Staging(core));
    this.#weights = header.weights.map(() => 0);
  }

  /** Reads a model from `source`. On failure everything it took is given back. */
  static async load(core: Core, source: Source, options: LoadOptions): Promise<Model> {
    const reader = new Reader(source);
    let model: Model | undefined;
    try {
      const length = headerLength(await reader.peek(HEAD_BYTES));
      await reader.take(PREFIX_BYTES);
      model = new Model(core, parseHeader(await reader.take(length)));
      await model.#load(reader, options);
      return model;
    } catch (error) {
      model?.free();
      if (error instanceof Error) error.message = `${source.name}: ${error.message}`;
      throw error;
    } finally {
      source.cancel();
    }
  }

  async #load(reader: Reader, options: LoadOptions): Promise<void> {
    const { header } = this;
    const files = this.#planFiles();
    const dataStart = reader.position;
    const dataEnd = dataStart + header.dataBytes;
    const total = files.reduce((sum, { end }) => sum + end, dataEnd);
    const progress = progressOf(total, options.onProgress);
    progress("model", reader.position);

    this.#allocate();
    const code = header.programs.map(({ name, bytes }) => this.#own(bytes, `program "${name}"`));
    await this.#stream(
      reader,
      [...this.#dataRanges(dataStart), ...codeRanges(header.programs, code, dataStart)],
      dataEnd,
      (at) => progress("model", at),
    );
    let before = dataEnd;
    for (const { name, ranges, end } of files) {
      const source = await (options.external(name) ?? externalSource(name, reader.source));
      try {
        await this.#stream(new Reader(source), this.#fileRanges(ranges), end, (at) => progress("model", before + at));
      } finally {
        source.cancel();
      }
      before += end;
    }
    progress("init", total);
    this.#runInit(code);
    for (const { program, inputs, outputs } of header.script)
      this.#steps.push({ program: this.#program(program, code, inputs.length, outputs.length), inputs });
    for (const address of code) this.#disown(address);
    this.#dropUnusedWeights();
    progress("ready", total);
  }

  #own(bytes: number, what: string): number {
    const address = this.core.alloc(bytes, what);
    this.#owned.add(address);
    return address;
  }

  #disown(address: number): void {
    if (this.#owned.delete(address)) this.core.free(address);
  }

  #allocate(): void {
    const { weights } = this.header;
    for (const [k, { name, bytes, source }] of weights.entries())
      if (source.kind !== "over") this.#weights[k] = this.#own(bytes, `weight "${name}"`);
    for (const k of weights.keys()) this.#weights[k] = this.#weights[homeOf(weights, k)] as number;
  }

  /** The files of a thin model that weights come from, and how far each is read. */
  #planFiles(): { name: string; ranges: number[]; end: number }[] {
    const files = this.header.files.map((name) => ({ name, ranges: [] as number[], end: 0 }));
    for (const [k, { source, bytes }] of this.header.weights.entries()) {
      const file = source.kind === "file" ? files[source.file] : undefined;
      if (!file || source.kind !== "file") continue;
      file.ranges.push(k);
      file.end = Math.max(file.end, source.start + bytes);
    }
    return files.filter(({ ranges }) => ranges.length > 0);
  }

  #dataRanges(dataStart: number): Range[] {
    return this.header.weights.flatMap(({ source, bytes }, k) =>
      source.kind === "data" ? [range(dataStart + source.start, bytes, this.#weights[k] as number)] : [],
    );
  }

  #fileRanges(weights: readonly number[]): Range[] {
    return weights.map((k) => {
      const { source, bytes } = this.header.weights[k] as WeightInfo;
      return range(source.kind === "file" ? source.start : 0, bytes, this.#weights[k] as number);
    });
  }

  /** Copies every chunk of the stream straight to where its bytes belong in core memory. */
  async #stream(reader: Reader, ranges: Range[], end: number, onProgress: (at: number) => void): Promise<void> {
    ranges.sort((a, b) => a.start - b.start);
    let first = 0;
    await reader.pump(end, (chunk, at) => {
      const chunkEnd = at + chunk.length;
      while (first < ranges.length && (ranges[first] as Range).end <= at) first++;
      for (let i = first; i < ranges.length; i++) {
        const { start, end, address } = ranges[i] as Range;
        if (start >= chunkEnd) break;
        const [from, to] = [Math.max(start, at), Math.min(end, chunkEnd)];
        if (from < to) this.core.bytes.set(chunk.subarray(from - at, to - at), address + from - start);
      }
      onProgress(chunkEnd);
    });
  }

  #program(index: number, code: readonly number[], inputs: number, outputs: number): Program {
    const info = this.header.programs[index] as ProgramInfo;
    // Negative counts tell the core that no step may write: only init does.
    const sign = index === this.header.init ? 1 : -1;
    const bytes = this.header.weights.map((w) => sign * w.bytes);
    const program = new Program(this.core, info, code[index] as number, { addresses: this.#weights, bytes });
    if (program.inputs.length === inputs && program.outputs.length === outputs) return program;
    const has = `${program.inputs.length} inputs and ${program.outputs.length} outputs`;
    program.free();
    throw new Error(`program "${info.name}" has ${has}, its use has ${inputs} and ${outputs}`);
  }

  #runInit(code: readonly number[]): void {
    if (this.header.init === null) return;
    const init = this.#program(this.header.init, code, 0, 0);
    try {
      init.run([]);
    } finally {
      init.free();
    }
  }

  /** Gives back weights that only the init Program read. */
  #dropUnusedWeights(): void {
    const used = new Set(this.#steps.flatMap(({ program }) => [...program.uses].map((k) => this.#weights[k])));
    for (const address of new Set(this.#weights)) if (!used.has(address)) this.#disown(address);
  }

  /** Runs the model; `wanted` are indexes of outputs. Feeds have been checked against the signature. */
  run(feeds: readonly Feed[], wanted: readonly number[]): Output[] {
    return this.#run(feeds, wanted, (program, inputs) => program.run(inputs));
  }

  /** Runs the model step by step and returns what each step took. */
  profile(feeds: readonly Feed[]): StepTime[] {
    const times: StepTime[] = [];
    this.#run(feeds, [], (program, inputs) => program.profile(inputs, times));
    return times;
  }

  #run(
    feeds: readonly Feed[],
    wanted: readonly number[],
    execute: (program: Program, inputs: Slot[]) => Slot[],
  ): Output[] {
    const slots = feeds.map(({ data, type, dims }, i): Slot => {
      const bytes = data.byteLength;
      const address = (this.#inputs[i] as Staging).reserve(
        bytes,
        `input "${this.header.inputs[i]?.name}" of [${dims}]`,
      );
      return { address, bytes, type, dims };
    });
    slots.forEach(({ address }, i) => this.core.bytes.set((feeds[i] as Feed).data, address));
    for (const { program, inputs } of this.#steps)
      slots.push(
        ...execute(
          program,
          inputs.map((slot) => slots[slot] as Slot),
        ),
      );
    return wanted.map((index) => {
      const { address, bytes, type, dims } = slots[this.header.results[index] as number] as Slot;
      return { data: this.core.copy(address, bytes), type, dims };
    });
  }

  free(): void {
    for (const { program } of this.#steps.splice(0)) program.free();
    for (const staging of this.#inputs) staging.free();
    for (const address of this.#owned) this.core.free(address);
    this.#owned.clear();
  }
}

function range(start: number, bytes: number, address: number): Range {
  return { start, end: start + bytes, address };
}

function codeRanges(programs: readonly ProgramInfo[], code: readonly number[], dataStart: number): Range[] {
  return programs.map(({ start, bytes }, i) => range(dataStart + start, bytes, code[i] as number));
}

async function externalSource(file: string, model: Source): Promise<Source> {
  if (!model.url)
    throw new Error(`the weights are in the file "${file}": pass it in externalData: [{ path: "${file}", data }]`);
  if (/^[/\\]|^\w+:|(^|[/\\])\.\.([/\\]|$)/.test(file))
    throw new Error(`the file name "${file}" leaves the model's folder`);
  const path = file.split("/").map(encodeURIComponent).join("/");
  return urlSource(new URL(path, model.url).href);
}

/** Reports at most every PROGRESS_BYTES, and every change of phase. */
function progressOf(
  total: number,
  report: (progress: Progress) => void,
): (phase: Progress["phase"], loaded: number) => void {
  let next = 0;
  return (phase, loaded) => {
    if (phase === "model" && loaded < next && loaded < total) return;
    next = loaded + PROGRESS_BYTES;
    report({ phase, loaded, total });
  };
}
