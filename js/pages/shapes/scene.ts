/** Pictures of shapes, made up here. */

export const LABELS = ["circle", "square", "triangle", "star", "heart"] as const;
export type Label = (typeof LABELS)[number];

export interface Shape {
  readonly label: Label;
  x: number;
  y: number;
  readonly radius: number;
  turn: number;
  /** Per second. */
  readonly speed: { x: number; y: number; readonly turn: number };
  readonly colour: string;
  /** Width of an outline; undefined: filled. */
  readonly line: number | undefined;
}

export const WIDTH = 768;
export const HEIGHT = 576;
const MARGIN = 12;
const TRIES = 60;

function between(low: number, high: number): number {
  return low + (high - low) * Math.random();
}

function some<T>(values: readonly T[]): T {
  return values[Math.floor(Math.random() * values.length)]!;
}

/** Corners within about one unit of the origin, y downwards; undefined: a circle. */
function corners(label: Label): [number, number][] | undefined {
  if (label === "circle") return undefined;
  if (label === "heart")
    return Array.from({ length: 60 }, (_, i) => {
      const t = (i / 60) * 2 * Math.PI;
      const y = 13 * Math.cos(t) - 5 * Math.cos(2 * t) - 2 * Math.cos(3 * t) - Math.cos(4 * t);
      return [Math.sin(t) ** 3, (-y - 2) / 16];
    });
  const n = { square: 4, triangle: 3, star: 10 }[label];
  const start = label === "square" ? Math.PI / 4 : Math.PI / 2;
  return Array.from({ length: n }, (_, i) => {
    const [angle, r] = [(i / n) * 2 * Math.PI - start, label === "star" && i % 2 ? 0.45 : 1];
    return [r * Math.cos(angle), r * Math.sin(angle)];
  });
}

/** Shapes that do not touch, on a ground of their own. */
export class Scene {
  readonly shapes: Shape[] = [];
  readonly #ground: readonly [string, string];

  constructor() {
    const hue = between(0, 360);
    const dark = Math.random() < 0.4;
    const light = dark ? between(14, 28) : between(84, 94);
    this.#ground = [`hsl(${hue} 40% ${light}%)`, `hsl(${hue + between(-50, 50)} 45% ${light - 8}%)`];
    const count = Math.round(between(4, 9));
    for (let i = 0; i < TRIES && this.shapes.length < count; i++) {
      const radius = between(32, 105);
      const [x, y] = [WIDTH, HEIGHT].map((side) => between(radius + MARGIN, side - radius - MARGIN)) as [
        number,
        number,
      ];
      if (this.shapes.every((other) => Math.hypot(x - other.x, y - other.y) > radius + other.radius + MARGIN))
        this.shapes.push(made(x, y, radius, dark));
    }
  }

  draw(context: CanvasRenderingContext2D): void {
    const ground = context.createLinearGradient(0, 0, WIDTH, HEIGHT);
    this.#ground.forEach((colour, i) => ground.addColorStop(i, colour));
    context.fillStyle = ground;
    context.fillRect(0, 0, WIDTH, HEIGHT);
    for (const shape of this.shapes) drawShape(context, shape);
  }

  /** Moves on by so many seconds: shapes turn, and bounce off the borders and off each other. */
  move(seconds: number): void {
    for (const [i, shape] of this.shapes.entries()) {
      const { speed, radius } = shape;
      for (const [axis, side] of [
        ["x", WIDTH],
        ["y", HEIGHT],
      ] as const) {
        shape[axis] += speed[axis] * seconds;
        if (shape[axis] < radius + MARGIN) speed[axis] = Math.abs(speed[axis]);
        if (shape[axis] > side - radius - MARGIN) speed[axis] = -Math.abs(speed[axis]);
      }
      shape.turn += speed.turn * seconds;
      for (const other of this.shapes.slice(0, i)) bounce(shape, other);
    }
  }
}

function made(x: number, y: number, radius: number, dark: boolean): Shape {
  const label = some(LABELS);
  const upright = label === "heart" ? 0.35 : Math.PI;
  return {
    label,
    x,
    y,
    radius,
    turn: between(-upright, upright),
    speed: { x: between(-90, 90), y: between(-90, 90), turn: label === "heart" ? 0 : between(-0.6, 0.6) },
    colour: `hsl(${between(0, 360)} ${between(45, 90)}% ${dark ? between(58, 75) : between(35, 52)}%)`,
    line: Math.random() < 0.3 ? between(0.06, 0.12) * radius + 3 : undefined,
  };
}

/** Two that touch exchange what of their speeds brings them together. */
function bounce(a: Shape, b: Shape): void {
  const [dx, dy] = [a.x - b.x, a.y - b.y];
  const distance = Math.hypot(dx, dy) || 1;
  if (distance > a.radius + b.radius + MARGIN) return;
  const along = ((a.speed.x - b.speed.x) * dx + (a.speed.y - b.speed.y) * dy) / distance;
  if (along >= 0) return;
  for (const [{ speed }, sign] of [
    [a, -1],
    [b, 1],
  ] as const) {
    speed.x += (sign * along * dx) / distance;
    speed.y += (sign * along * dy) / distance;
  }
}

function drawShape(context: CanvasRenderingContext2D, { label, x, y, radius, turn, colour, line }: Shape): void {
  context.save();
  context.translate(x, y);
  context.rotate(turn);
  context.beginPath();
  const points = corners(label);
  if (points) points.forEach(([px, py]) => context.lineTo(px * radius, py * radius));
  else context.arc(0, 0, radius, 0, 2 * Math.PI);
  context.closePath();
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = line ?? 0;
  context.lineJoin = "round";
  if (line) context.stroke();
  else context.fill();
  context.restore();
}
