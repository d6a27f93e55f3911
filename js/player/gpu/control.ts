/** Branches and loops over Programs on the GPU (PROGRAM.md §2). */
import { typeOfCode, type Type } from "../dtypes.js";
import { missing, type Plain } from "../asked.js";
import type { ControlRow } from "../tables.js";
import type { StepTime } from "../types.js";
import { Data, DISPATCH, type Value } from "./data.js";
import type { Part, Run } from "./part.js";
import type { Walked } from "./section.js";

const [BAD_DATA, LIMIT] = [6, 8];
const UNREAD = 64; // stacked tensors that wait for their way here

/** Runs a control step; what it gives goes to the slots. */
export async function walk(part: Part, run: Run, step: number): Promise<void> {
  const row = part.tables.controls.get(step) as ControlRow;
  const params = row.params.map((r) => Number(run.bound.registers[r]));
  const [outputs, first, other, count, condition, trips] = params as [number, number, number, number, number, number];
  const dims = params.slice(6);
  const [start, before] = [performance.now(), clock(run.times)];
  const { commands } = part.shared;
  let results: Value[];
  if (row.host) {
    results = await answered(part, run, step, row, first, dims);
  } else if (row.loop) {
    const body = part.bodies[first] as Part;
    const given = await operands(part, run, step, row, [body], dims, 2);
    const loop = new Loop(part, body, step, count, other, outputs);
    results = await loop.run(given, condition !== 0, trips, run.times);
  } else {
    const bodies = [first, other].map((i) => part.bodies[i] as Part);
    const given = await operands(part, run, step, row, bodies, dims, 0);
    const body = bodies[condition ? 0 : 1] as Part;
    const inputs = condition ? given.slice(0, count) : given.slice(count);
    results = await runBody(part, body, step, inputs, run.times);
  }
  row.slots.forEach((slot, i) => {
    if (slot >= 0) run.slots[slot] = results[i];
    else commands.give(results[i]?.data.buffer);
  });
  const ms = Math.max(0, performance.now() - start - (clock(run.times) - before));
  const kernel = part.program.steps[step]?.kernel ?? "";
  part.note(run, { name: part.name(step), kernel, backend: "wasm", ms, bytes: 0 });
}

function clock(times: readonly StepTime[] | undefined): number {
  const last = times?.at(-1);
  return last ? last.start + last.ms : 0;
}

/** What the host gives for a step, whose inputs come here. */
async function answered(
  part: Part,
  run: Run,
  step: number,
  row: ControlRow,
  number: number,
  words: readonly number[],
): Promise<Value[]> {
  const { commands, answer } = part.shared;
  const { on_core: onCore } = part.plan.steps[step] as Walked;
  const callback = part.program.info.callbacks[number];
  if (!callback) throw new Error(`program "${part.program.info.name}" has no callback ${number}`);
  if (!answer) throw missing(callback);
  const inputs: Plain[] = [];
  let at = 0;
  for (const [k, buffer] of row.takes.entries()) {
    const rank = words[at] as number;
    const dims = words.slice(at + 1, (at += 1 + rank));
    const data = await commands.here(await part.operand(run, buffer, onCore.includes(k)));
    const type = typeOfCode(part.tables.buffers[buffer]!.dtype) as Type;
    inputs.push({ data: data.slice(), type, dims });
  }
  const outputs = row.slots.map((slot) => {
    const port = part.tables.slotPorts[slot];
    return port && { type: typeOfCode(port.code) as Type, rank: port.rank };
  });
  commands.flush();
  const found = await answer({ number, callback, inputs, outputs });
  return outputs.map((_, k) => {
    const { data = new Uint8Array(), type = "uint8", dims = [] } = found[k] ?? {};
    return { data: new Data(data.length, data, undefined), type, dims };
  });
}

