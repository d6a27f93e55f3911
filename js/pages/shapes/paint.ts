/** A picture with boxes over it, and the boxes as a list. */
import { bar, setBar } from "../common.js";
import type { Found } from "./detector.js";

/** In pixels of the page. */
const FONT = 13;
const TAG = 22;
const HALO = 5;
const LINE = 2.5;

const DARK = "#111";
const LIGHT = "#fff";

/** Pixels per side that tell how bright a picture is. */
const SAMPLE = 16;
const DIM = 110;

const sample = Object.assign(document.createElement("canvas"), { width: SAMPLE, height: SAMPLE });

/** The colours of boxes and of what is around them, that a picture's own brightness does not hide. */
function colours(picture: HTMLCanvasElement): { ink: string; ground: string } {
  const context = sample.getContext("2d", { willReadFrequently: true })!;
  context.drawImage(picture, 0, 0, SAMPLE, SAMPLE);
  const { data } = context.getImageData(0, 0, SAMPLE, SAMPLE);
  let bright = 0;
  for (let i = 0; i < data.length; i += 4) bright += 0.3 * data[i]! + 0.6 * data[i + 1]! + 0.1 * data[i + 2]!;
  return bright < DIM * SAMPLE * SAMPLE ? { ink: LIGHT, ground: DARK } : { ink: DARK, ground: LIGHT };
}

/** Draws the picture and its boxes, each named. */
export function paint(canvas: HTMLCanvasElement, picture: HTMLCanvasElement, found: readonly Found[]): void {
  const { width, height } = picture;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d")!;
  context.drawImage(picture, 0, 0);
  const unit = Math.max(1, width / Math.max(1, canvas.clientWidth));
  context.font = `600 ${FONT * unit}px ui-sans-serif, system-ui, sans-serif`;
  context.textBaseline = "middle";
  const { ink, ground } = colours(picture);
  for (const one of found) {
    const [x, y, w, h] = [one.left, one.top, one.right - one.left, one.bottom - one.top];
    for (const [colour, line] of [
      [ground, HALO],
      [ink, LINE],
    ] as const) {
      context.strokeStyle = colour;
      context.lineWidth = line * unit;
      context.beginPath();
      context.roundRect(x * width, y * height, w * width, h * height, 4 * unit);
      context.stroke();
    }
  }
  for (const one of found) tag(context, one, unit, ink, ground);
}

/** Label and score, above the box or, where that is outside of the picture, below it. */
function tag(context: CanvasRenderingContext2D, one: Found, unit: number, ground: string, ink: string): void {
  const { label, score, left, top, bottom } = one;
  const { width, height } = context.canvas;
  const text = `${label} ${Math.round(100 * score)}`;
  const [w, h] = [context.measureText(text).width + 12 * unit, TAG * unit];
  const x = Math.min(Math.max(0, left * width), width - w);
  const y = top * height >= h ? top * height - h : Math.min(height - h, bottom * height);
  context.fillStyle = ground;
  context.beginPath();
  context.roundRect(x, y, w, h, 5 * unit);
  context.fill();
  context.fillStyle = ink;
  context.fillText(text, x + 6 * unit, y + h / 2);
}

/** Where a box is, in words. */
function place({ left, right, top, bottom }: Found): string {
  const third = (middle: number): number => Math.min(2, Math.floor(3 * middle));
  const row = ["top", "", "bottom"][third((top + bottom) / 2)];
  const column = ["left", "", "right"][third((left + right) / 2)];
  return `${row} ${column}`.trim() || "middle";
}

/** A row of the list: label, score, and for those who do not see the picture where it is. */
export function row(one: Found): HTMLElement {
  const made = bar(one.label);
  setBar(made, one.score, true);
  const where = document.createElement("span");
  where.className = "visually-hidden";
  where.textContent = `, ${place(one)}`;
  made.firstElementChild!.append(where);
  return made;
}
