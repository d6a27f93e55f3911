/** Streams a model's file: every byte goes from the chunk it arrives in straight to where it belongs. */
import type { Answers, Asked } from "./asked.js";
import type { Header, WeightInfo } from "./format.js";
import type { Gpu } from "./gpu/device.js";
import type { Watch } from "./operators.js";
import type { Limits } from "./program.js";
import type { Progress } from "./types.js";
import { Reader, urlSource, type Source } from "./source.js";
import type { Staged } from "./staged.js";

export interface LoadOptions {
  /** Opens a file that a thin model refers to, if the caller gave it. */
  readonly external: (file: string) => Promise<Source> | undefined;
  /** Such a file where it lies in the engine. */
  readonly staged?: (file: string) => Staged | undefined;
  readonly onProgress: (progress: Progress) => void;
  /** Opens the GPU to run on, asked only for models that have a part for GPUs; without it the core runs the model. */
  readonly openGpu?: (() => Promise<Gpu>) | undefined;
  /** Run on the core where there is no GPU, or the model has no part for GPUs. */
  readonly gpuOptional?: boolean;
  /** Does what a run asks of the host. */
  readonly answer?: ((asked: Asked) => Promise<Answers>) | undefined;
  /** Where random numbers begin; without one anywhere. */
  readonly seed?: bigint | undefined;
  readonly limits?: Limits | undefined;
  /** Told when a module of the file's own begins and ends. */
  readonly watch?: Watch | undefined;
}

/** Bytes of a file, and who takes them. */
export interface Range {
  readonly start: number;
  readonly end: number;
  /** Takes a chunk that begins `at` bytes into the range. */
  write(chunk: Uint8Array, at: number): void;
}

export interface SourceFile {
  readonly name: string;
  readonly weights: readonly number[];
  /** How far it is read. */
  readonly end: number;
}

const PROGRESS_BYTES = 2 ** 18;
const PROGRESS_TIMES = 256;

export function range(start: number, bytes: number, write: Range["write"]): Range {
  return { start, end: start + bytes, write };
}

/** Reads on to `end`; ranges may overlap. */
export async function stream(
  reader: Reader,
  ranges: Range[],
  end: number,
  onProgress: (at: number) => void,
): Promise<void> {
  ranges.sort((a, b) => a.start - b.start);
  let first = 0;
  await reader.pump(end, (chunk, at) => {
    const chunkEnd = at + chunk.length;
    while (first < ranges.length && (ranges[first] as Range).end <= at) first++;
    for (let i = first; i < ranges.length; i++) {
      const { start, end, write } = ranges[i] as Range;
      if (start >= chunkEnd) break;
      const [from, to] = [Math.max(start, at), Math.min(end, chunkEnd)];
      if (from < to) write(chunk.subarray(from - at, to - at), from - start);
    }
    onProgress(chunkEnd);
  });
}

/** The files of a thin model that weights come from. */
export function sourceFiles(header: Header): SourceFile[] {
  const files = header.files.map((name) => ({ name, weights: [] as number[], end: 0 }));
  for (const [k, { source, bytes }] of header.weights.entries()) {
    const file = source.kind === "file" ? files[source.file] : undefined;
    if (!file || source.kind !== "file") continue;
    file.weights.push(k);
    file.end = Math.max(file.end, source.start + bytes);
  }
  return files.filter(({ weights }) => weights.length > 0);
}

export function weightInfo(header: Header, k: number): WeightInfo {
  return header.weights[k] as WeightInfo;
}

export async function externalSource(file: string, model: Source): Promise<Source> {
  if (!model.url)
    throw new Error(`the weights are in the file "${file}": pass it in externalData: [{ path: "${file}", data }]`);
  if (/^[/\\]|^\w+:|(^|[/\\])\.\.([/\\]|$)/.test(file))
    throw new Error(`the file name "${file}" leaves the model's folder`);
  const path = file.split("/").map(encodeURIComponent).join("/");
  return urlSource(new URL(path, model.url).href);
}

/** Reports at most every PROGRESS_BYTES, PROGRESS_TIMES in all, and every change of phase. */
export function progressOf(
  total: number,
  report: (progress: Progress) => void,
): (phase: Progress["phase"], loaded: number) => void {
  const each = Math.max(PROGRESS_BYTES, total / PROGRESS_TIMES);
  let next = 0;
  return (phase, loaded) => {
    if (phase === "model" && loaded < next && loaded < total) return;
    next = loaded + each;
    report({ phase, loaded, total });
  };
}
