/** What two models differ in: nodes that have no counterpart, and what is not the same of those that have one. */
import type { Model, Node } from "./model.js";
import { typeText } from "./scene.js";

export interface Pair {
  readonly left: Node | null;
  readonly right: Node | null;
  /** What differs, for people; empty for nodes of one side alone. */
  readonly changes: readonly string[];
}

export type Digests = Readonly<Record<string, string>>;

export interface Differences {
  /** Of the models as such. */
  readonly about: readonly string[];
  /** Pairs that differ, in the order of the first model. */
  readonly pairs: readonly Pair[];
  readonly counterpart: ReadonlyMap<Node, Node>;
}

export function differences(left: Model, right: Model, digests: readonly [Digests, Digests]): Differences {
  const counterpart = matched(left, right);
  const pairs: Pair[] = [];
  for (const node of left.nodes) {
    const other = counterpart.get(node);
    if (!other) {
      pairs.push({ left: node, right: null, changes: [] });
      continue;
    }
    const changes = changed(node, other, digests);
    if (changes.length) pairs.push({ left: node, right: other, changes });
  }
  for (const node of right.nodes) if (!counterpart.has(node)) pairs.push({ left: null, right: node, changes: [] });
  return { about: about(left, right), pairs, counterpart };
}

/** Nodes by their names, then by what they give, then by their order among those of their kind; both ways. */
function matched(left: Model, right: Model): Map<Node, Node> {
  const found = new Map<Node, Node>();
  const keys: ((node: Node) => string)[] = [
    (n) => (n.call.name ? `${n.kind} ${n.call.op} ${n.scope.join("/")} ${n.call.name}` : ""),
    (n) => (n.outputs[0]?.name ? `${n.kind} ${n.call.op} ${n.outputs[0].name}` : `${n.kind} ${n.label}`),
    (n) => (n.call.name ? `${n.kind} ${n.call.name}` : ""),
    (n) => `${n.kind} ${n.call.op} ${n.call.attrs.join()}`,
    (n) => (n.kind === "op" ? `${n.call.op}` : ""),
  ];
  for (const key of keys) {
    const waiting = new Map<string, Node[]>();
    for (const node of right.nodes) {
      const k = key(node);
      if (k && !found.has(node)) waiting.set(k, [...(waiting.get(k) ?? []), node]);
    }
    for (const node of left.nodes) {
      const k = key(node);
      const other = !found.has(node) && k ? waiting.get(k)?.shift() : undefined;
      if (!other) continue;
      found.set(node, other);
      found.set(other, node);
    }
  }
  return found;
}

function changed(a: Node, b: Node, [left, right]: readonly [Digests, Digests]): string[] {
  const changes: string[] = [];
  const tell = (what: string, before: string, after: string): void => {
    if (before !== after) changes.push(`${what}: ${before || "–"} → ${after || "–"}`);
  };
  tell("operator", a.call.op, b.call.op);
  tell("domain", a.call.domain, b.call.domain);
  const [before, after] = [new Map(a.call.attrs), new Map(b.call.attrs)];
  for (const name of new Set([...before.keys(), ...after.keys()]))
    tell(name, before.get(name) ?? "", after.get(name) ?? "");
  tell("inputs", `${a.inputs.length}`, `${b.inputs.length}`);
  a.inputs.forEach((value, k) => {
    const other = b.inputs[k];
    if (!value?.weight || !other?.weight) return;
    const type = (v: typeof value): string => `${v.weight!.dtype}[${v.weight!.shape.join(", ")}]`;
    tell(`weight ${value.name}`, type(value), type(other));
    const [x, y] = [left[value.name], right[other.name]];
    if (type(value) === type(other) && x && y && x !== y) changes.push(`weight ${value.name}: other contents`);
  });
  a.outputs.forEach((value, k) => {
    const other = b.outputs[k];
    if (value.declared?.shape && other?.declared?.shape)
      tell(`output ${k}`, typeText(value.declared), typeText(other.declared));
  });
  return changes;
}

function about({ description: a }: Model, { description: b }: Model): string[] {
  const [before, after] = [new Map(a.about), new Map(b.about)];
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const changes = names.filter((n) => before.get(n) !== after.get(n));
  return changes.map((n) => `${n}: ${before.get(n) ?? "–"} → ${after.get(n) ?? "–"}`);
}
