/** Layered layout of one flat graph: ranks by longest path, order by barycentre sweeps, positions by aligned blocks. */

export interface Item {
  readonly width: number;
  readonly height: number;
  /** Rank in a linear order that most edges follow; edges against it are drawn upwards. */
  readonly order: number;
  /** How much it holds; the path that holds most is drawn straight. */
  readonly weight?: number;
  /** Ports of the surrounding box: above or below everything else. */
  readonly pin?: "top" | "bottom";
}

export interface Link {
  readonly from: number;
  readonly to: number;
  /** Where the edge meets its ends, from their centres. */
  readonly fromOffset?: number;
  readonly toOffset?: number;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Placed {
  /** Centres. */
  readonly items: readonly Point[];
  /** Per link: pairs of points; curves join the end of a pair with the begin of the next. */
  readonly links: readonly (readonly Point[])[];
  readonly width: number;
  readonly height: number;
}

const GAP_X = 40;
const GAP_LANE = 28;
const GAP_LANES = 12;
const GAP_Y = 34;
const GAP_PORT = 16;
const SWEEPS = 6;
/** Edges longer than this keep no lane free where there are too many of them. */
const MAX_DUMMIES = 20_000;

/** Places items and routes links. O(E log V) per sweep; nothing recurses, so depth is no limit. */
export function layered(items: readonly Item[], links: readonly Link[]): Placed {
  if (!items.length) return { items: [], links: [], width: 0, height: 0 };
  const net = new Net(items, links);
  net.order();
  const xs = assign(net);
  return net.placed(xs);
}

/** The graph with lanes: edges that span several ranks pass through dummies, shared by the edges of one source. */
class Net {
  readonly widths: number[];
  readonly ranks: Int32Array;
  readonly rows: number[][] = [];
  readonly up: number[][];
  readonly down: number[][];
  readonly position: number[];
  /** Pairs in neighbouring rows, `upper * size + lower`, that lie on the spine: the path that is drawn straight. */
  readonly spine = new Set<number>();
  private readonly chains: number[][];

  constructor(
    readonly items: readonly Item[],
    private readonly links: readonly Link[],
  ) {
    const n = items.length;
    this.widths = items.map((item) => item.width);
    this.ranks = rank(items, links);
    this.up = items.map(() => []);
    this.down = items.map(() => []);
    const rankOf = [...this.ranks];
    const height = rankOf.reduce((a, b) => Math.max(a, b), 0) + 1;
    for (let r = 0; r < height; r++) this.rows.push([]);
    const sorted = [...items.keys()].sort((a, b) => items[a]!.order - items[b]!.order);
    for (const i of sorted) this.rows[rankOf[i]!]!.push(i);

    const span = links.reduce((sum, { from, to }) => sum + Math.max(0, Math.abs(rankOf[to]! - rankOf[from]!) - 1), 0);
    const longest = span > MAX_DUMMIES ? Math.max(2, Math.floor(MAX_DUMMIES / links.length)) : height;
    const lanes = new Map<string, number>();
    const joined = new Set<string>();
    this.chains = links.map(({ from, to, fromOffset }) => {
      const [a, b] = rankOf[from]! <= rankOf[to]! ? [from, to] : [to, from];
      if (rankOf[a] === rankOf[b]) return [];
      const chain = [a];
      if (rankOf[b]! - rankOf[a]! <= longest) {
        for (let r = rankOf[a]! + 1; r < rankOf[b]!; r++) {
          const key = `${a} ${a === from ? (fromOffset ?? 0) : `up ${b}`} ${r}`;
          let lane = lanes.get(key);
          if (lane === undefined) {
            lane = this.widths.length;
            lanes.set(key, lane);
            this.widths.push(0);
            rankOf.push(r);
            this.up.push([]);
            this.down.push([]);
            this.rows[r]!.push(lane);
          }
          chain.push(lane);
        }
      }
      chain.push(b);
      if (chain.length > 2 || rankOf[b]! - rankOf[a]! === 1) {
        for (let k = 1; k < chain.length; k++) {
          const [u, v] = [chain[k - 1]!, chain[k]!];
          if (joined.has(`${u} ${v}`)) continue;
          joined.add(`${u} ${v}`);
          this.down[u]!.push(v);
          this.up[v]!.push(u);
        }
      }
      return a === from ? chain : chain.reverse();
    });
    const size = this.widths.length;
    for (const k of heaviest(items, links, this.ranks)) {
      const chain = this.chains[k]!;
      for (let i = 1; i < chain.length; i++) this.spine.add(chain[i - 1]! * size + chain[i]!);
    }
    this.position = new Array<number>(size).fill(0);
    this.number();
    this.ranks = Int32Array.from(rankOf);
    this.real = n;
  }

