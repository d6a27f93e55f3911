/** Strokes on the drawing area, each a list of points with x and y from 0 to 1. */
export type Point = { x: number; y: number };
export type Stroke = Point[];

const SIDE = 32;
const CELLS = 8;
/** Ink of a mean UCI digit: their strokes were thickened or thinned to about the same number of set pixels. */
const INK = 312;
const WIDEST = 28;

/**
 * Counts ink as the UCI digits do: the drawing is scaled to the height of a 32×32 bitmap and centred, then set pixels are
 * counted in 4×4 blocks. Returns 64 counts from 0 to 16, row by row; all zero for an empty drawing.
 */
export function countInk(strokes: readonly Stroke[]): Float32Array {
  const cells = new Float32Array(CELLS * CELLS);
  if (!strokes.some((stroke) => stroke.length > 0)) return cells;
  let [thin, thick] = [2, 12];
  let bitmap = draw(strokes, thin);
  while (thick - thin > 0.25) {
    const width = (thin + thick) / 2;
    const trial = draw(strokes, width);
    if (trial.reduce((a, b) => a + b, 0) > INK) thick = width;
    else [thin, bitmap] = [width, trial];
  }
  const block = SIDE / CELLS;
  bitmap.forEach((set, i) => {
    const cell = Math.floor(Math.floor(i / SIDE) / block) * CELLS + Math.floor((i % SIDE) / block);
    cells[cell]! += set;
  });
  return cells;
}

/** A 32×32 bitmap of the strokes drawn with a round pen of the given width, fitted to the bitmap. */
function draw(strokes: readonly Stroke[], width: number): Uint8Array {
  const points = strokes.flat();
  const [left, right] = range(points.map((p) => p.x));
  const [top, bottom] = range(points.map((p) => p.y));
  // A dot or a short dash stays small instead of being blown up.
  const tall = (SIDE - width) / Math.max(bottom - top, 0.5 * (right - left), 0.1);
  const wide = Math.min(tall, (WIDEST - width) / Math.max(right - left, 1e-6));
  const place = (p: Point): Point => ({
    x: SIDE / 2 + (p.x - (left + right) / 2) * wide,
    y: SIDE / 2 + (p.y - (top + bottom) / 2) * tall,
  });
  const bitmap = new Uint8Array(SIDE * SIDE);
  for (const stroke of strokes) {
    const path = stroke.map(place);
    path.forEach((a, i) => stamp(bitmap, a, path[i + 1] ?? a, width / 2));
  }
  return bitmap;
}

/** Sets the pixels whose centres are within `radius` of the segment. */
function stamp(bitmap: Uint8Array, a: Point, b: Point, radius: number): void {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length2 = dx * dx + dy * dy;
  const bound = (v: number): number => Math.max(0, Math.min(SIDE - 1, v));
  for (
    let y = bound(Math.floor(Math.min(a.y, b.y) - radius));
    y <= bound(Math.ceil(Math.max(a.y, b.y) + radius));
    y++
  ) {
    for (
      let x = bound(Math.floor(Math.min(a.x, b.x) - radius));
      x <= bound(Math.ceil(Math.max(a.x, b.x) + radius));
      x++
    ) {
      const [px, py] = [x + 0.5 - a.x, y + 0.5 - a.y];
      const t = length2 ? Math.max(0, Math.min(1, (px * dx + py * dy) / length2)) : 0;
      if ((px - t * dx) ** 2 + (py - t * dy) ** 2 <= radius * radius) bitmap[y * SIDE + x] = 1;
    }
  }
}

function range(values: number[]): [number, number] {
  return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
}