/** What the bodies take, one after the other; `lead` inputs of each come from elsewhere. */
async function operands(
  part: Part,
  run: Run,
  step: number,
  row: ControlRow,
  bodies: readonly Part[],
  dims: readonly number[],
  lead: number,
): Promise<Value[]> {
  const ports = bodies.flatMap(({ tables }) => tables.inputs.slice(lead));
  const { on_core: onCore } = part.plan.steps[step] as Walked;
  const found: Value[] = [];
  let [at, present] = [0, 0];
  for (const [i, { code, rank }] of ports.entries()) {
    const buffer = row.takes[i] ?? -1;
    const data =
      buffer < 0
        ? new Data(0, new Uint8Array(), undefined)
        : await part.operand(run, buffer, onCore.includes(present++));
    found.push({ data, type: typeOfCode(code) as Type, dims: dims.slice(at, (at += rank)) });
  }
  return found;
}

/** As the core tells it. */
function refusal(part: Part, step: number, code: number, text: string): Error {
  const kernel = part.program.steps[step]?.kernel ?? "";
  return part.program.error(code, step, `step ${step} (${kernel}): ${text}`);
}

async function runBody(
  part: Part,
  body: Part,
  step: number,
  inputs: readonly Value[],
  times: StepTime[] | undefined,
): Promise<Value[]> {
  const { commands } = part.shared;
  const results = await body.run(inputs, times, (_, bytes) => commands.take(bytes, part.name(step)));
  commands.left -= body.operations;
  await commands.pace(body.tables.steps.length * DISPATCH);
  if (commands.left >= 0) return results;
  throw refusal(
    part,
    step,
    LIMIT,
    `takes more than ${part.program.limits.maxOperations} operations, the limit (maxOperations)`,
  );
}

class Loop {
  readonly #stacks: readonly Stack[];

  constructor(
    readonly part: Part,
    readonly body: Part,
    readonly step: number,
    /** How many values are carried. */
    readonly carried: number,
    /** How many are carried or stacked. */
    stacked: number,
    outputs: number,
  ) {
    this.#stacks = Array.from({ length: outputs - carried }, (_, k) => new Stack(part, step, carried + k < stacked));
  }

