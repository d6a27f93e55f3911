/** Draws a scene: on a canvas, or as SVG text. What a model names is only ever drawn as text. */
import type { Piece, Rectangle } from "./compound.js";
import { isGroup } from "./groups.js";
import { hue } from "./hues.js";
import type { Point } from "./layered.js";
import { wireText, type Scene, type Shown } from "./scene.js";

export interface Palette {
  readonly dark: boolean;
  readonly background: string;
  readonly text: string;
  readonly faint: string;
  readonly line: string;
  readonly border: string;
  readonly accent: string;
  readonly error: string;
}

/** The colours that hold in an element; where no theme says, `dark` does. */
export function palette(element: Element, dark: boolean, prefix = "--jp"): Palette {
  const style = getComputedStyle(element);
  const take = (name: string, otherwise: string): string => style.getPropertyValue(prefix + name).trim() || otherwise;
  return {
    dark,
    background: take("-layout-color1", dark ? "#17181b" : "#fff"),
    text: take("-ui-font-color0", dark ? "#fff" : "#111"),
    faint: take("-ui-font-color2", dark ? "#aaa" : "#555"),
    line: dark ? "#6c7683" : "#98a2ae",
    border: take("-border-color1", dark ? "#555" : "#bbb"),
    accent: take("-brand-color1", dark ? "#64b5f6" : "#1976d2"),
    error: take("-error-color1", dark ? "#ef9a9a" : "#d32f2f"),
  };
}

/** Of a node, against another model. */
export type Difference = "missing" | "changed";

export interface Marks {
  readonly selected: number;
  readonly found: ReadonlySet<number>;
  /** Share of the run's time per box, in [0, 1]. */
  readonly heat: ReadonlyMap<number, number>;
  readonly differences: ReadonlyMap<number, Difference>;
}

export const NO_MARKS: Marks = { selected: -1, found: new Set(), heat: new Map(), differences: new Map() };

export const FONTS = {
  title: "600 12px system-ui, -apple-system, 'Segoe UI', sans-serif",
  subtitle: "11px system-ui, -apple-system, 'Segoe UI', sans-serif",
  label: "10px system-ui, -apple-system, 'Segoe UI', sans-serif",
} as const;

interface TextStyle {
  readonly font: keyof typeof FONTS;
  readonly fill: string;
  readonly align?: "start" | "middle";
  readonly halo?: string;
  /** Draws larger than the font says, for titles that stay readable from far. */
  readonly zoom?: number;
}

/** The little that both surfaces must know. */
export interface Pen {
  rectangle(at: Rectangle, radius: number, fill: string, stroke: string, width?: number, dashed?: boolean): void;
  curve(points: readonly Point[], stroke: string, width: number): void;
  arrow(tip: Point, down: boolean, fill: string): void;
  text(text: string, x: number, y: number, style: TextStyle): void;
}

/** Draws what lies inside `view` at `scale`; far away, texts and arrows are left out. */
export function paint(pen: Pen, scene: Scene, palette: Palette, marks: Marks, view: Rectangle, scale: number): void {
  const { boxes, layout } = scene;
  const seen = (r: Rectangle): boolean =>
    r.x < view.x + view.width && r.x + r.width > view.x && r.y < view.y + view.height && r.y + r.height > view.y;
  const shown = boxes.flatMap((_, k) => (seen(layout.boxes[k]!) ? [k] : []));
  for (const k of shown) if (boxes[k]!.open) openGroup(pen, layout.boxes[k]!, palette, marks.selected === k);
  const lit = (piece: Piece): boolean =>
    marks.selected >= 0 &&
    piece.edges.some((e) => scene.wires[e]!.from === marks.selected || scene.wires[e]!.to === marks.selected);
  const drawn = layout.pieces.filter((piece) => seen(extent(piece.points)));
  const labels: [string, number, number][] = [];
  for (const pass of [false, true]) {
    for (const piece of drawn) {
      if (lit(piece) !== pass) continue;
      const colour = pass ? palette.accent : palette.line;
      pen.curve(piece.points, colour, pass ? 2 : 1);
      const [tip, before] = [piece.points.at(-1)!, piece.points.at(-2)!];
      if (piece.arrow && scale > 0.25) pen.arrow(tip, tip.y >= before.y, colour);
    }
  }
  if (scale > 0.5) labels.push(...wireLabels(scene, drawn));
  for (const k of shown) if (!boxes[k]!.open) closedBox(pen, boxes[k]!, layout.boxes[k]!, palette, marks, k, scale);
  groupTitles(pen, scene, shown, palette, scale);
  for (const [text, x, y] of labels)
    pen.text(text, x, y, { font: "label", fill: palette.faint, halo: palette.background });
}

