// One page's side of the benchmark of generation: three libraries, each told to write a number of tokens behind a prompt.

const LETTERS = "abcdefghijklmnopqrstuvwxyz";
const FIRST = 2; // the token of "a"
const NUMBERED = 29; // that of "<0>"

const open_ = {
  async ours({ library, model, threads, ...options }) {
    const [{ env }, { Generator }] = await Promise.all([
      import(`${library}index.mjs`),
      import(`${library}generate.mjs`),
    ]);
    env.wasm.numThreads = threads;
    const generator = await Generator.create(model, { ends: [], chunk: 512 }, options);
    return {
      async write(ids, count) {
        const marks = [];
        const text = generator.generate(ids, { maxNewTokens: count, temperature: 0 });
        for await (const _ of text) marks.push(performance.now());
        return { marks, ids: text.ids };
      },
      close: () => generator.release(),
    };
  },

  async transformers({ library, ort, folder, model, threads }) {
    const { AutoModelForCausalLM, Tensor, env } = await import(library);
    Object.assign(env, {
      allowRemoteModels: false,
      allowLocalModels: true,
      localModelPath: folder,
      useBrowserCache: false,
    });
    Object.assign(env.backends.onnx.wasm, { wasmPaths: ort, numThreads: threads, proxy: false });
    const decoder = await AutoModelForCausalLM.from_pretrained(model, { device: "wasm", dtype: "q4" });
    return {
      async write(ids, count) {
        const marks = [];
        const given = new Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
        const mask = new Tensor("int64", new BigInt64Array(ids.length).fill(1n), [1, ids.length]);
        const streamer = { put: () => marks.push(performance.now()), end() {} };
        const made = await decoder.generate({
          inputs: given,
          attention_mask: mask,
          max_new_tokens: count,
          min_new_tokens: count,
          do_sample: false,
          streamer,
        });
        return { marks: marks.slice(1), ids: [...made.data].slice(ids.length).map(Number) }; // the prompt is told, too
      },
      close: () => decoder.dispose(),
    };
  },

  async wllama({ library, wasm, model, threads }) {
    const { Wllama, LoggerWithoutDebug } = await import(library);
    const wllama = new Wllama({ default: wasm }, { logger: LoggerWithoutDebug, suppressNativeLog: true });
    const file = await (await fetch(model)).blob();
    const sizes = { n_ctx: 2048, n_batch: 512, n_ubatch: 512, n_threads: threads, n_gpu_layers: 0, n_parallel: 1 };
    await wllama.loadModel([file], { ...sizes, warmup: false });
    return {
      async write(ids, count) {
        const marks = [];
        const prompt = ids.map((id) => LETTERS[id - FIRST]).join("");
        let words = "";
        await wllama.createCompletion({
          prompt,
          max_tokens: count,
          temperature: 0,
          cache_prompt: false,
          ignore_eos: true,
          stream: true,
          onData: (told) => {
            const piece = told.choices[0]?.text;
            if (!piece) return;
            marks.push(performance.now());
            words += piece;
          },
        });
        const made = Array.from(words.matchAll(/<(\d+)>|[a-z]/g), ([word, number]) =>
          number ? NUMBERED + Number(number) : FIRST + LETTERS.indexOf(word),
        );
        return { marks, ids: made };
      },
      close: () => wllama.exit(),
    };
  },
};

const sides = {};

/** Opens a model with a library; milliseconds. */
export async function open(side, given) {
  const start = performance.now();
  sides[side] = await open_[side](given);
  return performance.now() - start;
}

/** Milliseconds until the first token, and for each further one. */
export async function write(side, ids, count) {
  const start = performance.now();
  const { marks, ...told } = await sides[side].write(ids, count);
  return {
    first: marks[0] - start,
    gaps: marks.slice(1).map((mark, i) => mark - marks[i]),
    tokens: marks.length,
    ...told,
  };
}

export async function close() {
  for (const side of Object.keys(sides)) {
    await sides[side].close();
    delete sides[side];
  }
}

/** Bytes that a copy reads and writes in a millisecond: the best of several. */
export function bandwidth(bytes, rounds) {
  const from = new Uint8Array(bytes).fill(1);
  const into = new Uint8Array(bytes);
  let best = Infinity;
  for (let i = 0; i < rounds; i++) {
    const start = performance.now();
    into.set(from);
    best = Math.min(best, performance.now() - start);
  }
  return (2 * bytes) / best;
}
