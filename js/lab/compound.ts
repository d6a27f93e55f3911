/** Layout of nested boxes: each open group is laid out by itself, from the inside out; edges cross its border at ports. */
import { layered, type Item, type Link, type Point } from "./layered.js";

export interface Box {
  /** Index of the group around it, -1 at the top; groups come before what they hold. */
  readonly parent: number;
  readonly open: boolean;
  /** Size of a closed box; an open one grows to hold what is in it and is at least that wide. */
  readonly width: number;
  readonly height: number;
  readonly order: number;
  /** How much it holds; see `Item`. */
  readonly weight?: number;
}

export interface Edge {
  readonly from: number;
  readonly to: number;
}

export interface Rectangle {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** A piece of an edge inside one group, or between groups; pieces may serve several edges. */
export interface Piece {
  readonly points: readonly Point[];
  readonly edges: readonly number[];
  /** It ends at a closed box. */
  readonly arrow: boolean;
}

export interface Layout {
  readonly boxes: readonly Rectangle[];
  readonly pieces: readonly Piece[];
  readonly width: number;
  readonly height: number;
}

export const TITLE = 30;
const PADDING = 18;

interface Local {
  items: Item[];
  members: number[];
  links: (Link & { edges: number[]; arrow: boolean })[];
  known: Map<string, number>;
}

interface Inside {
  readonly width: number;
  readonly height: number;
  readonly centres: readonly Point[];
  readonly paths: readonly (readonly Point[])[];
}

/** Places boxes and routes edges between closed boxes. */
export function compound(boxes: readonly Box[], edges: readonly Edge[]): Layout {
  const top = boxes.length;
  const groups = new Map<number, Local>();
  const at = new Array<number>(boxes.length).fill(0);
  const local = (group: number): Local => {
    let found = groups.get(group);
    if (!found) groups.set(group, (found = { items: [], members: [], links: [], known: new Map() }));
    return found;
  };
  const around = (box: number): number => (boxes[box]!.parent < 0 ? top : boxes[box]!.parent);
  local(top);
  boxes.forEach((_, b) => {
    const group = local(around(b));
    at[b] = group.members.push(b) - 1;
    if (boxes[b]!.open) local(b);
  });
  const path = (box: number): number[] => {
    const groupsAround = [];
    for (let g = boxes[box]!.parent; g >= 0; g = boxes[g]!.parent) groupsAround.push(g);
    return groupsAround;
  };

  // Ports are numbered behind a group's members, one per source of edges that enter and one per source that leaves.
  const ports = new Map<number, { name: string; pin: "top" | "bottom"; order: number }[]>();
  const port = (group: number, name: string, pin: "top" | "bottom", order: number): number => {
    const own = ports.get(group) ?? [];
    ports.set(group, own);
    let k = own.findIndex((p) => p.name === name);
    if (k < 0) k = own.push({ name, pin, order }) - 1;
    return local(group).members.length + k;
  };
  const wired: {
    group: number;
    from: number;
    to: number;
    leaves?: string;
    enters?: string;
    edge: number;
    arrow: boolean;
  }[] = [];
  edges.forEach(({ from, to }, edge) => {
    if (from === to) return;
    const outer = path(from);
    const inner = path(to);
    const common = outer.find((g) => inner.includes(g)) ?? top;
    const upward = outer.slice(0, common === top ? outer.length : outer.indexOf(common));
    const downward = inner.slice(0, common === top ? inner.length : inner.indexOf(common));
    const name = `${from}`;
    let last = from;
    for (const group of upward) {
      const own = port(group, `out ${name}`, "bottom", boxes[from]!.order);
      wired.push({
        group,
        from: at[last]!,
        to: own,
        ...(last === from ? {} : { leaves: `out ${name}` }),
        edge,
        arrow: false,
      });
      last = group;
    }
    const entered = [...downward].reverse();
    const target = entered[0] ?? to;
    wired.push({
      group: common,
      from: at[last]!,
      to: at[target]!,
      ...(last === from ? {} : { leaves: `out ${name}` }),
      ...(target === to ? {} : { enters: `in ${name}` }),
      edge,
      arrow: target === to,
    });
    entered.forEach((group, k) => {
      const next = entered[k + 1] ?? to;
      const own = port(group, `in ${name}`, "top", boxes[from]!.order);
      const enters = next === to ? {} : { enters: `in ${name}` };
      wired.push({ group, from: own, to: at[next]!, ...enters, edge, arrow: next === to });
    });
  });
  const wires = new Map<number, typeof wired>();
  for (const wire of wired) (wires.get(wire.group) ?? wires.set(wire.group, []).get(wire.group)!).push(wire);

  const inside = new Map<number, Inside>();
  const sizes = boxes.map(({ width, height }) => ({ width, height }));
  const portX = (member: number | undefined, name: string | undefined): number => {
    if (member === undefined || name === undefined) return 0;
    const laid = inside.get(member)!;
    const k = ports.get(member)!.findIndex((p) => p.name === name);
    return laid.centres[local(member).members.length + k]!.x - laid.width / 2;
  };
  const layOut = (group: number): void => {
    const { members, links, known } = local(group);
    const own = ports.get(group) ?? [];
    const items: Item[] = [
      ...members.map((b) => ({ ...sizes[b]!, order: boxes[b]!.order, weight: boxes[b]!.weight ?? 0 })),
      ...own.map(({ pin, order }) => ({ width: 0, height: 0, pin, order })),
    ];
    for (const wire of wires.get(group) ?? []) {
      const key = `${wire.from} ${wire.to} ${wire.leaves ?? ""} ${wire.enters ?? ""}`;
      const found = known.get(key);
      if (found !== undefined) {
        links[found]!.edges.push(wire.edge);
        continue;
      }
      const fromOffset = portX(members[wire.from], wire.leaves);
      const toOffset = portX(members[wire.to], wire.enters);
      known.set(
        key,
        links.push({ from: wire.from, to: wire.to, fromOffset, toOffset, edges: [wire.edge], arrow: wire.arrow }) - 1,
      );
    }
    const laid = layered(items, links);
    const border =
      group === top
        ? { width: 0, title: 0, padding: 0 }
        : { width: boxes[group]!.width, title: TITLE, padding: PADDING };
    const width = Math.max(laid.width + 2 * border.padding, border.width);
    const shift = (width - laid.width) / 2;
    const height = laid.height + border.title + border.padding;
    const move = ({ x, y }: Point): Point => ({ x: x + shift, y: y + border.title });
    const centres = laid.items.map(move);
    const paths = laid.links.map((points, k) => {
      const { from, to } = links[k]!;
      const moved = points.map(move);
      if (items[from]!.pin === "top") moved.unshift({ x: moved[0]!.x, y: 0 });
      if (items[to]!.pin === "bottom") moved.push({ x: moved.at(-1)!.x, y: height });
      return moved;
    });
    inside.set(group, { width, height, centres, paths });
    if (group !== top) sizes[group] = { width, height };
  };
  for (let b = boxes.length - 1; b >= 0; b--) if (boxes[b]!.open) layOut(b);
  layOut(top);

  const rectangles = new Array<Rectangle>(boxes.length);
  const pieces: Piece[] = [];
  const origin = (group: number): Point => (group === top ? { x: 0, y: 0 } : rectangles[group]!);
  for (const group of [top, ...boxes.keys()]) {
    if (group !== top && !boxes[group]!.open) continue;
    const { centres, paths } = inside.get(group)!;
    const { members, links } = local(group);
    const from = origin(group);
    members.forEach((b, k) => {
      const { width, height } = sizes[b]!;
      rectangles[b] = { x: from.x + centres[k]!.x - width / 2, y: from.y + centres[k]!.y - height / 2, width, height };
    });
    links.forEach(({ edges: served, arrow }, k) =>
      pieces.push({ points: paths[k]!.map((p) => ({ x: from.x + p.x, y: from.y + p.y })), edges: served, arrow }),
    );
  }
  const all = inside.get(top)!;
  return { boxes: rectangles, pieces, width: all.width, height: all.height };
}
