/** What steps on the GPU take. */
import type { Commands } from "./data.js";

const MAX_QUERIES = 4096;

/** Runs steps one by one, between timestamps where the adapter has them, else waiting for each; milliseconds of each. */
export async function timed(
  commands: Commands,
  first: number,
  last: number,
  encode: (encoder: GPUCommandEncoder, step: number, timestamps?: GPUComputePassTimestampWrites) => void,
): Promise<number[]> {
  const { device, info } = commands.gpu;
  const steps = Array.from({ length: last - first }, (_, k) => first + k);
  commands.flush();
  if (!info.features.includes("timestamp-query") || steps.length > MAX_QUERIES / 2) {
    const times: number[] = [];
    for (const step of steps) {
      const start = performance.now();
      encode(commands.encoder, step);
      commands.flush();
      await device.queue.onSubmittedWorkDone();
      times.push(performance.now() - start);
    }
    return times;
  }
  const n = steps.length;
  const querySet = device.createQuerySet({ type: "timestamp", count: 2 * n });
  const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
  const resolved = device.createBuffer({ size: 16 * n, usage });
  const { encoder } = commands;
  for (const [k, step] of steps.entries())
    encode(encoder, step, { querySet, beginningOfPassWriteIndex: 2 * k, endOfPassWriteIndex: 2 * k + 1 });
  encoder.resolveQuerySet(querySet, 0, 2 * n, resolved, 0);
  const [bytes] = await commands.read([{ buffer: resolved, bytes: 16 * n }]);
  const ticks = new BigUint64Array((bytes as Uint8Array<ArrayBuffer>).buffer);
  querySet.destroy();
  resolved.destroy();
  return steps.map((_, k) => Math.max(0, Number(ticks[2 * k + 1]! - ticks[2 * k]!)) / 1e6);
}
