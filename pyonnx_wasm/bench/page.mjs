// One page's side of the benchmark: two libraries with onnxruntime-web's surface, called in turn.

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: globalThis.Float16Array ?? Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
};

// A library keeps its memory to itself; its bytes are read from here.
const memories = [];
WebAssembly.Memory = class extends WebAssembly.Memory {
  constructor(descriptor) {
    super(descriptor);
    memories.push(this);
  }
};

const sides = {};
let inputs = [];

/** Fetches the contents of the inputs, before anything is timed. */
export async function feed(rows) {
  inputs = await Promise.all(
    rows.map(async ({ name, dtype, dims, url }) => {
      // Who watches a page's network, as what drives this one does, keeps the bodies that it reads in its memory, unless they are blobs.
      const bytes = await (await (await fetch(url)).blob()).arrayBuffer();
      return { name, dtype, dims, data: new ARRAYS[dtype](bytes) };
    }),
  );
}

/** Imports a library, creates a session and runs it once; milliseconds of each. */
export async function open(side, { library, model, threads, options }) {
  const first = memories.length;
  const start = performance.now();
  const lib = await import(library);
  lib.env.wasm.numThreads = threads;
  const imported = performance.now();
  const session = await lib.InferenceSession.create(model, options);
  const created = performance.now();
  const feeds = Object.fromEntries(
    inputs.map(({ name, dtype, dims, data }) => [name, new lib.Tensor(dtype, data, dims)]),
  );
  const outputs = await session.run(feeds);
  const ran = performance.now();
  sides[side] = { session, feeds, outputs, run: () => session.run(feeds), own: memories.slice(first) };
  return { import: imported - start, create: created - imported, first: ran - created };
}

/** Bytes of WebAssembly memory of a side. */
export async function memory(side) {
  const { session, own } = sides[side];
  if (session.memoryBytes) return session.memoryBytes();
  return own.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
}

/** Milliseconds per run of a side. */
export async function block(side, repeat) {
  const { run } = sides[side];
  const start = performance.now();
  for (let i = 0; i < repeat; i++) await run();
  return (performance.now() - start) / Math.max(repeat, 1);
}

/** Runs of a text, after which it begins anew: models have an end, and attention grows. */
const TEXT = 32;

/**
 * Milliseconds per run of a side where each takes what the run before left: `kept` pairs the inputs with the outputs that they were. The
 * first of a text, which begins with the feeds as they are, is not counted.
 */
export async function tokens(side, kept, repeat) {
  const { session, feeds } = sides[side];
  const step = async (fed) => {
    const outputs = await session.run(fed);
    const next = { ...fed };
    for (const [past, present] of kept) {
      if (fed[past] !== feeds[past]) fed[past].dispose();
      next[past] = outputs[present];
    }
    return next;
  };
  let ms = 0;
  for (let done = 0; done < repeat; done += TEXT) {
    let fed = await step(feeds);
    const start = performance.now();
    for (let i = done; i < Math.min(done + TEXT, repeat); i++) fed = await step(fed);
    ms += performance.now() - start;
    for (const [past] of kept) fed[past].dispose();
  }
  return ms / Math.max(repeat, 1);
}

/** How far the first side's outputs are from the second's: greatest error relative to the output's scale, and whether all agree. */
export function compare([ours, theirs]) {
  let error = 0;
  let agree = true;
  for (const [name, want] of Object.entries(sides[theirs].outputs)) {
    const have = sides[ours].outputs[name];
    if (!have || have.type !== want.type || String(have.dims) !== String(want.dims))
      return { error: null, agree: false, output: name };
    const [a, b] = [have.data, want.data];
    let scale = 0;
    for (let i = 0; i < b.length; i++) if (Number.isFinite(Number(b[i]))) scale = Math.max(scale, Math.abs(Number(b[i])));
    for (let i = 0; i < b.length; i++) {
      const [x, y] = [Number(a[i]), Number(b[i])];
      if (x === y || (x !== x && y !== y)) continue;
      const distance = Math.abs(x - y);
      if (!Number.isFinite(distance) || distance > 1e-4 * scale + 1e-3 * Math.abs(y)) agree = false;
      error = Math.max(error, Number.isFinite(distance) ? distance / (scale || 1) : Number.MAX_VALUE);
    }
  }
  return { error, agree };
}

/** The least milliseconds of each step over `count` runs. */
export async function steps(side, count) {
  const { session, feeds } = sides[side];
  let best = [];
  for (let i = 0; i < count; i++) {
    const times = await session.profile(feeds);
    best = times.map((step, k) => ({ ...step, ms: Math.min(step.ms, best[k]?.ms ?? Infinity) }));
  }
  return best;
}

export async function close() {
  for (const [name, { session }] of Object.entries(sides)) {
    await session.release();
    delete sides[name];
  }
}
