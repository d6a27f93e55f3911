/** From a picture to a model's input: the browser's half of pyonnx_wasm.jupyter.Preprocess, which documents it. */
import { arrayOf } from "../../player/dtypes.js";
import { even, store, type Tensor, type Type } from "./tensor.js";

export interface Preprocess {
  readonly trim: number | null;
  readonly resize: number | readonly [number, number] | null;
  readonly fit: "stretch" | "cover" | "contain";
  readonly filter: "nearest" | "box" | "bilinear" | "bicubic" | "lanczos";
  readonly fill: number;
  readonly crop: number | readonly [number, number] | null;
  readonly color: "RGB" | "BGR" | "L";
  readonly invert: boolean;
  readonly scale: number;
  readonly mean: number | readonly number[];
  readonly std: number | readonly number[];
  readonly layout: string;
  readonly dtype: Type;
}

/** 8-bit pixels, interleaved. */
export interface Pixels {
  readonly width: number;
  readonly height: number;
  readonly channels: 3 | 4;
  readonly data: Uint8Array | Uint8ClampedArray;
}

/** Where the source's pixels lie in the tensor: x ↦ x·sx + x0, y ↦ y·sy + y0. */
export interface Placement {
  readonly sx: number;
  readonly sy: number;
  readonly x0: number;
  readonly y0: number;
}

export interface Prepared {
  readonly tensor: Tensor;
  /** The pixels after all geometry, as the model sees them before scaling. */
  readonly seen: Pixels;
  readonly placement: Placement;
}

export function prepare(source: Pixels, spec: Preprocess): Prepared {
  let seen = opaque(source, spec.fill);
  let placement: Placement = { sx: 1, sy: 1, x0: 0, y0: 0 };
  const centre = (height: number, width: number, fill: number): void => {
    const [top, left] = [Math.floor((height - seen.height) / 2), Math.floor((width - seen.width) / 2)];
    seen = middle(seen, height, width, fill);
    placement = { ...placement, x0: placement.x0 + left, y0: placement.y0 + top };
  };
  const sample = (height: number, width: number): void => {
    const [fy, fx] = [height / seen.height, width / seen.width];
    seen = resample(seen, height, width, spec.filter);
    const { sx, sy, x0, y0 } = placement;
    placement = { sx: sx * fx, sy: sy * fy, x0: x0 * fx, y0: y0 * fy };
  };

  // Where the kernel is Pyodide, None arrives as undefined.
  if (spec.trim != null) {
    const box = ink(seen, spec.invert);
    if (box) {
      const longer = Math.max(box.bottom - box.top, box.right - box.left);
      const side = longer + 2 * Math.floor(longer * spec.trim + 0.5);
      seen = cut(seen, box.top, box.left, box.bottom - box.top, box.right - box.left);
      placement = { ...placement, x0: -box.left, y0: -box.top };
      centre(side, side, spec.invert ? 255 : 0);
    }
  }
  const { height: h, width: w } = seen;
  if (typeof spec.resize === "number") {
    const s = spec.resize;
    if (h <= w) sample(s, Math.max(1, Math.trunc((s * w) / h)));
    else sample(Math.max(1, Math.trunc((s * h) / w)), s);
  } else if (spec.resize) {
    const [height, width] = spec.resize;
    if (spec.fit === "stretch") sample(height, width);
    else {
      const ratio = Math[spec.fit === "cover" ? "max" : "min"](height / h, width / w);
      sample(Math.max(1, Math.floor(h * ratio + 0.5)), Math.max(1, Math.floor(w * ratio + 0.5)));
      centre(height, width, spec.fill);
    }
  }
  if (spec.crop != null) {
    const [height, width] = typeof spec.crop === "number" ? [spec.crop, spec.crop] : spec.crop;
    centre(height, width, spec.fill);
  }
  return { tensor: scaled(seen, spec), seen, placement };
}

function opaque({ width, height, channels, data }: Pixels, fill: number): Pixels {
  if (channels === 3) return { width, height, channels, data };
  const out = new Uint8Array(3 * width * height);
  for (let i = 0, o = 0; o < out.length; i += 4) {
    const alpha = data[i + 3]!;
    if (alpha === 255) for (let c = 0; c < 3; c++) out[o++] = data[i + c]!;
    else for (let c = 0; c < 3; c++) out[o++] = Math.floor((data[i + c]! * alpha + fill * (255 - alpha) + 127) / 255);
  }
  return { width, height, channels: 3, data: out };
}