/** One label per source of equal values, one per edge where they differ. */
function wireLabels(scene: Scene, drawn: readonly Piece[]): [string, number, number][] {
  const labels: [string, number, number][] = [];
  const told = new Set<string>();
  for (const piece of drawn) {
    const wire = scene.wires[piece.edges[0]!]!;
    const start = piece.points[0]!;
    const source = scene.layout.boxes[wire.from]!;
    if (Math.abs(start.y - source.y - source.height) > 1) continue;
    const text = wireText(wire.values);
    if (!text || told.has(`${wire.from} ${text}`)) continue;
    const first = ![...told].some((key) => key.startsWith(`${wire.from} `));
    told.add(`${wire.from} ${text}`);
    const end = piece.points[1]!;
    if (first) labels.push([text, start.x + 5, start.y + 12]);
    else labels.push([text, end.x + 5, end.y - 8]);
  }
  return labels;
}

function openGroup(pen: Pen, at: Rectangle, palette: Palette, selected: boolean): void {
  const fill = palette.dark ? "rgba(255, 255, 255, 0.035)" : "rgba(60, 80, 120, 0.04)";
  pen.rectangle(at, 8, fill, selected ? palette.accent : palette.border, selected ? 2 : 1);
}

/** Titles of open groups, larger from afar; one that would cover another's is left out. */
function groupTitles(pen: Pen, scene: Scene, shown: readonly number[], palette: Palette, scale: number): void {
  const zoom = Math.min(Math.max(1, 0.8 / scale), 12);
  const taken: Rectangle[] = [];
  for (const k of shown) {
    const [box, at] = [scene.boxes[k]!, scene.layout.boxes[k]!];
    const room = Math.floor((at.width - 14) / (7.2 * zoom)) - 2;
    if (!box.open || room < Math.min(4, box.title.length)) continue;
    const text = box.title.length > room ? `${box.title.slice(0, Math.max(0, room - 1))}…` : box.title;
    const place = { x: at.x + 10, y: at.y + 4, width: (text.length + 2) * 7.2 * zoom, height: 17 * zoom };
    if (
      taken.some(
        (t) =>
          t.x < place.x + place.width &&
          place.x < t.x + t.width &&
          t.y < place.y + place.height &&
          place.y < t.y + t.height,
      )
    )
      continue;
    taken.push(place);
    pen.text(`− ${text}`, place.x, at.y + 5 + 14 * zoom, {
      font: "title",
      fill: palette.faint,
      zoom,
      halo: palette.background,
    });
  }
}

function closedBox(
  pen: Pen,
  box: Shown,
  at: Rectangle,
  palette: Palette,
  marks: Marks,
  k: number,
  scale: number,
): void {
  const style = boxStyle(box, palette);
  const stroke = marks.selected === k || marks.found.has(k) ? palette.accent : style.stroke;
  const width = marks.selected === k ? 2.5 : marks.found.has(k) ? 2 : 1;
  const middle = at.x + at.width / 2;
  if (isGroup(box.item)) {
    const behind = { ...at, x: at.x + 3, y: at.y + 3 };
    if (scale > 0.2) pen.rectangle(behind, 7, style.fill, style.stroke);
  }
  const differs = marks.differences.get(k);
  if (differs) {
    const around = { x: at.x - 4, y: at.y - 4, width: at.width + 8, height: at.height + 8 };
    pen.rectangle(around, 9, "none", differs === "missing" ? palette.error : "#e08a00", 3 / Math.min(1, scale * 2));
  }
  const round = !isGroup(box.item) && box.item.node.kind !== "op" ? at.height / 2 : 6;
  const far = scale < 0.25 && stroke !== palette.accent;
  pen.rectangle(at, round, far ? style.stroke : style.fill, stroke, width / Math.min(1, scale * 3), style.dashed);
  const heat = marks.heat.get(k);
  if (heat !== undefined) {
    const bar = { x: at.x + 6, y: at.y + at.height - 5, width: Math.max(2, (at.width - 12) * heat), height: 3 };
    pen.rectangle(bar, 1.5, `hsl(${Math.round(45 - 45 * heat)} 90% 50%)`, "none");
  }
  if (scale < 0.2) return;
  const title = isGroup(box.item) ? `+ ${box.title}` : box.title;
  pen.text(title, middle, at.y + (box.subtitle ? 18 : at.height / 2 + 4), {
    font: "title",
    fill: style.text,
    align: "middle",
  });
  if (box.subtitle && scale > 0.35)
    pen.text(box.subtitle, middle, at.y + 34, { font: "subtitle", fill: style.faint, align: "middle" });
}

