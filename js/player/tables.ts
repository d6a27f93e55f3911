/** The tables of a Program. */
// Word offsets in a Program's head (PROGRAM.md §2).
const KERNELS = 3;
export const INPUTS = 5;
export const OUTPUTS = 7;
const SHAPE_CODE = 9;
const STORAGES = 11;
const BUFFERS = 13;
const STEPS = 15;
const STAGES = 18;
const PROGRAMS = 20;
const SLOTS = 22;
const [ELEM, READ, SIZE] = [2, 16, 17];
/** Kinds of storages. */
export const [ARENA, WEIGHT, INPUT, OUTPUT, SLOT] = [0, 1, 2, 3, 4] as const;
/** Kernels of steps that run Programs within. */
const BRANCH = "if";
const LOOP = "loop";
/** Of steps that the host does. */
const HOST = "host";

/** An input or output: the code of its dtype, its rank. */
export interface Port {
  readonly code: number;
  readonly rank: number;
}

function table(words: Int32Array, head: number): { count: number; at: number } {
  return { count: words[head] as number, at: words[head + 1] as number };
}

export function readKernels(words: Int32Array): string[] {
  let { count, at } = table(words, KERNELS);
  const bytes = new Uint8Array(words.buffer);
  const names: string[] = [];
  for (; count > 0; count--) {
    const length = words[at + 1] as number;
    names.push(new TextDecoder().decode(bytes.subarray(4 * at + 8, 4 * at + 8 + length)));
    at += 2 + Math.ceil(length / 4);
  }
  return names;
}

export function readPorts(words: Int32Array, head: number, withDims: boolean): Port[] {
  let { count, at } = table(words, head);
  const ports: Port[] = [];
  for (; count > 0; count--) {
    const rank = words[at + 1] as number;
    ports.push({ code: words[at] as number, rank });
    at += 3 + (withDims ? rank : 0);
  }
  return ports;
}

/** An output that may stay in place for the next run, which is given it as input `past`. */
export interface State {
  readonly past: number;
  readonly output: number;
  /** The input whose dims are the rows that there is room for, and the rows of the past that are in place. */
  readonly told: number;
  /** The axis that it grows along. */
  readonly axis: number;
}

/** In the order of what they are told by. */
export function readStates(words: Int32Array): State[] {
  const { count, at } = table(words, STORAGES);
  const inputs = table(words, INPUTS).at;
  const found: State[] = [];
  for (let i = at; i < at + 6 * count; i += 6) {
    const [kind, output, flags] = [words[i]!, words[i + 1]!, words[i + 5]!];
    if (kind !== OUTPUT || !flags) continue;
    const told = Math.floor(flags / 16) - 1;
    found.push({ past: -2 - words[inputs + 3 * told + 2]!, output, told, axis: flags % 16 });
  }
  return found.sort((a, b) => a.told - b.told);
}

/** Weights that a Program's storages refer to. */
export function weightsOf(words: Int32Array): Set<number> {
  const { count, at } = table(words, STORAGES);
  const used = new Set<number>();
  for (let i = at; i < at + 6 * count; i += 6) if (words[i] === WEIGHT) used.add(words[i + 1] as number);
  return used;
}

export function readSteps(words: Int32Array): [kernel: number, origin: number][] {
  let { count, at } = table(words, STEPS);
  const steps: [number, number][] = [];
  for (; count > 0; count--) {
    const [kernel, buffers, params, origin] = words.subarray(at, at + 4) as unknown as [number, number, number, number];
    steps.push([kernel < 0 ? ~kernel : kernel, origin]);
    at += 4 + buffers + params;
  }
  return steps;
}

/** The tables of a Program that the core has verified. */
export interface Tables {
  readonly registers: number;
  readonly storages: readonly StorageRow[];
  readonly buffers: readonly BufferRow[];
  /** Buffers of each step, absent ones left out; of control steps those that they take. */
  readonly steps: readonly (readonly number[])[];
  /** By step. */
  readonly controls: ReadonlyMap<number, ControlRow>;
  readonly stages: readonly StageRow[];
  /** How many results control steps have. */
  readonly slots: number;
  readonly slotPorts: readonly Port[];
  /** Words of the Programs within: where they begin, and how many. */
  readonly programs: readonly { readonly at: number; readonly words: number }[];
  readonly inputs: readonly Port[];
  readonly outputs: readonly { readonly code: number; readonly buffer: number }[];
  /** Registers of each output's dims. */
  readonly outputDims: readonly (readonly number[])[];
  /** Inputs whose contents decide sizes. */
  readonly elements: ReadonlySet<number>;
}