function cut({ width, data }: Pixels, top: number, left: number, height: number, wide: number): Pixels {
  const out = new Uint8Array(3 * height * wide);
  for (let y = 0; y < height; y++) {
    const from = 3 * ((top + y) * width + left);
    out.set(data.subarray(from, from + 3 * wide), 3 * y * wide);
  }
  return { width: wide, height, channels: 3, data: out };
}

function middle(source: Pixels, height: number, width: number, fill: number): Pixels {
  if (source.height === height && source.width === width) return source;
  const out = new Uint8Array(3 * height * width).fill(fill);
  const [top, left] = [Math.floor((height - source.height) / 2), Math.floor((width - source.width) / 2)];
  const [from, to] = [Math.max(left, 0), Math.min(left + source.width, width)];
  for (let y = Math.max(top, 0); y < Math.min(top + source.height, height) && from < to; y++) {
    const row = 3 * ((y - top) * source.width - left);
    out.set(source.data.subarray(row + 3 * from, row + 3 * to), 3 * (y * width + from));
  }
  return { width, height, channels: 3, data: out };
}

/** The box around pixels whose brightest (inverted: darkest) channel is past a quarter of the range. */
function ink({ width, height, data }: Pixels, inverted: boolean) {
  let [top, bottom, left, right] = [height, 0, width, 0];
  for (let y = 0, i = 0; y < height; y++)
    for (let x = 0; x < width; x++, i += 3) {
      const [r, g, b] = [data[i]!, data[i + 1]!, data[i + 2]!];
      if (inverted ? Math.min(r, g, b) >= 192 : Math.max(r, g, b) <= 63) continue;
      if (y < top) top = y;
      bottom = y + 1;
      if (x < left) left = x;
      if (x >= right) right = x + 1;
    }
  return bottom > top ? { top, bottom, left, right } : undefined;
}

const sinc = (x: number): number => (x ? Math.sin(Math.PI * x) / (Math.PI * x) : 1);
const SHAPES: Record<Exclude<Preprocess["filter"], "nearest">, { reach: number; weight(x: number): number }> = {
  box: { reach: 0.5, weight: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) },
  bilinear: { reach: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: {
    reach: 2,
    weight(x) {
      const [a, d] = [-0.5, Math.abs(x)];
      if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
      return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
    },
  },
  lanczos: { reach: 3, weight: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};
/** Pillow weighs 8-bit pixels with integers of so many fractional bits. */
const FRACTION = 22;

interface Taps {
  readonly first: number;
  readonly weights: Int32Array;
}

/** For each of `to` positions the source positions that it draws on; the filter widens when the picture shrinks. */
function taps(from: number, to: number, filter: Exclude<Preprocess["filter"], "nearest">): Taps[] {
  const { reach, weight } = SHAPES[filter];
  const scale = from / to;
  const stretch = Math.max(scale, 1);
  const support = reach * stretch;
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(from, Math.trunc(centre + support + 0.5));
    const inverse = 1 / stretch;
    const raw = Array.from({ length: last - first }, (_, k) => weight((first + k - centre + 0.5) * inverse));
    const sum = raw.reduce((a, b) => a + b, 0);
    const weights = Int32Array.from(raw, (w) => Math.trunc((sum ? w / sum : w) * 2 ** FRACTION + (w < 0 ? -0.5 : 0.5)));
    return { first, weights };
  });
}

export function resample(source: Pixels, height: number, width: number, filter: Preprocess["filter"]): Pixels {
  if (source.height === height && source.width === width) return source;
  if (filter === "nearest") return nearest(source, height, width);
  const across = source.width === width ? source : pass(source, width, taps(source.width, width, filter), true);
  return source.height === height ? across : pass(across, height, taps(source.height, height, filter), false);
}

/** Resamples along one axis, rounding to 8 bits. */
function pass({ width, height, data }: Pixels, to: number, table: readonly Taps[], horizontal: boolean): Pixels {
  const [w, h] = horizontal ? [to, height] : [width, to];
  const out = new Uint8Array(3 * w * h);
  const step = horizontal ? 3 : 3 * width;
  const half = 1 << (FRACTION - 1);
  for (let y = 0, o = 0; y < h; y++)
    for (let x = 0; x < w; x++) {
      const { first, weights } = table[horizontal ? x : y]!;
      const start = horizontal ? 3 * (y * width + first) : 3 * (first * width + x);
      for (let c = 0; c < 3; c++, o++) {
        let sum = half;
        for (let k = 0, i = start + c; k < weights.length; k++, i += step) sum += data[i]! * weights[k]!;
        const value = sum >> FRACTION;
        out[o] = value < 0 ? 0 : value > 255 ? 255 : value;
      }
    }
  return { width: w, height: h, channels: 3, data: out };
}