interface BoxStyle {
  fill: string;
  stroke: string;
  text: string;
  faint: string;
  dashed: boolean;
}

function boxStyle(box: Shown, { dark, background, text, faint, border, error }: Palette): BoxStyle {
  if (isGroup(box.item))
    return { fill: dark ? "#2b3138" : "#f4f6f9", stroke: dark ? "#56616e" : "#b3bfcd", text, faint, dashed: false };
  const { kind, call } = box.item.node;
  if (kind !== "op") return { fill: background, stroke: border, text, faint, dashed: false };
  if (call.family === null) return { fill: background, stroke: error, text: error, faint, dashed: true };
  const h = hue(call.op);
  return dark
    ? {
        fill: `hsl(${h} 28% 25%)`,
        stroke: `hsl(${h} 30% 50%)`,
        text: `hsl(${h} 55% 86%)`,
        faint: `hsl(${h} 18% 68%)`,
        dashed: false,
      }
    : {
        fill: `hsl(${h} 62% 95%)`,
        stroke: `hsl(${h} 38% 68%)`,
        text: `hsl(${h} 60% 26%)`,
        faint: `hsl(${h} 18% 44%)`,
        dashed: false,
      };
}

function extent(points: readonly Point[]): Rectangle {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y } of points) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x);
    bottom = Math.max(bottom, y);
  }
  return { x: left - 40, y: top - 4, width: right - left + 80, height: bottom - top + 8 };
}

/** Control points of the curve from a to b, which leaves and arrives vertically. */
function controls(a: Point, b: Point): [Point, Point] {
  const middle = (a.y + b.y) / 2;
  return [
    { x: a.x, y: middle },
    { x: b.x, y: middle },
  ];
}

export class CanvasPen implements Pen {
  constructor(private readonly context: CanvasRenderingContext2D) {
    context.lineJoin = "round";
  }

  rectangle(
    { x, y, width, height }: Rectangle,
    radius: number,
    fill: string,
    stroke: string,
    line = 1,
    dashed = false,
  ): void {
    const c = this.context;
    c.beginPath();
    c.roundRect(x, y, width, height, Math.min(radius, height / 2));
    if (fill !== "none") {
      c.fillStyle = fill;
      c.fill();
    }
    if (stroke === "none") return;
    c.setLineDash(dashed ? [4, 3] : []);
    c.strokeStyle = stroke;
    c.lineWidth = line;
    c.stroke();
    c.setLineDash([]);
  }

  curve(points: readonly Point[], stroke: string, width: number): void {
    const c = this.context;
    c.beginPath();
    c.moveTo(points[0]!.x, points[0]!.y);
    for (let k = 1; k < points.length; k++) {
      const [a, b] = [points[k - 1]!, points[k]!];
      if (a.x === b.x) {
        c.lineTo(b.x, b.y);
        continue;
      }
      const [p, q] = controls(a, b);
      c.bezierCurveTo(p.x, p.y, q.x, q.y, b.x, b.y);
    }
    c.strokeStyle = stroke;
    c.lineWidth = width;
    c.stroke();
  }

