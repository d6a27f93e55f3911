/** The inputs of a model in core memory: of each the last feed's bytes, where the next one's go. */
import type { Core } from "./core.js";
import { bytesOf, elements } from "./dtypes.js";
import type { Feed } from "./feed.js";
import type { ValueInfo } from "./format.js";
import type { Place } from "./places.js";
import { Staging, type Slot } from "./program.js";
import { drop } from "./source.js";
import type { CoreRoom, Held } from "./state.js";
import { partsOf, placesOf } from "./strings.js";

export class Inputs {
  readonly #staging: readonly Staging[];
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
    return this.#staging.map(({ address, capacity }) => ({ address, bytes: capacity }));
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
  }
}
