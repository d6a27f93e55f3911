/** A failure after which the core cannot be trusted: its sessions are lost. */
export class CoreLost extends Error {
  override name = "CoreLost";
}

/** By its name: modules that are bundled apart have classes of their own. */
export function isCoreLost(error: unknown): boolean {
  return error instanceof Error && error.name === "CoreLost";
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function size(bytes: number): string {
  for (const [unit, scale] of [
    ["GB", 2 ** 30],
    ["MB", 2 ** 20],
    ["KB", 2 ** 10],
  ] as const)
    if (bytes >= scale) return `${(bytes / scale).toFixed(1)} ${unit}`;
  return `${bytes} bytes`;
}
