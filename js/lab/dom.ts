/** Elements without markup: every text becomes a text node. */

type Child = Node | string | null | undefined | false;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<Record<string, unknown>> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value as EventListener);
    else if (key === "class") element.className = String(value);
    else if (value === true) element.setAttribute(key, "");
    else element.setAttribute(key, String(value));
  }
  element.append(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
  return element;
}

/** A name that may be broken where its parts end, and nowhere else as long as they fit. */
export function breakable(name: string): Child[] {
  return name.split(/(?<=[/._:])(?=.)/).flatMap((part, k) => (k ? [document.createElement("wbr"), part] : [part]));
}

export function bytesText(bytes: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit++;
  }
  return `${unit ? bytes.toPrecision(3) : bytes} ${units[unit]!}`;
}

export const numberText = (value: number | null): string =>
  value === null
    ? "–"
    : Number.isInteger(value) && Math.abs(value) < 1e9
      ? value.toLocaleString("en")
      : String(Number(value.toPrecision(5)));

export const millisecondsText = (ms: number): string =>
  ms >= 1 ? `${ms.toPrecision(3)} ms` : `${(ms * 1e3).toPrecision(3)} µs`;

/** Offers a file for download. */
export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
