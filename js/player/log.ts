/** What the player says on the console, as far as `env.logLevel` and a session's `logSeverityLevel` want to hear it. */
import { env } from "./env.js";

const LEVELS = ["verbose", "info", "warning", "error", "fatal"];
const said = new Set<string>();

export interface LogOptions {
  readonly logSeverityLevel?: number | undefined;
  readonly logId?: string | undefined;
}

function say(level: 1 | 2, text: string, { logSeverityLevel, logId }: LogOptions): void {
  const least = logSeverityLevel ?? (env.debug ? 0 : LEVELS.indexOf((env.logLevel as string | undefined) ?? "warning"));
  if (level < least) return;
  console[level === 1 ? "info" : "warn"](`pyonnx-wasm${logId ? ` (${logId})` : ""}: ${text}`);
}

export function warn(text: string, options: LogOptions = {}): void {
  say(2, text, options);
}

export function inform(text: string, options: LogOptions = {}): void {
  say(1, text, options);
}

/** Once for each text. */
export function warnOnce(text: string, options: LogOptions = {}): void {
  if (said.has(text)) return;
  said.add(text);
  warn(text, options);
}
