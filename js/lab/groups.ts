/** The tree of groups that a model is shown as: by the scopes of its names, by repetition, and by position where a group is too full. */
import type { Model, Node } from "./model.js";

export interface Leaf {
  readonly node: Node;
  parent: Group;
}

export interface Group {
  readonly label: string;
  parent: Group | null;
  children: (Group | Leaf)[];
  /** Operator calls inside, at any depth. */
  count: number;
  /** Groups of the same structure, itself included. */
  alike: number;
  /** Position in the order of execution. */
  order: number;
  signature: string;
}

export const isGroup = (item: Group | Leaf): item is Group => "children" in item;

/** Children beyond which a group is divided. */
const FULL = 120;
const REPEATED = 60;
/** Spent at most on looking for repetition. */
const COMPARISONS = 1e8;
/** Graph inputs or outputs beyond which they share a group. */
const SIDES = 12;
/** Boxes that a model opens with. */
export const BUDGET = 240;

/** Builds the tree; constants are left out unless they are asked for. */
export function grouped(model: Model, constants = false): Group {
  const root = group("", null);
  const byScope = new Map<string, Group>([["", root]]);
  const inside = (scope: readonly string[]): Group => {
    let here = root;
    let key = "";
    for (const part of scope) {
      key += `\n${part}`;
      let next = byScope.get(key);
      if (!next) {
        byScope.set(key, (next = group(part, here)));
        here.children.push(next);
      }
      here = next;
    }
    return here;
  };
  const sides = { input: 0, output: 0, op: 0 };
  for (const node of model.nodes) sides[node.kind]++;
  for (const node of model.nodes) {
    if (node.constant && !constants) continue;
    const crowd = node.kind !== "op" && !node.scope.length && sides[node.kind] > SIDES;
    const parent = inside(crowd ? [`${sides[node.kind]} ${node.kind}s`] : node.scope);
    parent.children.push({ node, parent });
  }
  postorder(root, (g) => {
    flatten(g);
    measure(g);
  });
  postorder(root, (g) => {
    g.children.sort((a, b) => order(a) - order(b));
    g.signature = signature(g);
    divide(g);
  });
  const alike = new Map<string, Group[]>();
  postorder(root, (g) => {
    measure(g);
    g.signature = signature(g);
    alike.set(g.signature, [...(alike.get(g.signature) ?? []), g]);
  });
  for (const same of alike.values()) for (const g of same) g.alike = same.length;
  return root;
}

/** The groups that are open at first: whole levels, as long as the boxes stay within the budget. */
export function opened(root: Group, budget = BUDGET): Set<Group> {
  const open = new Set([root]);
  let level = root.children.filter(isGroup);
  let boxes = root.children.length;
  while (level.length) {
    const more = level.reduce((n, g) => n + g.children.length, 0);
    if (boxes + more > budget) break;
    boxes += more;
    for (const g of level) open.add(g);
    level = level.flatMap((g) => g.children.filter(isGroup));
  }
  return open;
}

function group(label: string, parent: Group | null): Group {
  return { label, parent, children: [], count: 0, alike: 1, order: 0, signature: "" };
}

function postorder(root: Group, visit: (g: Group) => void): void {
  const order: Group[] = [root];
  for (let k = 0; k < order.length; k++) order.push(...order[k]!.children.filter(isGroup));
  for (const g of order.reverse()) visit(g);
}

const order = (item: Group | Leaf): number => (isGroup(item) ? item.order : item.node.id);

function measure(g: Group): void {
  g.count = 0;
  g.order = Infinity;
  for (const item of g.children) {
    g.count += isGroup(item) ? item.count : item.node.kind === "op" ? 1 : 0;
    g.order = Math.min(g.order, order(item));
  }
}

/** A group of one thing gives way to it. */
function flatten(g: Group): void {
  g.children = g.children.map((item) => {
    if (!isGroup(item) || item.children.length !== 1) return item;
    const only = item.children[0]!;
    if (isGroup(only)) {
      const joined = { ...only, label: `${item.label}/${only.label}`, parent: g };
      for (const child of joined.children) child.parent = joined;
      return joined;
    }
    only.parent = g;
    return only;
  });
}

function signature(g: Group): string {
  return hash(g.children.map((item) => (isGroup(item) ? item.signature : item.node.call.op || item.node.kind)).join());
}

/** Two 32-bit FNV-1a hashes side by side. */
function hash(text: string): string {
  let [a, b] = [0x811c9dc5, 0x1b873593];
  for (let k = 0; k < text.length; k++) {
    const code = text.charCodeAt(k);
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ (code + k), 0x01000193);
  }
  return `${(a >>> 0).toString(36)}.${(b >>> 0).toString(36)}`;
}

function divide(g: Group): void {
  if (g.children.length > REPEATED) gather(g, repeats(g.children.map(kind)));
  while (g.children.length > FULL) {
    const n = g.children.length;
    const size = Math.ceil(n / Math.ceil(n / Math.max(12, Math.ceil(n / 40))));
    const cuts = Array.from(
      { length: Math.ceil(n / size) },
      (_, k) => [k * size, Math.min(n, (k + 1) * size)] as const,
    );
    gather(g, cuts);
  }
}

const kind = (item: Group | Leaf): string => (isGroup(item) ? item.signature : item.node.call.op || item.node.kind);

/** Puts ranges of children into groups of their own. */
function gather(g: Group, ranges: readonly (readonly [number, number])[]): void {
  let children: (Group | Leaf)[] = [];
  let at = 0;
  for (const [first, end] of ranges) {
    children = children.concat(g.children.slice(at, first));
    const members = g.children.slice(first, end);
    at = end;
    const made = group(named(members), g);
    made.children = members;
    for (const item of members) item.parent = made;
    measure(made);
    made.signature = signature(made);
    divide(made);
    children.push(made);
  }
  g.children = children.concat(g.children.slice(at));
}

function named(items: readonly (Group | Leaf)[]): string {
  const name = (item: Group | Leaf): string => (isGroup(item) ? item.label : item.node.call.op || item.node.label);
  const [first, last] = [name(items[0]!), name(items.at(-1)!)];
  return first === last ? first : `${first} … ${last}`;
}

/** The ranges of the longest run of equal blocks, one after the other; none where little repeats. */
export function repeats(kinds: readonly string[]): [number, number][] {
  const n = kinds.length;
  const numbers = new Map<string, number>();
  for (const k of kinds) if (!numbers.has(k)) numbers.set(k, numbers.size);
  const ids = Int32Array.from(kinds, (k) => numbers.get(k)!);
  let best = { period: 0, start: 0, length: 0 };
  for (let period = 4; period <= Math.min(n / 2, COMPARISONS / n); period++) {
    let longest = { run: 0, end: 0 };
    let run = 0;
    for (let k = 0; k + period < n; k++) {
      run = ids[k] === ids[k + period] ? run + 1 : 0;
      if (run > longest.run) longest = { run, end: k + 1 };
    }
    const length = longest.run + period;
    // A multiple of a period fits as well; the shorter one tells more.
    if (longest.run >= period && length > best.length * 1.1)
      best = { period, start: longest.end - longest.run, length };
  }
  const whole = Math.floor(best.length / (best.period || 1));
  const varied = new Set(kinds.slice(best.start, best.start + best.period)).size > 1;
  if (!varied || whole * best.period < n / 3) return [];
  return Array.from({ length: whole }, (_, k) => [best.start + k * best.period, best.start + (k + 1) * best.period]);
}
