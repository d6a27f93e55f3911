/**
 * What stays in the core's memory from run to run: the cache of a decoder (PROGRAM.md, "State").
 *
 * A room is memory for rows along one axis with place for more behind them. A run appends to it, and never writes a row that is
 * there already, so everything held of it stays what it was. The newest goes into a run as it is; what is fed again when its room
 * has gone on is copied to a room of its own first.
 */
import type { Core } from "./core.js";
import { bytesOf, elements, typeOfCode, type Type } from "./dtypes.js";
import type { Program } from "./program.js";
import { spareOf } from "./spares.js";
import type { State } from "./tables.js";

const LEAST_ROWS = 64;
/** What a room has beyond the rows that a run leaves there, where nothing says that more will come. */
export const SPARE_ROWS = 8;

/** Where runs of rows along `axis` begin in a room of these dims, and the bytes of each. */
export function runsOf(
  type: Type,
  dims: readonly number[],
  axis: number,
  rows: number,
): { starts: number[]; bytes: number } {
  const row = bytesOf(type, elements(dims.slice(axis + 1)));
  const outer = elements(dims.slice(0, axis));
  return { starts: Array.from({ length: outer }, (_, i) => i * dims[axis]! * row), bytes: rows * row };
}

/** Whether a tensor's rows are rows of a room of these dims, and no more than it has. */
export function areRowsOf(tensor: readonly number[], dims: readonly number[], axis: number): boolean {
  return tensor.length === dims.length && tensor.every((dim, i) => (i === axis ? dim <= dims[i]! : dim === dims[i]));
}

/** Memory for the rows of one tensor; it goes with the last that holds it. */
export abstract class Room {
  /** Rows that the runs so far have filled. */
  rows = 0;
  #holders = 0;

  constructor(
    readonly type: Type,
    /** With as many along `axis` as there is room for. */
    readonly dims: readonly number[],
    readonly axis: number,
  ) {}

  get capacity(): number {
    return this.dims[this.axis] as number;
  }

  hold(): void {
    this.#holders++;
  }

  release(): void {
    this.#holders--;
    this.drop();
  }

  /** Frees it where nothing holds it. */
  drop(): void {
    if (!this.#holders) this.free();
  }

  protected abstract free(): void;

  /** Begins with the rows of another one, of the same kind. */
  abstract take(held: Held): void;

  /** Where runs of rows begin, and the bytes of each. */
  runs(rows: number): { starts: number[]; bytes: number } {
    return runsOf(this.type, this.dims, this.axis, rows);
  }
}

/** In a core's memory. */
export class CoreRoom extends Room {
  readonly address: number;

  constructor(
    readonly core: Core,
    type: Type,
    dims: readonly number[],
    axis: number,
  ) {
    super(type, dims, axis);
    const bytes = bytesOf(type, elements(dims));
    this.address = core.alloc(bytes, `what stays of [${dims}]`);
    core.bytes.fill(0, this.address, this.address + bytes);
  }

  protected override free(): void {
    this.core.free(this.address);
  }

  override take({ room, rows }: Held): void {
    const [from, to] = [room.runs(rows), this.runs(rows)];
    const { address } = room as CoreRoom;
    for (const [i, start] of from.starts.entries())
      this.core.bytes.copyWithin(this.address + to.starts[i]!, address + start, address + start + from.bytes);
  }

  /** Begins with these rows, row-major. */
  write(data: Uint8Array, rows: number): void {
    const { starts, bytes } = this.runs(rows);
    for (const [i, start] of starts.entries())
      this.core.bytes.set(data.subarray(i * bytes, (i + 1) * bytes), this.address + start);
  }

  /** A copy of the first rows, row-major. */
  copy(rows: number, spares: ArrayBuffer[] = []): Uint8Array<ArrayBuffer> {
    const { starts, bytes } = this.runs(rows);
    const copy = spareOf(spares, starts.length * bytes) ?? new Uint8Array(starts.length * bytes);
    for (const [i, start] of starts.entries())
      copy.set(this.core.bytes.subarray(this.address + start, this.address + start + bytes), i * bytes);
    return copy;
  }
}

/** A tensor in a room: its first rows. */
export class Held<R extends Room = Room> {
  #gone = false;

