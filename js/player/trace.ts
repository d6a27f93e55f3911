/** Profiles in the trace-event format that Perfetto and chrome://tracing open. */
import type { StepTime } from "./types.js";

/** One event; times in microseconds (Trace Event Format). */
export interface TraceEvent {
  readonly ph: "M" | "X";
  readonly name: string;
  readonly pid: number;
  readonly tid?: number;
  readonly cat?: string;
  readonly ts?: number;
  readonly dur?: number;
  readonly args: Readonly<Record<string, string | number>>;
}

/** The steps of `session.profile()` as trace events, one row per backend: `JSON.stringify` makes the file. */
export function traceEvents(
  steps: readonly StepTime[],
  model = "pyonnx-wasm",
): { traceEvents: TraceEvent[]; displayTimeUnit: "ms" } {
  const backends = [...new Set(steps.map(({ backend }) => backend))];
  const micros = (ms: number): number => Math.round(ms * 1e6) / 1e3;
  return {
    traceEvents: [
      { ph: "M", name: "process_name", pid: 1, args: { name: model } },
      ...backends.map((name, i): TraceEvent => ({ ph: "M", name: "thread_name", pid: 1, tid: i + 1, args: { name } })),
      ...steps.map(({ name, kernel, backend, start, ms, bytes }): TraceEvent => ({
        ph: "X",
        name: backend === "copy" ? name : kernel,
        cat: backend,
        pid: 1,
        tid: backends.indexOf(backend) + 1,
        ts: micros(start),
        dur: micros(ms),
        args: { nodes: name, bytes, backend },
      })),
    ],
    displayTimeUnit: "ms",
  };
}
