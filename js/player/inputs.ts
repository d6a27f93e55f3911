/** The inputs of a model in core memory: of each the last feed's bytes, where the next one's go. */
import type { Core } from "./core.js";
import { bytesOf, elements } from "./dtypes.js";
import type { Feed } from "./feed.js";
import type { ValueInfo } from "./format.js";
import type { Place } from "./places.js";
import { Staging, type Slot } from "./program.js";
import { drop } from "./source.js";
import { areRowsOf, Held, SPARE_ROWS, type CoreRoom, type Keeper } from "./state.js";
import { partsOf, placesOf } from "./strings.js";

export class Inputs {
  readonly #staging: readonly Staging[];
  /** Pasts that were fed as arrays, in rooms that runs append to. */
  readonly #fed = new Map<number, Held<CoreRoom>>();
  #moved = false;

  constructor(
    readonly core: Core,
    readonly values: readonly ValueInfo[],
  ) {
    const count = values.reduce((n, { type }) => n + partsOf(type), 0);
    this.#staging = Array.from({ length: count }, () => new Staging(core));
  }

  /** Where they lie, if that is asked for or has changed since it was. */
  places(asked: boolean): Place[] | undefined {
    if (!asked && !this.#moved) return undefined;
    this.#moved = false;
    return this.#staging.map(({ address, capacity }, i): Place => {
      const room = this.#fed.get(i)?.room;
      if (!room) return { address, bytes: capacity };
      const { type, dims, axis } = room;
      return { address: room.address, bytes: bytesOf(type, elements(dims)), rows: { dims, axis } };
    });
  }

  /** What of the feeds lies in rooms, by input: what is held, and what is fed of pasts, put where the run will append to it. */
  settle(feeds: readonly Feed[], keeper: Keeper<CoreRoom>): Map<number, Held<CoreRoom>> {
    const held = new Map<number, Held<CoreRoom>>();
    const axes = new Map(keeper.program.states.map(({ past, axis }) => [past, axis]));
    for (const [i, feed] of feeds.entries()) {
      if (feed.held?.room.core === this.core && keeper.takes(i, feed.held.room)) held.set(i, feed.held);
      const { type, dims } = feed;
      const axis = axes.get(i);
      if (axis === undefined || feed.held || !elements(dims)) continue;
      const rows = dims[axis]!;
      const last = this.#fed.get(i);
      const fits = last && areRowsOf(dims, last.room.dims, axis);
      const room = fits ? last.room : keeper.made(type, dims, axis, rows + SPARE_ROWS);
      const { address } = this.#staging[i]!;
      if (feed.placed === undefined) room.write(feed.data, rows);
      else if (!last) room.write(this.core.bytes.subarray(address, address + feed.placed), rows);
      room.rows = rows;
      this.#settled(i, new Held(room, rows));
      held.set(i, this.#fed.get(i)!);
    }
    return held;
  }

  /** Where a run's past of input `i` was settled, the next one goes to this room, or to a new one. */
  settleIn(i: number, past: Held<CoreRoom> | undefined, room: CoreRoom | undefined): void {
    if (past && past === this.#fed.get(i)) this.#settled(i, room && new Held(room, room.rows));
  }

  #settled(i: number, now: Held<CoreRoom> | undefined): void {
    const before = this.#fed.get(i);
    if (now) this.#fed.set(i, now);
    else this.#fed.delete(i);
    this.#moved ||= before?.room !== now?.room;
    before?.release();
  }

  /** Where the feeds lie from now on; those that are `held`, where they are held. */
  put(feeds: readonly Feed[], held: ReadonlyMap<number, Held<CoreRoom>>): Slot[] {
    const contents = feeds.map((feed, i) =>
      feed.held && !held.has(i) ? feed.held.room.copy(feed.held.rows) : feed.data,
    );
    const slots = feeds.map(({ type, dims, placed }, i): Slot => {
      const { room } = held.get(i) ?? {};
      const bytes = room ? bytesOf(type, elements(dims)) : (placed ?? contents[i]!.byteLength);
      return { address: room?.address ?? this.#reserve(i, bytes, dims), bytes, type, dims };
    });
    for (const [i, { address }] of slots.entries())
      if (!held.has(i) && feeds[i]!.placed === undefined) this.core.bytes.set(contents[i]!, address);
    for (const { after, data } of feeds) if (after === "drop") drop(data);
    return slots;
  }

  #reserve(i: number, bytes: number, dims: readonly number[]): number {
    const name = this.values[placesOf(this.values).filter((place) => place <= i).length - 1]?.name ?? "";
    const staging = this.#staging[i]!;
    const before = staging.address;
    const address = staging.reserve(bytes, `input "${name}" of [${dims}]`);
    this.#moved ||= address !== before;
    return address;
  }

  free(): void {
    for (const staging of this.#staging) staging.free();
    for (const fed of this.#fed.values()) fed.release();
    this.#fed.clear();
  }
}
