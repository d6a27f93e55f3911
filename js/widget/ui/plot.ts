/** Small pictures of numbers: histogram, scatter, colour map. */
import { canvas, h, svg } from "./dom.js";
import { reader, short, summarise, type Summary, type Tensor } from "./tensor.js";

const W = 300;
const H = 50;

/** Counts of the values in equal bins between the least and the greatest, with both written below. */
export function histogram(values: ArrayLike<number>, label: string, format: (v: number) => string = short): Element {
  let [min, max] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!;
    if (v < min && v > -Infinity) min = v;
    if (v > max && v < Infinity) max = v;
  }
  const plot = svg("svg", {
    class: "pwx-plot",
    viewBox: `0 0 ${W} ${H}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  if (!(max >= min)) return plot;
  const bins = new Uint32Array(max > min ? 48 : 1);
  const scale = max > min ? bins.length / (max - min) : 0;
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!;
    if (v >= min && v <= max) bins[Math.min(bins.length - 1, Math.floor((v - min) * scale))]!++;
  }
  const top = Math.max(...bins);
  const width = bins.length > 1 ? W / bins.length : 12;
  bins.forEach((n, i) => {
    if (!n) return;
    const height = Math.max(1, (n / top) * (H - 2));
    const x = bins.length > 1 ? i * width : (W - width) / 2;
    plot.append(svg("rect", { class: "pwx-mark", x: x + 0.4, y: H - height, width: width - 0.8, height }));
  });
  plot.append(svg("path", { class: "pwx-axis", d: `M0 ${H - 0.5}H${W}` }));
  return h("div", {}, plot, h("div", { class: "pwx-ticks" }, h("span", {}, format(min)), h("span", {}, format(max))));
}

/** Stops of viridis. */
const STOPS = [
  [68, 1, 84],
  [70, 50, 127],
  [54, 92, 141],
  [39, 127, 142],
  [31, 161, 135],
  [74, 194, 109],
  [159, 218, 58],
  [253, 231, 37],
] as const;

/** Red, green and blue, 0 to 255, of a value from 0 to 1. */
export function viridis(t: number): [number, number, number] {
  const at = Math.min(1, Math.max(0, t)) * (STOPS.length - 1);
  const i = Math.min(STOPS.length - 2, Math.floor(at));
  const f = at - i;
  return [0, 1, 2].map((c) => Math.round(STOPS[i]![c]! * (1 - f) + STOPS[i + 1]![c]! * f)) as [number, number, number];
}

const TABLE = Array.from({ length: 256 }, (_, i) => viridis(i / 255));

/** Paints rows × columns of values; NaN is transparent. Larger grids are sampled to `most` a side. */
export function paintMap(
  target: HTMLCanvasElement,
  rows: number,
  columns: number,
  at: (row: number, column: number) => number,
  [low, high]: readonly [number, number],
  most = 512,
): void {
  const [h, w] = [Math.min(rows, most), Math.min(columns, most)];
  [target.width, target.height] = [Math.max(1, w), Math.max(1, h)];
  if (!h || !w) return;
  const image = new ImageData(w, h);
  const scale = high > low ? 255 / (high - low) : 0;
  for (let y = 0, o = 0; y < h; y++)
    for (let x = 0; x < w; x++, o += 4) {
      const value = at(Math.floor((y * rows) / h), Math.floor((x * columns) / w));
      if (Number.isNaN(value)) continue;
      image.data.set(TABLE[Math.round(Math.min(255, Math.max(0, scale ? (value - low) * scale : 127)))]!, o);
      image.data[o + 3] = 255;
    }
  target.getContext("2d")!.putImageData(image, 0, 0);
}

/** The last two axes of a tensor, at the first index of the others, as a coloured grid. */
export function slice(tensor: Tensor, { min, max }: Summary = summarise(tensor)): HTMLCanvasElement {
  const { dims } = tensor;
  const columns = dims.at(-1) ?? 1;
  const rows = dims.length > 1 ? dims.at(-2)! : 1;
  const target = canvas(`Values of the first ${rows} × ${columns}`, "pwx-grid");
  const at = reader(tensor);
  paintMap(target, rows, columns, (r, c) => at(r * columns + c), [min, max], 256);
  return target;
}
