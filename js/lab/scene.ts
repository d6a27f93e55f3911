/** What is on show: the boxes of the tree that no closed group hides, the edges between them, their texts and places. */
import { compound, type Box, type Edge, type Layout } from "./compound.js";
import { isGroup, type Group, type Leaf } from "./groups.js";
import type { Declared, Node, Size, Value } from "./model.js";

export interface Shown {
  readonly item: Group | Leaf;
  readonly open: boolean;
  readonly title: string;
  readonly subtitle: string;
  readonly parent: number;
  readonly width: number;
  readonly height: number;
}

export interface Wire {
  readonly from: number;
  readonly to: number;
  readonly values: readonly Value[];
}

export interface Scene {
  readonly boxes: readonly Shown[];
  readonly wires: readonly Wire[];
  readonly index: ReadonlyMap<Group | Leaf, number>;
  readonly layout: Layout;
}

export type Measure = (text: string, font: "title" | "subtitle") => number;

/** Boxes in the order that the layout needs, and the edges between closed ones. */
export function visible(
  root: Group,
  open: ReadonlySet<Group>,
  measure: Measure,
): Pick<Scene, "boxes" | "wires" | "index"> & { input: { boxes: Box[]; edges: Edge[] } } {
  const boxes: Shown[] = [];
  const index = new Map<Group | Leaf, number>();
  const place = new Map<Node, number>();
  const orders: number[] = [];
  const queue: { item: Group | Leaf; parent: number }[] = root.children.map((item) => ({ item, parent: -1 }));
  for (let k = 0; k < queue.length; k++) {
    const { item, parent } = queue[k]!;
    const isOpen = isGroup(item) && open.has(item);
    const [title, subtitle] = texts(item);
    const width = Math.ceil(
      Math.max(56, measure(title, "title") + 28, isOpen ? 0 : measure(subtitle, "subtitle") + 28),
    );
    boxes.push({
      item,
      open: isOpen,
      title,
      subtitle,
      parent,
      width: width + (isGroup(item) ? 16 : 0),
      height: subtitle ? 44 : 28,
    });
    orders.push(isGroup(item) ? item.order : item.node.id);
    index.set(item, k);
    if (isOpen) for (const child of item.children) queue.push({ item: child, parent: k });
    else for (const node of nodesIn(item)) place.set(node, k);
  }
  const wires = new Map<string, { from: number; to: number; values: Value[] }>();
  for (const [node, to] of place) {
    for (const value of sources(node, place)) {
      const from = place.get(value.producer!)!;
      if (from === to) continue;
      const key = `${from} ${to}`;
      const wire = wires.get(key) ?? { from, to, values: [] };
      wires.set(key, wire);
      if (!wire.values.includes(value)) wire.values.push(value);
    }
  }
  const kept = [...wires.values()];
  const input = {
    boxes: boxes.map(({ parent, open: isOpen, width, height }, k) => ({
      parent,
      open: isOpen,
      width,
      height,
      order: orders[k]!,
      weight: heavy(boxes[k]!.item),
    })),
    edges: kept.map(({ from, to }) => ({ from, to })),
  };
  return { boxes, wires: kept, index, input };
}

/** How much a box holds: blocks that repeat lie one below the other. */
const heavy = (item: Group | Leaf): number =>
  isGroup(item) ? item.count * (item.alike > 1 ? 100 : 1) : item.node.kind === "op" ? 1 : 0;

/** The values that a node reads from nodes on show, also through constants that are not. */
function sources(node: Node, place: ReadonlyMap<Node, number>): Value[] {
  return node.inputs.filter((v): v is Value => !!v?.producer && place.has(v.producer));
}

export function nodesIn(item: Group | Leaf): Node[] {
  const found: Node[] = [];
  const queue = [item];
  for (const next of queue) {
    if (isGroup(next)) queue.push(...next.children);
    else found.push(next.node);
  }
  return found;
}

function texts(item: Group | Leaf): [string, string] {
  if (isGroup(item)) {
    const count = `${item.count} ${item.count === 1 ? "node" : "nodes"}`;
    return [clip(item.label), item.count ? (item.alike > 1 ? `${count} · one of ${item.alike} alike` : count) : ""];
  }
  const { node } = item;
  if (node.kind !== "op") {
    const value = node.outputs[0] ?? node.inputs[0];
    return [clip(node.label), value?.declared ? clip(typeText(value.declared)) : ""];
  }
  const telling = node.inputs.filter(
    (v) => v?.weight && v.weight.dtype !== "int64" && v.weight.shape.some((d) => d > 1),
  );
  const weights = telling.map((v) => v!.weight!.shape.join("×"));
  return [clip(node.call.op), clip(weights.join("  "))];
}

const clip = (text: string): string => (text.length > 42 ? `${text.slice(0, 20)}…${text.slice(-20)}` : text);

export const shapeText = (shape: readonly Size[] | null): string => (shape ? `[${shape.join(", ")}]` : "");

export function typeText({ dtype, shape }: Declared): string {
  return `${dtype}${shapeText(shape)}`;
}

/** What stands beside a wire. */
export function wireText(values: readonly Value[]): string {
  if (values.length > 1) return `${values.length} tensors`;
  const { declared, content } = values[0]!;
  if (content) return clip(`= ${declared?.shape?.length ? `[${content.join(", ")}]` : content.join()}`);
  const shape = declared?.shape;
  if (!shape) return "";
  if (!shape.length) return "scalar";
  return clip(shape.every((d) => /^[\w.]+$/.test(String(d))) ? shape.join("×") : shape.join(", "));
}

/** Lays a scene out on the calling thread. */
export function scene(root: Group, open: ReadonlySet<Group>, measure: Measure): Scene {
  const { input, ...rest } = visible(root, open, measure);
  return { ...rest, layout: compound(input.boxes, input.edges) };
}
