/** Models on WebGPU as Python in Pyodide calls them: every call is one promise, to be awaited or waited for. */
import type { Answers, Asked } from "../player/asked.js";
import type { Core } from "../player/core.js";
import type { Type } from "../player/dtypes.js";
import type { Feed } from "../player/feed.js";
import type { Limits } from "../player/program.js";
import { bytesSource } from "../player/source.js";
import { Engine, type Loaded } from "../player/engine.mjs";

/** What a run gives: sizes and bytes of each output, or the number of what stays on the GPU. */
export interface Result {
  readonly dims: readonly number[];
  readonly data: Uint8Array;
  readonly gpu?: number | undefined;
}

/** In a frame in the place of its bytes: what is given is a tensor on the GPU, and its number is in the place of the address. */
const ON_GPU = -1;

/** Python's side of what a run asks of the host: the description as JSON, and the bytes of the inputs. Nothing where it failed. */
export type Ask = (asked: string, inputs: readonly Uint8Array[]) => Answers | undefined;

export function asking(ask: Ask): (asked: Asked) => Answers {
  return ({ number, inputs, outputs }) => {
    const types = inputs.map(({ type, dims }) => ({ type, dims }));
    const text = JSON.stringify({ number, inputs: types, outputs: outputs.map((output) => output ?? null) });
    const told = ask(
      text,
      inputs.map(({ data }) => data),
    );
    if (!told) throw new Error("a function in Python failed"); // which keeps its exception
    return told;
  };
}

export class GpuSession {
  private constructor(
    readonly engine: Engine,
    readonly loaded: Loaded,
  ) {}

  /** Loads the bytes of a compiled model. */
  static async open(core: Core, model: Uint8Array, seed: bigint, limits: Limits, ask: Ask): Promise<GpuSession> {
    const engine = Engine.over(core);
    const answer = async (asked: Asked): Promise<Answers> => asking(ask)(asked);
    const options = { external: () => undefined, onProgress: () => {}, answer };
    return new GpuSession(
      engine,
      await engine.load(bytesSource(model, "the model"), options, { backends: ["webgpu"], seed, limits }),
    );
  }

  /** Runs on inputs whose addresses, bytes and dims the frame names; they are copied before this returns. */
  run(
    frame: Float64Array,
    wanted: readonly number[],
    keep: readonly number[],
    signal?: AbortSignal,
  ): Promise<Result[]> {
    return this.engine.run(this.loaded.id, this.#feeds(frame), wanted, keep, signal);
  }

  /** The bytes of a tensor on the GPU. */
  read(tensor: number): Promise<Uint8Array> {
    return this.engine.download(tensor);
  }

  /** Gives its memory back, after the calls that came before. */
  dispose(tensor: number): Promise<void> {
    return this.engine.dispose([tensor]);
  }

  /** What each step took, as JSON. */
  async profile(frame: Float64Array): Promise<string> {
    const feeds = this.#feeds(frame);
    return JSON.stringify(await this.engine.profile(this.loaded.id, feeds));
  }

  #feeds(frame: Float64Array): Feed[] {
    const heap = new Uint8Array(frame.buffer);
    let at = 0;
    return this.loaded.inputs.map(({ type, shape }) => {
      const [from, bytes] = frame.subarray(at, at + 2) as unknown as [number, number];
      const dims = [...frame.subarray(at + 2, at + 2 + shape.length)];
      at += 2 + shape.length;
      if (bytes === ON_GPU) return { data: new Uint8Array(), type: type as Type, dims, gpu: from };
      return { data: heap.slice(from, from + bytes), type: type as Type, dims }; // strings stay on the core
    });
  }

  free(): Promise<void> {
    return this.engine.release(this.loaded.id);
  }
}