  arrow({ x, y }: Point, down: boolean, fill: string): void {
    const c = this.context;
    const back = down ? -7 : 7;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x - 3.5, y + back);
    c.lineTo(x + 3.5, y + back);
    c.fillStyle = fill;
    c.fill();
  }

  text(text: string, x: number, y: number, { font, fill, align = "start", halo, zoom = 1 }: TextStyle): void {
    const c = this.context;
    c.save();
    c.translate(x, y);
    c.scale(zoom, zoom);
    c.font = FONTS[font];
    c.textAlign = align === "middle" ? "center" : "left";
    if (halo) {
      c.strokeStyle = halo;
      c.lineWidth = 3;
      c.strokeText(text, 0, 0);
    }
    c.fillStyle = fill;
    c.fillText(text, 0, 0);
    c.restore();
  }
}

/** Text that stands for itself inside SVG; characters that XML cannot hold become U+FFFD. */
export function escaped(text: string): string {
  return text
    .replace(/[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD")
    .replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

export class SvgPen implements Pen {
  private readonly parts: string[] = [];

  rectangle(
    { x, y, width, height }: Rectangle,
    radius: number,
    fill: string,
    stroke: string,
    line = 1,
    dashed = false,
  ): void {
    const dash = dashed ? ` stroke-dasharray="4 3"` : "";
    const place = `x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" rx="${n(Math.min(radius, height / 2))}"`;
    this.parts.push(`<rect ${place} fill="${fill}" stroke="${stroke}" stroke-width="${line}"${dash}/>`);
  }

  curve(points: readonly Point[], stroke: string, width: number): void {
    const path = points.slice(1).map((b, k) => {
      const [p, q] = controls(points[k]!, b);
      return `C${n(p.x)} ${n(p.y)} ${n(q.x)} ${n(q.y)} ${n(b.x)} ${n(b.y)}`;
    });
    const start = `M${n(points[0]!.x)} ${n(points[0]!.y)}`;
    this.parts.push(`<path d="${start}${path.join("")}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`);
  }

  arrow({ x, y }: Point, down: boolean, fill: string): void {
    const back = y + (down ? -7 : 7);
    this.parts.push(`<path d="M${n(x)} ${n(y)}L${n(x - 3.5)} ${n(back)}L${n(x + 3.5)} ${n(back)}Z" fill="${fill}"/>`);
  }

  text(text: string, x: number, y: number, { font, fill, align = "start", halo, zoom = 1 }: TextStyle): void {
    const [weight, size] = font === "title" ? ["600", 12] : ["400", font === "label" ? 10 : 11];
    const under = halo ? ` stroke="${halo}" stroke-width="3" paint-order="stroke"` : "";
    const style = `font-size="${n(Number(size) * zoom)}" font-weight="${weight}" text-anchor="${align}" fill="${fill}"${under}`;
    this.parts.push(`<text x="${n(x)}" y="${n(y)}" ${style}>${escaped(text)}</text>`);
  }

  document({ x, y, width, height }: Rectangle, background: string): string {
    const box = `viewBox="${n(x)} ${n(y)} ${n(width)} ${n(height)}" width="${n(width)}" height="${n(height)}"`;
    const head = `<svg xmlns="http://www.w3.org/2000/svg" ${box} font-family="system-ui, sans-serif">`;
    const back = `<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" fill="${background}"/>`;
    return `${head}${back}${this.parts.join("")}</svg>\n`;
  }
}

const n = (value: number): string => String(Math.round(value * 10) / 10);

/** The whole scene with a margin. */
export function whole(scene: Scene): Rectangle {
  return { x: -24, y: -24, width: scene.layout.width + 48, height: scene.layout.height + 48 };
}

export function toSvg(scene: Scene, palette: Palette): string {
  const pen = new SvgPen();
  const view = whole(scene);
  paint(pen, scene, palette, NO_MARKS, view, 1);
  return pen.document(view, palette.background);
}

/** A picture of the whole scene at twice its size, or as large as canvases can be. */
export function toPng(scene: Scene, palette: Palette): Promise<Blob | null> {
  const view = whole(scene);
  const scale = Math.min(2, 16_000 / Math.max(view.width, view.height), Math.sqrt(60e6 / (view.width * view.height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.floor(view.width * scale));
  canvas.height = Math.max(1, Math.floor(view.height * scale));
  const context = canvas.getContext("2d")!;
  context.fillStyle = palette.background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(scale, scale);
  context.translate(-view.x, -view.y);
  paint(new CanvasPen(context), scene, palette, NO_MARKS, view, 1);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