function nearest({ width, height, data }: Pixels, h: number, w: number): Pixels {
  const out = new Uint8Array(3 * h * w);
  const [rows, columns] = [positions(height, h), positions(width, w)];
  for (let y = 0, o = 0; y < h; y++) {
    for (let x = 0; x < w; x++) {
      const i = 3 * (rows[y]! * width + columns[x]!);
      for (let c = 0; c < 3; c++) out[o++] = data[i + c]!;
    }
  }
  return { width: w, height: h, channels: 3, data: out };
}

/** Source positions nearest to the centres of `to` positions, summed up step by step as Pillow does. */
function positions(from: number, to: number): number[] {
  const step = from / to;
  let at = step / 2 - step;
  return Array.from({ length: to }, () => Math.min(from - 1, Math.floor((at += step))));
}

const LIMITS: Partial<Record<Type, [number, number]>> = {
  uint8: [0, 255],
  int8: [-128, 127],
  uint16: [0, 65535],
  int16: [-32768, 32767],
  int32: [-(2 ** 31), 2 ** 31 - 1],
  uint32: [0, 2 ** 32 - 1],
  int64: [-(2 ** 53), 2 ** 53],
  uint64: [0, 2 ** 53],
};

function scaled({ width, height, data }: Pixels, spec: Preprocess): Tensor {
  const { color, layout, dtype: type } = spec;
  const channels = color === "L" ? 1 : 3;
  const sizes: Record<string, number> = { N: 1, C: channels, H: height, W: width };
  const dims = [...layout].map((axis) => sizes[axis]!);
  const strideOf = (axis: string): number => {
    const at = layout.indexOf(axis);
    return at < 0 ? 0 : dims.slice(at + 1).reduce((a, b) => a * b, 1);
  };
  const [sc, sh, sw] = [strideOf("C"), strideOf("H"), strideOf("W")];
  const limits = LIMITS[type];
  const out = new (arrayOf(type))(channels * width * height);
  const put = store(type, out);
  // 256 values per channel: each is computed once.
  const tables = Array.from({ length: channels }, (_, c) => {
    const [mean, std] = [spec.mean, spec.std].map((v) => (typeof v === "number" ? v : v[c]!)) as [number, number];
    return Float64Array.from({ length: 256 }, (_, v) => {
      const value = ((spec.invert ? 255 - v : v) * spec.scale - mean) / std;
      return limits ? Math.min(limits[1], Math.max(limits[0], even(value))) : value;
    });
  });
  for (let y = 0, i = 0; y < height; y++)
    for (let x = 0; x < width; x++, i += 3) {
      const at = y * sh + x * sw;
      if (color === "L") {
        const luma = (data[i]! * 19595 + data[i + 1]! * 38470 + data[i + 2]! * 7471 + 0x8000) >> 16;
        put(at, tables[0]![luma]!);
      } else for (let c = 0; c < 3; c++) put(at + c * sc, tables[c]![data[i + (color === "BGR" ? 2 - c : c)]!]!);
    }
  return { type, dims, data: out };
}

/** The declaration as a person reads it. */
export function describe(spec: Preprocess): string {
  const pair = (v: number | readonly [number, number]) => (typeof v === "number" ? `${v}` : `${v[0]} × ${v[1]}`);
  const list = (v: number | readonly number[]) => (typeof v === "number" ? v : v.join(" "));
  const plain = (v: number | readonly number[], neutral: number) => [v].flat().every((x) => x === neutral);
  const steps: (string | false)[] = [
    spec.trim != null && `trim, margin ${spec.trim}`,
    spec.resize != null &&
      `resize ${typeof spec.resize === "number" ? "shorter side to " : ""}${pair(spec.resize)} (${
        typeof spec.resize === "number" ? "" : `${spec.fit}, `
      }${spec.filter})`,
    spec.crop != null && `crop ${pair(spec.crop)}`,
    spec.color,
    spec.invert && "invert",
    spec.scale !== 1 && `× ${fraction(spec.scale)}`,
    !plain(spec.mean, 0) && `− ${list(spec.mean)}`,
    !plain(spec.std, 1) && `÷ ${list(spec.std)}`,
    `${spec.layout} ${spec.dtype}`,
  ];
  return steps.filter(Boolean).join(" → ");
}

/** A factor as whole/255 or 1/whole, where it is one. */
function fraction(factor: number): string {
  const near = (v: number): boolean => v >= 1 && Math.abs(v - Math.round(v)) < 1e-9;
  if (near(factor * 255)) return `${Math.round(factor * 255)}/255`;
  return near(1 / factor) ? `1/${Math.round(1 / factor)}` : String(factor);
}
