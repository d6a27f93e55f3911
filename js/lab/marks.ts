/** What is marked on the boxes on show, from what is known of nodes. */
import { isGroup } from "./groups.js";
import type { Node } from "./model.js";
import type { Difference } from "./paint.js";
import { nodesIn, type Scene } from "./scene.js";

/** Shares of the longest time among closed boxes, from times by the names of nodes. */
export function heat({ boxes }: Scene, times: ReadonlyMap<string, number>): Map<number, number> {
  const found = new Map<number, number>();
  if (!times.size) return found;
  boxes.forEach(({ item, open }, k) => {
    const time = open ? 0 : nodesIn(item).reduce((sum, n) => sum + (times.get(n.call.name) ?? 0), 0);
    if (time) found.set(k, time);
  });
  const most = Math.max(...found.values());
  return new Map([...found].map(([k, time]) => [k, time / most]));
}

/** What differs of each closed box; a group in which anything differs has changed. */
export function differing({ boxes }: Scene, nodes: ReadonlyMap<Node, Difference>): Map<number, Difference> {
  const found = new Map<number, Difference>();
  if (nodes.size)
    boxes.forEach(({ item, open }, k) => {
      const kinds = new Set(open ? [] : nodesIn(item).flatMap((n) => nodes.get(n) ?? []));
      if (kinds.size) found.set(k, isGroup(item) ? "changed" : [...kinds][0]!);
    });
  return found;
}
