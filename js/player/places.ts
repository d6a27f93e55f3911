/** Core memory that a page shares: feeds are written to where the run reads them, and copied once. */
import type { Feed } from "./feed.js";

export interface Place {
  readonly address: number;
  readonly bytes: number;
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
    const fits = ({ data, gpu }: Feed, i: number): boolean => gpu !== undefined || data.byteLength <= inputs![i]!.bytes;
    if (!memory || inputs?.length !== feeds.length || !feeds.every(fits)) return undefined;
    return feeds.map((feed, i) => {
      if (feed.gpu !== undefined) return feed;
      const { byteLength } = feed.data;
      new Uint8Array(memory.buffer, inputs[i]!.address, byteLength).set(feed.data);
      return { ...feed, data: NOTHING, placed: byteLength };
    });
  }
}