  constructor(
    readonly room: R,
    readonly rows: number,
  ) {
    room.hold();
  }

  release(): void {
    if (!this.#gone) this.room.release();
    this.#gone = true;
  }
}

/** Which room each output of a run has. */
export interface Rooms<R extends Room> {
  /** Per state the rows that there is room for, and those of the past that are in place. */
  readonly told: readonly number[];
  readonly byOutput: ReadonlyMap<number, R>;
}

/** Gives the runs of one Program their rooms, which `make` makes. */
export class Keeper<R extends Room> {
  /** How often rows were copied to another room. */
  moves = 0;
  readonly #mine = new WeakSet<Room>();

  constructor(
    readonly program: Program,
    readonly make: (type: Type, dims: readonly number[], axis: number) => R,
  ) {}

  /** Whether what is in a room can be given to this input as it is. */
  takes(input: number, room: Room): boolean {
    return this.program.states.some(({ past, axis }) => past === input && axis === room.axis);
  }

  /**
   * The rooms of a run, whose outputs in `keep` are to stay; undefined where it has none. What is `held` is so by input; `bind`
   * gives the sizes of the outputs, undefined for those that are known only in a run.
   */
  rooms(
    held: ReadonlyMap<number, Held<R>>,
    keep: ReadonlySet<number>,
    bind: (told: readonly number[]) => readonly (readonly number[] | undefined)[],
  ): Rooms<R> | undefined {
    const { states } = this.program;
    if (!held.size && !states.some(({ output }) => keep.has(output))) return undefined;
    const rooms: (R | undefined)[] = [];
    for (const state of states) rooms.push(this.#newest(state, held.get(state.past), rooms));
    const told = (): number[] =>
      states.flatMap(({ past }, k) => (rooms[k] ? [rooms[k].capacity, held.get(past)?.rows ?? 0] : [0, 0]));
    const bound = bind(told());
    for (const [k, { output, past, axis }] of states.entries()) {
      const dims = bound[output];
      if (!dims) throw new Error("the model is damaged: the sizes of what stays are known in the run alone");
      const room = rooms[k];
      if (room ? dims[axis]! > room.capacity : keep.has(output) || held.has(past))
        rooms[k] = this.#placed(output, dims, axis, held.get(past), keep.has(output));
    }
    return {
      told: told(),
      byOutput: new Map(states.flatMap(({ output }, k) => (rooms[k] ? [[output, rooms[k]]] : []))),
    };
  }

  #newest({ axis }: State, held: Held<R> | undefined, rooms: readonly (R | undefined)[]): R | undefined {
    const room = held?.room;
    const fits = room && this.#mine.has(room) && room.axis === axis && held.rows === room.rows && !rooms.includes(room);
    return fits ? room : undefined;
  }

  #placed(output: number, dims: readonly number[], axis: number, held: Held<R> | undefined, stays: boolean): R {
    const most = dims[axis]!;
    const capacity = stays ? Math.max(LEAST_ROWS, most + Math.floor(most / 2)) : most + SPARE_ROWS;
    const room = this.made(typeOfCode(this.program.outputs[output]!.code) as Type, dims, axis, capacity);
    if (held) {
      room.take(held);
      room.rows = held.rows;
      this.moves++;
    }
    return room;
  }

  /** A room of dims that have `capacity` along the axis. */
  made(type: Type, dims: readonly number[], axis: number, capacity: number): R {
    const room = this.make(type, Object.assign([...dims], { [axis]: capacity }), axis);
    this.#mine.add(room);
    return room;
  }
}

/** What keeps the states of a script that is one Program, which takes the inputs as they are given and gives the outputs wanted. */
export function keeperOf(
  script: readonly { readonly program: Program; readonly inputs: readonly number[] }[],
  results: readonly number[],
): Keeper<CoreRoom> | undefined {
  const [step, ...more] = script;
  if (!step?.program.states.length || more.length) return undefined;
  const { inputs, outputs } = step.program;
  const straight = step.inputs.length === inputs.length && step.inputs.every((slot, i) => slot === i);
  const given = results.length === outputs.length && results.every((slot, i) => slot === inputs.length + i);
  const { core } = step.program;
  return straight && given ? new Keeper(step.program, (...room) => new CoreRoom(core, ...room)) : undefined;
}
