/** onnxruntime's marks on the browser's timeline, made while `env.trace` is set. */
import { env } from "./env.js";

const isOn = (): boolean => env.trace ?? env.wasm.trace ?? false;

export const TRACE = (deviceType: string, label: string): void => {
  // Missing in runtimes without a timeline.
  const { timeStamp } = console as { timeStamp?: (label: string) => void };
  if (isOn()) timeStamp?.call(console, `${deviceType}::ORT::${label}`);
};
const traced = (what: string, extra?: string): void => TRACE("CPU", `FUNC_${what}${extra ? `::${extra}` : ""}`);
export const TRACE_FUNC_BEGIN = (extraMsg?: string): void => traced("BEGIN", extraMsg);
export const TRACE_FUNC_END = (extraMsg?: string): void => traced("END", extraMsg);
export const TRACE_EVENT_BEGIN = (extraMsg?: string): void => {
  if (isOn()) console.time(`ORT::${extraMsg}`);
};
export const TRACE_EVENT_END = (extraMsg?: string): void => {
  if (isOn()) console.timeEnd(`ORT::${extraMsg}`);
};