  async run(given: readonly Value[], go: boolean, most: number, times: StepTime[] | undefined): Promise<Value[]> {
    const { part, body, carried: n } = this;
    const { commands } = part.shared;
    let carried = given.slice(0, n);
    let own: readonly Value[] = []; // carried values that a step gave
    const others = given.slice(n);
    let trip = 0;
    for (; go && trip < most; trip++) {
      const lead = this.#lead(trip);
      const inputs = [...lead, ...carried, ...others];
      const [condition, ...results] = await runBody(part, body, this.step, inputs, times);
      for (const { data } of [...own, ...lead]) commands.give(data.buffer);
      carried = results.slice(0, n);
      own = carried;
      if (condition?.data.bytes !== 1) throw refusal(part, this.step, BAD_DATA, "its condition is no single value");
      for (const [k, stack] of this.#stacks.entries()) await stack.push(results[n + k] as Value);
      const { data } = condition;
      go = body.plan.goesOn || (await commands.here(data))[0] !== 0;
      commands.give(data.buffer);
    }
    const told = trip ? [] : await this.#told(carried, others);
    const stacked: Value[] = [];
    for (const [k, stack] of this.#stacks.entries()) stacked.push(await stack.result(told[k]));
    return [...(trip ? carried : carried.map((value) => this.#own(value))), ...stacked];
  }

  /** A copy: what a loop was given lies where later stages lay other things. */
  #own(value: Value): Value {
    const { bytes, local, buffer } = value.data;
    if (!buffer) return value;
    const { commands } = this.part.shared;
    const own = commands.take(bytes, "what a loop passes on");
    commands.copy(buffer, own, 0, Math.ceil(bytes / 4) * 4);
    return { ...value, data: new Data(bytes, local, own) };
  }

  /** The number of a step and the condition. */
  #lead(trip: number): Value[] {
    const number = new Uint8Array(new BigInt64Array([BigInt(trip)]).buffer);
    const rows = [
      { local: number, type: "int64" },
      { local: new Uint8Array([1]), type: "bool" },
    ] as const;
    return rows.map(({ local, type }, i) => {
      const dims = Array<number>(this.body.tables.inputs[i]!.rank).fill(1);
      return { data: new Data(local.length, local, undefined), type, dims };
    });
  }

  /** Types and shapes of what would be stacked, as far as sizes alone tell them. */
  async #told(carried: readonly Value[], others: readonly Value[]): Promise<Told[]> {
    const { tables } = this.body;
    const known = tables.stages[0]!.registers;
    let registers: BigInt64Array | undefined;
    try {
      ({ registers } = await this.body.bind([...this.#lead(0), ...carried, ...others]));
    } catch {
      // Sizes that the body refuses tell nothing.
    }
    return tables.outputs.slice(this.carried + 1).map(({ code }, k) => {
      const dims = tables.outputDims[this.carried + 1 + k]!;
      const tells = registers && dims.every((r) => r < known);
      return { type: typeOfCode(code) as Type, dims: dims.map((r) => (tells ? Number(registers![r]) : 0)) };
    });
  }
}

interface Told {
  readonly type: Type;
  readonly dims: readonly number[];
}

/**
 * What the steps of a loop give, one behind the other, on the GPU as long as each fills words: along a new first axis, or else
 * appended along the first axis that is there.
 */
class Stack {
  #type: Type | undefined;
  /** Of one; appended: but for the first axis. */
  #dims: readonly number[] = [];
  #along = 0;
  #bytes = 0;
  #buffer: GPUBuffer | undefined;
  readonly #local: Uint8Array[] = [];
  #unread: Data[] = [];

  constructor(
    readonly part: Part,
    readonly step: number,
    readonly axis: boolean,
  ) {}

  async push({ data, dims, type }: Value): Promise<void> {
    const own = this.axis ? dims : dims.slice(1);
    if (this.#along && own.join() !== this.#dims.join())
      throw refusal(this.part, this.step, BAD_DATA, "what is stacked or appended changes its shape from step to step");
    [this.#type, this.#dims] = [type, own];
    this.#along += this.axis ? 1 : (dims[0] ?? 0);
    const before = this.#bytes;
    this.#bytes += data.bytes;
    const { maxMemory } = this.part.program.limits;
    if (this.#bytes > maxMemory)
      throw refusal(
        this.part,
        this.step,
        LIMIT,
        `what is stacked takes more than ${maxMemory} bytes, the limit (maxMemory)`,
      );
    if (data.buffer && data.bytes % 4 === 0 && !this.#local.length && !this.#unread.length) {
      this.#append(data, before);
      return;
    }
    if (this.#buffer) this.#unread.push(new Data(before, undefined, this.#buffer));
    this.#buffer = undefined;
    this.#unread.push(data);
    if (this.#unread.length >= UNREAD) await this.#read();
  }

  #append({ buffer, bytes }: Data, before: number): void {
    const { commands } = this.part.shared;
    if (!this.#buffer || this.#buffer.size < this.#bytes) {
      const wider = commands.take(Math.max(this.#bytes, 2 * (this.#buffer?.size ?? 0)), "what a loop stacks");
      if (this.#buffer) commands.copy(this.#buffer, wider, 0, before);
      commands.give(this.#buffer);
      this.#buffer = wider;
    }
    commands.copy(buffer as GPUBuffer, this.#buffer, before, bytes);
    commands.give(buffer);
  }

  async #read(): Promise<void> {
    const { commands } = this.part.shared;
    const away = this.#unread.filter(({ local }) => !local);
    const read = await commands.read(away.map(({ buffer, bytes }) => ({ buffer: buffer as GPUBuffer, bytes })));
    for (const [i, data] of away.entries()) {
      data.local = read[i] as Uint8Array;
      commands.give(data.buffer);
    }
    this.#local.push(...this.#unread.map(({ local }) => local as Uint8Array));
    this.#unread = [];
  }

  async result(told: Told | undefined): Promise<Value> {
    const type = this.#type ?? (told as Told).type;
    const own = this.#type ? this.#dims : (told as Told).dims.slice(this.axis ? 0 : 1);
    const dims = [this.#along, ...own];
    if (this.#buffer) return { data: new Data(this.#bytes, undefined, this.#buffer), type, dims };
    if (this.#unread.length) await this.#read();
    const local = new Uint8Array(this.#bytes);
    let at = 0;
    for (const each of this.#local) {
      local.set(each, at);
      at += each.length;
    }
    return { data: new Data(this.#bytes, local, undefined), type, dims };
  }
}
