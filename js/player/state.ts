/**
 * What stays in the core's memory from run to run: the cache of a decoder (PROGRAM.md, "State").
 *
 * A room is memory for rows along one axis with place for more behind them. A run appends to it, and never writes a row that is
 * there already, so everything held of it stays what it was. The newest goes into a run as it is; what is fed again when its room
 * has gone on is copied to a room of its own first.
 */
import type { Core } from "./core.js";
import { bytesOf, elements, typeOfCode, type Type } from "./dtypes.js";
import type { Program, Slot } from "./program.js";
import type { State } from "./tables.js";

const LEAST_ROWS = 64;

/** Memory of a core for the rows of one tensor; it goes with the last that holds it. */
export class Room {
  readonly address: number;
  /** Rows that the runs so far have filled. */
  rows = 0;
  #holders = 0;

  constructor(
    readonly core: Core,
    readonly type: Type,
    /** With as many along `axis` as there is room for. */
    readonly dims: readonly number[],
    readonly axis: number,
  ) {
    const bytes = bytesOf(type, elements(dims));
    this.address = core.alloc(bytes, `what stays of [${dims}]`);
    core.bytes.fill(0, this.address, this.address + bytes);
  }

  get capacity(): number {
    return this.dims[this.axis] as number;
  }

  hold(): void {
    this.#holders++;
  }

  release(): void {
    if (--this.#holders === 0) this.core.free(this.address);
  }

  /** Where runs of rows begin, and the bytes of a row. */
  places(): { starts: number[]; row: number } {
    const row = bytesOf(this.type, elements(this.dims.slice(this.axis + 1)));
    const outer = elements(this.dims.slice(0, this.axis));
    return { starts: Array.from({ length: outer }, (_, i) => this.address + i * this.capacity * row), row };
  }
}

/** A tensor in a room: its first rows. */
export class Held {
  #gone = false;

  constructor(
    readonly room: Room,
    readonly rows: number,
  ) {
    room.hold();
  }

  get dims(): number[] {
    return this.room.dims.map((size, d) => (d === this.room.axis ? this.rows : size));
  }

  /** A copy of the elements, row-major. */
  copy(): Uint8Array<ArrayBuffer> {
    const { room, rows } = this;
    const { starts, row } = room.places();
    const bytes = new Uint8Array(starts.length * rows * row);
    for (const [i, start] of starts.entries())
      bytes.set(room.core.bytes.subarray(start, start + rows * row), i * rows * row);
    return bytes;
  }

  release(): void {
    if (!this.#gone) this.room.release();
    this.#gone = true;
  }
}

/** Which room each output of a run has. */
export interface Rooms {
  /** Per state the rows that there is room for, and those of the past that are in place. */
  readonly told: readonly number[];
  readonly byOutput: ReadonlyMap<number, Room>;
}

/** Gives the runs of one Program their rooms. */
export class Keeper {
  /** Bytes of rows that were copied to another room. */
  copied = 0;
  readonly #mine = new WeakSet<Room>();

  constructor(readonly program: Program) {}

  /** Whether what is held can be given to this input as it is. */
  takes(input: number): boolean {
    return this.program.states.some(({ past }) => past === input);
  }

  /** The rooms of a run, whose outputs in `keep` are to stay; undefined where it has none. What is `held` is so by input. */
  rooms(inputs: readonly Slot[], held: ReadonlyMap<number, Held>, keep: ReadonlySet<number>): Rooms | undefined {
    const { program } = this;
    const rooms: (Room | undefined)[] = [];
    for (const state of program.states) rooms.push(this.#newest(state, held.get(state.past), rooms));
    const told = (): number[] =>
      program.states.flatMap(({ past }, k) => (rooms[k] ? [rooms[k].capacity, held.get(past)?.rows ?? 0] : [0, 0]));
    if (!held.size && !program.states.some(({ output }) => keep.has(output))) return undefined;
    const bound = program.bind(inputs, told());
    for (const [k, { output, past, axis }] of program.states.entries()) {
      const dims = bound[output];
      // Where sizes are known in the run alone nothing stays.
      if (!dims) throw new Error("the sizes of what is held are known in the run alone");
      const room = rooms[k];
      if (room ? (dims[axis] as number) > room.capacity : keep.has(output) || held.has(past))
        rooms[k] = this.#placed(output, dims, axis, held.get(past));
    }
    return {
      told: told(),
      byOutput: new Map(program.states.flatMap(({ output }, k) => (rooms[k] ? [[output, rooms[k]]] : []))),
    };
  }

  #newest({ axis }: State, held: Held | undefined, rooms: readonly (Room | undefined)[]): Room | undefined {
    const room = held?.room;
    const fits = room && this.#mine.has(room) && room.axis === axis && held.rows === room.rows && !rooms.includes(room);
    return fits ? room : undefined;
  }

  #placed(output: number, dims: readonly number[], axis: number, held: Held | undefined): Room {
    const { core, outputs } = this.program;
    const most = dims[axis] as number;
    const capacity = Math.max(LEAST_ROWS, most + Math.floor(most / 2));
    const type = typeOfCode(outputs[output]!.code) as Type;
    const room = new Room(
      core,
      type,
      dims.map((size, d) => (d === axis ? capacity : size)),
      axis,
    );
    this.#mine.add(room);
    if (held) {
      const [from, to] = [held.room.places().starts, room.places()];
      const bytes = held.rows * to.row;
      for (const [i, start] of from.entries()) core.bytes.copyWithin(to.starts[i] as number, start, start + bytes);
      room.rows = held.rows;
      this.copied += bytes * from.length;
    }
    return room;
  }
}

/** What keeps the states of a script that is one Program, which takes the inputs as they are given and gives the outputs wanted. */
export function keeperOf(
  script: readonly { readonly program: Program; readonly inputs: readonly number[] }[],
  results: readonly number[],
): Keeper | undefined {
  const [step, ...more] = script;
  if (!step?.program.states.length || more.length) return undefined;
  const { inputs, outputs } = step.program;
  const straight = step.inputs.length === inputs.length && step.inputs.every((slot, i) => slot === i);
  const given = results.length === outputs.length && results.every((slot, i) => slot === inputs.length + i);
  return straight && given ? new Keeper(step.program) : undefined;
}
