/** Core memory that a page shares: feeds are written to where the run reads them, and copied once. */
import type { Feed } from "./feed.js";
import { areRowsOf, runsOf } from "./state.js";

export interface Place {
  readonly address: number;
  readonly bytes: number;
  /** Set where it has room for more rows along an axis than are fed. */
  readonly rows?: { readonly dims: readonly number[]; readonly axis: number };
}

/** Where the inputs of a session lie in the core's memory. */
export interface Places {
  readonly session: number;
  readonly memory: WebAssembly.Memory;
  readonly inputs: readonly Place[];
}

const NOTHING = new Uint8Array();

/** Those of sessions, for as long as nothing can have moved them that was asked for since. */
export class KnownPlaces {
  readonly #places = new Map<number, Places>();

  learn(places: Places): void {
    this.#places.set(places.session, places);
  }

  forget(session: number): void {
    this.#places.delete(session);
  }

  /** Writes the feeds of a run, the only one under way; undefined where they have no places, or not enough room. */
  write(session: number, feeds: readonly Feed[]): Feed[] | undefined {
    const { memory, inputs } = this.#places.get(session) ?? {};
    const fits = ({ data, dims, gpu }: Feed, i: number): boolean => {
      if (gpu !== undefined) return true;
      const { bytes, rows } = inputs![i]!;
      return rows ? areRowsOf(dims, rows.dims, rows.axis) : data.byteLength <= bytes;
    };
    if (!memory || inputs?.length !== feeds.length || !feeds.every(fits)) return undefined;
    return feeds.map((feed, i) => {
      if (feed.gpu !== undefined) return feed;
      put(feed, new Uint8Array(memory.buffer, inputs[i]!.address, inputs[i]!.bytes), inputs[i]!);
      return { ...feed, data: NOTHING, placed: feed.data.byteLength };
    });
  }
}

function put({ data, type, dims }: Feed, place: Uint8Array, { rows }: Place): void {
  if (!rows) return place.set(data);
  const { starts, bytes } = runsOf(type, rows.dims, rows.axis, dims[rows.axis]!);
  for (const [i, start] of starts.entries()) place.set(data.subarray(i * bytes, (i + 1) * bytes), start);
}
