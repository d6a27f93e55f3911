/** Inputs made up: zeros, ones, or random from a seed. */
import { filled, isFloat, type Tensor, type Type } from "./tensor.js";

/** Numbers from 0 to 1 by a seed: mulberry32. */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Random elements that suit the type: floats are standard normal, integers 0 to 7, bools either. */
export function random(type: Type, dims: readonly number[], seed: number): Tensor {
  const next = uniform(seed);
  if (isFloat(type))
    return filled(type, dims, () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()));
  return filled(type, dims, () => Math.floor(next() * (type === "bool" ? 2 : 8)));
}