  readonly real: number;

  private number(): void {
    for (const row of this.rows) row.forEach((v, k) => (this.position[v] = k));
  }

  /** Reorders the rows so that few edges cross; the best order that a sweep found stays. */
  order(): void {
    let best = this.crossings();
    let kept = this.rows.map((row) => [...row]);
    for (let sweep = 0; sweep < SWEEPS && best > 0; sweep++) {
      const downwards = sweep % 2 === 0;
      const at = this.rows.map((_, r) => r);
      for (const r of downwards ? at : at.reverse()) this.sort(this.rows[r]!, downwards ? this.up : this.down);
      const crossings = this.crossings();
      if (crossings < best) {
        best = crossings;
        kept = this.rows.map((row) => [...row]);
      }
    }
    kept.forEach((row, r) => this.rows[r]!.splice(0, row.length, ...row));
    this.number();
  }

  private sort(row: number[], side: readonly number[][]): void {
    const centre = new Map<number, number>();
    row.forEach((v, k) => {
      const near = side[v]!;
      const sum = near.reduce(
        (total, u) => total + this.position[u]! / Math.max(1, this.rows[this.ranks[u]!]!.length),
        0,
      );
      centre.set(v, near.length ? sum / near.length : k / row.length);
    });
    row.sort((a, b) => centre.get(a)! - centre.get(b)! || this.position[a]! - this.position[b]!);
    row.forEach((v, k) => (this.position[v] = k));
  }

  /** How many pairs of edges cross between neighbouring rows, counted with a Fenwick tree. */
  private crossings(): number {
    let count = 0;
    for (let r = 1; r < this.rows.length; r++) {
      const size = this.rows[r]!.length;
      const tree = new Int32Array(size + 1);
      let seen = 0;
      for (const u of this.rows[r - 1]!) {
        const ends = this.down[u]!.map((v) => this.position[v]!).sort((a, b) => a - b);
        for (const end of ends) {
          let before = 0;
          for (let k = end + 1; k > 0; k -= k & -k) before += tree[k]!;
          count += seen - before;
        }
        for (const end of ends) {
          seen++;
          for (let k = end + 1; k <= size; k += k & -k) tree[k]!++;
        }
      }
    }
    return count;
  }

