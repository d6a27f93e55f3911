/**
 * Tokens foretold cheaply, which the model then reads in one run and confirms or not: the text is the same, in fewer runs
 * (Leviathan et al., 2023; also for sampling, as the random number of a place does not depend on how it was reached).
 */
import type { Decoder } from "./cache.js";
import { chooseOf, Leading } from "./leading.js";
import { needs, shared, type Foretell } from "./loop.js";
import { choose, type Sampling } from "./sampling.js";

/** What followed the last few tokens, `longest` or fewer, where they came before in the text (prompt look-up, Saxena, 2023). */
export function lookup(count: number, longest = 3): Foretell {
  return (ids, _position, most) => {
    for (let n = Math.min(longest, ids.length - 1); n > 0; n--)
      for (let at = ids.length - n - 1; at >= 0; at--) {
        let k = 0;
        while (k < n && ids[at + k] === ids[ids.length - n + k]) k++;
        if (k === n) return ids.slice(at + n, at + n + Math.min(count, most));
      }
    return [];
  };
}

/** What a smaller model of the same tokens would write, by the same settings. */
export function draft(decoder: Decoder, sampling: Sampling, seed: bigint, count: number, context: number): Foretell {
  return async (ids, position, most) => {
    const text = [...ids];
    const made: number[] = [];
    while (made.length < Math.min(count, most) && text.length < context) {
      const keep = Math.min(shared(decoder.ids, text), text.length - 1);
      decoder.forget(keep);
      const [row] = await decoder.read(text.slice(keep), 1, needs(sampling, decoder.told, decoder.words));
      const place = position + made.length;
      const few = row instanceof Leading ? chooseOf(row, sampling, seed, place, text) : undefined;
      const token = few ?? choose(row instanceof Leading ? await row.every() : row!, sampling, seed, place, text);
      made.push(token);
      text.push(token);
    }
    return made;
  };
}
