/** What stays on the GPU from run to run. */
import { bytesOf, elements, type Type } from "../dtypes.js";
import { Room, type Held } from "../state.js";
import type { Commands, Range } from "./data.js";

/** A buffer for the rows of one tensor. */
export class GpuRoom extends Room {
  readonly buffer: GPUBuffer;
  #copy: { buffer: GPUBuffer; rows: number } | undefined;

  constructor(
    readonly commands: Commands,
    type: Type,
    dims: readonly number[],
    axis: number,
  ) {
    super(type, dims, axis);
    // Of zeros: WebGPU's buffers begin so.
    this.buffer = commands.gpu.buffer(bytesOf(type, elements(dims)), `what stays of [${dims}]`);
  }

  protected override free(): void {
    this.buffer.destroy();
    this.#copy?.buffer.destroy();
  }

  override take({ room, rows }: Held): void {
    const [from, to] = [room.runs(rows), this.runs(rows)];
    const { buffer } = room as GpuRoom;
    for (const [i, start] of from.starts.entries())
      this.commands.copy(buffer, this.buffer, to.starts[i]!, from.bytes, start);
  }

  /** Where the first rows are. */
  ranges(rows: number): Range[] {
    const { starts, bytes } = this.runs(rows);
    return starts.map((offset) => ({ buffer: this.buffer, bytes, offset }));
  }

  /** A buffer that begins with the first rows, row-major. */
  plain(rows: number): GPUBuffer {
    const { starts, bytes } = this.runs(rows);
    if (starts.length === 1) return this.buffer;
    if (this.#copy?.rows !== rows) {
      this.#copy?.buffer.destroy();
      this.#copy = { buffer: this.commands.gpu.buffer(starts.length * bytes, "a copy of what stays"), rows };
      for (const [i, start] of starts.entries())
        this.commands.copy(this.buffer, this.#copy.buffer, i * bytes, bytes, start);
      this.commands.flush();
    }
    return this.#copy.buffer;
  }
}

/** Pieces one behind the other. */
export function joined(pieces: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  if (pieces.length === 1) return pieces[0]!;
  const whole = new Uint8Array(pieces.reduce((n, { length }) => n + length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
