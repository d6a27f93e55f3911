/** Computes constants on the core: Programs without inputs, run at once. */
import { Core, ONE_THREAD } from "../player/core.js";
import { Program } from "../player/program.js";
import { importModule, stand } from "./modules.js";
import { listOf, type Any } from "./values.js";

/** Constants have to be computed, and the core is not here yet. */
export class NeedsCore extends Error {}

let core: Core | undefined;
let module: WebAssembly.Module | undefined;

export function useCore(compiled: WebAssembly.Module): void {
  module = compiled;
}

const LIMITS = { maxMemory: 2 ** 32, maxOperations: 2 ** 53 - 1 };
const bytesOf = (array: Any): Uint8Array => new Uint8Array(array.d.buffer, array.d.byteOffset, array.d.byteLength);

/** The executor of `pyonnx_wasm.fold`: as the others are, of one Program, one run and one output. */
class Executor {
  readonly #owned: number[] = [];
  readonly #addresses: number[] = [];
  readonly #sizes: number[] = [];
  readonly #main: Any;

  constructor(main: Any, init: Any, weights: Any[]) {
    this.#main = main;
    if (!module) throw new NeedsCore("the core computes constants");
    if (!core || core.lost) core = Core.startNow(module, ONE_THREAD);
    const { $weight_bytes } = importModule("pyonnx_wasm.program.file");
    const homes = listOf(importModule("pyonnx_wasm.program.model").$homes(weights));
    weights.forEach((weight, k) => {
      this.#sizes.push(Number(weight.$nbytes));
      if (homes[k] === k) this.#addresses[k] = this.#own(Number(weight.$nbytes), `weight "${weight.$name}"`);
    });
    weights.forEach((weight, k) => {
      this.#addresses[k] = this.#addresses[homes[k]] as number;
      const data = $weight_bytes(weight);
      if (data !== null && data.$size) core?.bytes.set(bytesOf(data), this.#addresses[k]);
    });
    if (init !== null) this.#runs(init, 1);
  }

  $bind(): null {
    return null;
  }

  $run(_inputs: Any, [out]: Any[]): null {
    this.#runs(this.#main, -1, bytesOf(out));
    for (const address of this.#owned) core?.free(address);
    return null;
  }

  #runs(program: Any, sign: number, out?: Uint8Array): void {
    const here = core as Core;
    const words = bytesOf(program.$code);
    const at = this.#own(words.length, "program");
    here.bytes.set(words, at);
    const texts = { name: program.$name, messages: program.$messages, origins: program.$origins };
    const weights = { addresses: this.#addresses, bytes: this.#sizes.map((n) => sign * n) };
    const made = new Program(here, { ...texts, callbacks: [], start: 0, bytes: words.length }, at, weights, LIMITS);
    try {
      const [result] = made.run([]);
      if (out && result) out.set(here.bytes.subarray(result.address, result.address + result.bytes));
    } finally {
      made.free();
    }
  }

  #own(bytes: number, what: string): number {
    const address = (core as Core).alloc(bytes, what);
    this.#owned.push(address);
    return address;
  }
}

stand.set("pyonnx_wasm.narrow", { isModule: true });
stand.set("pyonnx_wasm.runtimes", {
  isModule: true,
  $cpu: { isModule: true, $Executor: (main: Any, init: Any, weights: Any) => new Executor(main, init, weights) },
});