  /** The finished drawing; its left edge is at x = 0. */
  placed(xs: readonly number[]): Placed {
    const { items, rows, widths, ranks } = this;
    const left = xs.reduce((least, x, v) => Math.min(least, x - widths[v]! / 2), Infinity);
    const right = xs.reduce((most, x, v) => Math.max(most, x + widths[v]! / 2), -Infinity);
    const tops: number[] = [];
    const bottoms: number[] = [];
    let y = 0;
    rows.forEach((row, r) => {
      const heights = row.map((v) => (v < this.real ? items[v]!.height : 0));
      const slanted = row.reduce((n, v) => n + this.down[v]!.filter((w) => Math.abs(xs[w]! - xs[v]!) > 40).length, 0);
      const port = row.some((v) => items[v]?.pin) || (rows[r + 1]?.some((v) => items[v]?.pin) ?? false);
      tops.push(y);
      bottoms.push((y += Math.max(0, ...heights)));
      if (r < rows.length - 1) y += (port ? GAP_PORT : GAP_Y) + Math.min(60, slanted * 3);
    });
    const centre = (v: number): number => (tops[ranks[v]!]! + bottoms[ranks[v]!]!) / 2;
    const points = items.map((_, v) => ({ x: xs[v]! - left, y: centre(v) }));
    const links = this.links.map(({ from, to, fromOffset = 0, toOffset = 0 }, k) => {
      const chain = this.chains[k]!;
      const down = ranks[from]! <= ranks[to]!;
      const start = points[from]!;
      const end = points[to]!;
      const side = down ? 1 : -1;
      const path: Point[] = [{ x: start.x + fromOffset, y: start.y + (side * items[from]!.height) / 2 }];
      for (const lane of chain.slice(1, -1)) {
        const row = ranks[lane]!;
        const ys = down ? [tops[row]!, bottoms[row]!] : [bottoms[row]!, tops[row]!];
        path.push({ x: xs[lane]! - left, y: ys[0]! }, { x: xs[lane]! - left, y: ys[1]! });
      }
      path.push({ x: end.x + toOffset, y: end.y - (side * items[to]!.height) / 2 });
      return path;
    });
    return { items: points, links, width: right - left, height: y };
  }
}

/** Longest-path ranks; sources then move down to the first item that reads them. */
function rank(items: readonly Item[], links: readonly Link[]): Int32Array {
  const after: number[][] = items.map(() => []);
  const before = new Int32Array(items.length);
  const key = (i: number): number =>
    items[i]!.pin === "top" ? -Infinity : items[i]!.pin === "bottom" ? Infinity : items[i]!.order;
  const ranks = new Int32Array(items.length);
  const first = items.some((item) => item.pin === "top") ? 1 : 0;
  for (const { from, to } of links) {
    if (from === to) continue;
    const [a, b] = key(from) <= key(to) ? [from, to] : [to, from];
    after[a]!.push(b);
    before[b]!++;
  }
  const sorted = [...items.keys()].sort((a, b) => key(a) - key(b) || items[a]!.order - items[b]!.order);
  for (const a of sorted) {
    if (items[a]!.pin !== "top") ranks[a] = Math.max(ranks[a]!, first);
    for (const b of after[a]!) ranks[b] = Math.max(ranks[b]!, ranks[a]! + 1);
  }
  for (const a of sorted.reverse()) {
    if (items[a]!.pin || !after[a]!.length || before[a]! >= after[a]!.length) continue;
    ranks[a] = Math.min(...after[a]!.map((b) => ranks[b]!)) - 1;
  }
  let last = 0;
  items.forEach((item, i) => (last = Math.max(last, item.pin === "bottom" ? 0 : ranks[i]! + 1)));
  items.forEach((item, i) => {
    if (item.pin === "bottom") ranks[i] = Math.max(last, 1);
  });
  return ranks;
}

/** The links of the path whose items weigh most together; none where all items weigh alike. */
function heaviest(items: readonly Item[], links: readonly Link[], ranks: Int32Array): number[] {
  if (!items.some(({ weight }) => (weight ?? 0) > 1)) return [];
  const best = items.map(({ weight }) => weight ?? 0);
  const by = new Int32Array(items.length).fill(-1);
  const down = [...links.keys()].filter((k) => ranks[links[k]!.from]! < ranks[links[k]!.to]!);
  down.sort((a, b) => ranks[links[a]!.from]! - ranks[links[b]!.from]! || a - b);
  for (const k of down) {
    const { from, to } = links[k]!;
    const sum = best[from]! + (items[to]!.weight ?? 0);
    if (sum <= best[to]!) continue;
    best[to] = sum;
    by[to] = k;
  }
  let at = best.reduce((most, sum, i) => (sum > best[most]! ? i : most), 0);
  const path: number[] = [];
  for (; by[at]! >= 0; at = links[by[at]!]!.from) path.push(by[at]!);
  return path;
}

/** Horizontal positions: the middle of four layouts that align items with their median neighbours (Brandes and Köpf, 2001). */
function assign(net: Net): number[] {
  const conflicts = conflicting(net);
  const layouts: number[][] = [];
  for (const downwards of [true, false]) {
    for (const leftmost of [true, false]) {
      const rows = (downwards ? net.rows : [...net.rows].reverse()).map((row) => (leftmost ? row : [...row].reverse()));
      const xs = compact(net, rows, blocks(net, rows, downwards ? net.up : net.down, conflicts));
      layouts.push(leftmost ? xs : xs.map((x) => -x));
    }
  }
  const extent = layouts.map((xs) => {
    const low = xs.reduce((a, x, v) => Math.min(a, x - net.widths[v]! / 2), Infinity);
    const high = xs.reduce((a, x, v) => Math.max(a, x + net.widths[v]! / 2), -Infinity);
    return [low, high] as const;
  });
  const narrow = extent.reduce((best, [a, b], k) => (b - a < extent[best]![1] - extent[best]![0] ? k : best), 0);
  layouts.forEach((xs, k) => {
    const shift = k % 2 === 0 ? extent[narrow]![0] - extent[k]![0] : extent[narrow]![1] - extent[k]![1];
    xs.forEach((_, v) => (xs[v]! += shift));
  });
  return net.widths.map((_, v) => {
    const four = layouts.map((xs) => xs[v]!).sort((a, b) => a - b);
    return (four[1]! + four[2]!) / 2;
  });
}

/** Edges that cross a lane: the lane stays straight, they do not. */
function conflicting(net: Net): Set<number> {
  const size = net.widths.length;
  const found = new Set<number>();
  for (let r = 1; r < net.rows.length; r++) {
    const row = net.rows[r]!;
    let low = 0;
    let scan = 0;
    row.forEach((v, k) => {
      const inner = v >= net.real ? net.up[v]!.find((u) => u >= net.real) : undefined;
      if (inner === undefined && k < row.length - 1) return;
      const high = inner === undefined ? net.rows[r - 1]!.length : net.position[inner]!;
      for (; scan <= k; scan++) {
        const w = row[scan]!;
        for (const u of net.up[w]!) {
          const at = net.position[u]!;
          if ((at < low || at > high) && !(u >= net.real && w >= net.real)) found.add(u * size + w);
        }
      }
      low = high;
    });
  }
  return found;
}

/** The first item of each item's block: items join the block of a median neighbour, unless blocks would cross. */
function blocks(
  net: Net,
  rows: readonly (readonly number[])[],
  side: readonly (readonly number[])[],
  conflicts: ReadonlySet<number>,
): number[] {
  const size = net.widths.length;
  const root = Array.from({ length: size }, (_, v) => v);
  const align = Array.from({ length: size }, (_, v) => v);
  const at = new Array<number>(size);
  for (const row of rows) row.forEach((v, k) => (at[v] = k));
  const onSpine = (u: number, v: number): boolean =>
    net.spine.has(net.ranks[u]! < net.ranks[v]! ? u * size + v : v * size + u);
  for (const row of rows) {
    let reached = -1;
    // Nothing may be aligned across the spine.
    const straight = row.flatMap((v, k) => side[v]!.filter((u) => onSpine(u, v)).map((u) => [k, at[u]!] as const));
    for (const [k, v] of row.entries()) {
      const near = [...side[v]!].sort((a, b) => at[a]! - at[b]!);
      if (!near.length) continue;
      const middle = (near.length - 1) / 2;
      const first = near.findIndex((u) => onSpine(u, v));
      for (const n of new Set([...(first < 0 ? [] : [first]), Math.floor(middle), Math.ceil(middle)])) {
        const u = near[n]!;
        if (align[v] !== v || at[u]! <= reached) continue;
        if (straight.some(([place, other]) => (k < place && at[u]! >= other) || (k > place && at[u]! <= other)))
          continue;
        if (!onSpine(u, v) && conflicts.has(net.ranks[u]! < net.ranks[v]! ? u * size + v : v * size + u)) continue;
        align[u] = v;
        root[v] = root[u]!;
        align[v] = root[v]!;
        reached = at[u]!;
      }
    }
  }
  return root;
}

/** Longest path over the blocks from the left, then each block as far right as its neighbours let it, to shorten edges. */
function compact(net: Net, rows: readonly (readonly number[])[], root: readonly number[]): number[] {
  const size = net.widths.length;
  const right = new Map<number, Map<number, number>>();
  const waiting = new Int32Array(size);
  for (const row of rows) {
    for (let k = 1; k < row.length; k++) {
      const [u, v] = [row[k - 1]!, row[k]!];
      const [a, b] = [root[u]!, root[v]!];
      const lanes = Number(u >= net.real) + Number(v >= net.real);
      const gap = [GAP_X, GAP_LANE, GAP_LANES][lanes]!;
      const distance = net.widths[u]! / 2 + gap + net.widths[v]! / 2;
      const out = right.get(a) ?? new Map<number, number>();
      right.set(a, out);
      if (!out.has(b)) waiting[b]!++;
      out.set(b, Math.max(out.get(b) ?? 0, distance));
    }
  }
  const roots = root.map((_, v) => v).filter((v) => root[v] === v);
  const ready = roots.filter((v) => !waiting[v]);
  const xs = new Array<number>(size).fill(0);
  for (let k = 0; k < ready.length; k++) {
    const a = ready[k]!;
    for (const [b, distance] of right.get(a) ?? []) {
      xs[b] = Math.max(xs[b]!, xs[a]! + distance);
      if (--waiting[b]! === 0) ready.push(b);
    }
  }
  for (const a of ready.reverse()) {
    let limit = Infinity;
    for (const [b, distance] of right.get(a) ?? []) limit = Math.min(limit, xs[b]! - distance);
    if (limit < Infinity) xs[a] = Math.max(xs[a]!, limit);
  }
  return xs.map((_, v) => xs[root[v]!]!);
}