/** A run of steps, with what its registers read when it begins. */
export interface StageRow {
  /** Where its registers end. */
  readonly registers: number;
  readonly first: number;
  readonly last: number;
  /** Registers that read an element of a buffer, or a size of a slot. */
  readonly reads: readonly {
    readonly register: number;
    readonly size: boolean;
    readonly from: number;
    readonly index: number;
  }[];
}

/** A branch or a loop, or what the host does. */
export interface ControlRow {
  readonly loop: boolean;
  readonly host: boolean;
  /** Slots of what it gives, -1 where that is not needed. */
  readonly slots: readonly number[];
  /** Buffers that it takes, -1 where only the sizes are used. */
  readonly takes: readonly number[];
  /** Registers. */
  readonly params: readonly number[];
}

export interface StorageRow {
  /** 0 arena, 1 weight, 2 input, 3 output, 4 slot. */
  readonly kind: number;
  readonly index: number;
  /** Register of the size in bytes. */
  readonly size: number;
  readonly first: number;
  readonly last: number;
}

export interface BufferRow {
  readonly storage: number;
  /** Register of the offset in bytes. */
  readonly offset: number;
  /** Register of the size in bytes. */
  readonly size: number;
  readonly dtype: number;
}

export function readTables(words: Int32Array): Tables {
  const rows = (head: number, size: number): Int32Array[] => {
    const { count, at } = table(words, head);
    return Array.from({ length: count }, (_, i) => words.subarray(at + size * i, at + size * (i + 1)));
  };
  const code = rows(SHAPE_CODE, 4);
  const kernels = readKernels(words);
  let { count, at } = table(words, STEPS);
  const steps: number[][] = [];
  const controls = new Map<number, ControlRow>();
  for (let step = 0; step < count; step++) {
    const [kernel, buffers, params] = words.subarray(at, at + 3) as unknown as [number, number, number];
    const bound = [...words.subarray(at + 4, at + 4 + buffers)];
    const registers = [...words.subarray(at + 4 + buffers, at + 4 + buffers + params)];
    at += 4 + buffers + params;
    const name = kernels[kernel] ?? "";
    if (name === BRANCH || name === LOOP || name === HOST) {
      const given = code[registers[0]!]![1]!;
      const [slots, takes] = [bound.slice(0, given), bound.slice(given)];
      controls.set(step, { loop: name === LOOP, host: name === HOST, slots, takes, params: registers });
      steps.push(takes.filter((b) => b >= 0));
    } else {
      steps.push(bound.filter((b) => b >= 0));
    }
  }
  ({ count, at } = table(words, OUTPUTS));
  const outputDims: number[][] = [];
  const outputs: { code: number; buffer: number }[] = [];
  for (; count > 0; count--) {
    const [dtype, rank, buffer] = words.subarray(at, at + 3) as unknown as [number, number, number];
    outputs.push({ code: dtype, buffer });
    outputDims.push([...words.subarray(at + 3, at + 3 + rank)]);
    at += 3 + rank;
  }
  let [registers, first] = [0, 0];
  const stages = rows(STAGES, 2).map((r): StageRow => {
    const reads = code
      .slice(registers, r[0])
      .flatMap(([op, from, index], i) =>
        op === READ || op === SIZE ? [{ register: registers + i, size: op === SIZE, from: from!, index: index! }] : [],
      );
    const stage = { registers: r[0]!, first, last: r[1]!, reads };
    [registers, first] = [r[0]!, r[1]!];
    return stage;
  });
  return {
    registers: code.length,
    storages: rows(STORAGES, 6).map((r) => ({ kind: r[0]!, index: r[1]!, size: r[2]!, first: r[3]!, last: r[4]! })),
    buffers: rows(BUFFERS, 4).map((r) => ({ storage: r[0]!, offset: r[1]!, size: r[2]!, dtype: r[3]! })),
    steps,
    controls,
    stages,
    slots: table(words, SLOTS).count,
    slotPorts: rows(SLOTS, 2).map((r) => ({ code: r[0]!, rank: r[1]! })),
    programs: rows(PROGRAMS, 2).map((r) => ({ at: r[0]!, words: r[1]! })),
    inputs: readPorts(words, INPUTS, false),
    outputs,
    outputDims,
    elements: new Set(code.filter((c) => c[0] === ELEM).map((c) => c[1]!)),
  };
}
