import { InferenceSession, Tensor } from "pyonnx-wasm";
import { bar, certainty, describe, element, fail, latest, milliseconds, setBar } from "../common.js";
import { EXAMPLES } from "./examples.js";
import { countInk, type Point, type Stroke } from "./ink.js";

const PEN_WIDTH = 0.055;
const STEP = 0.025;
/** The time shown is the median of so many runs. */
const RECENT = 25;

const pad = element<HTMLCanvasElement>("pad");
const seen = element<HTMLCanvasElement>("seen");
const status = element("status");
const bars = Array.from({ length: 10 }, (_, digit) => bar(String(digit)));
element("bars").append(...bars);

let strokes: Stroke[] = [];
let pen: Point | undefined;
let example = 2;

function paint(): void {
  const side = Math.round(pad.clientWidth * devicePixelRatio);
  if (pad.width !== side) pad.width = pad.height = side;
  const context = pad.getContext("2d")!;
  context.clearRect(0, 0, side, side);
  context.strokeStyle = context.fillStyle = getComputedStyle(pad).color;
  context.lineWidth = PEN_WIDTH * side;
  context.lineCap = context.lineJoin = "round";
  if (!strokes.length && !pen) {
    context.globalAlpha = 0.3;
    context.font = `${0.05 * side}px ${getComputedStyle(pad).fontFamily}`;
    context.textAlign = "center";
    context.fillText("Draw here", side / 2, side / 2);
    context.globalAlpha = 1;
  }
  for (const stroke of strokes) {
    context.beginPath();
    stroke.forEach(({ x, y }, i) => (i ? context.lineTo(x * side, y * side) : context.moveTo(x * side, y * side)));
    if (stroke.length === 1) context.lineTo(stroke[0]!.x * side, stroke[0]!.y * side);
    context.stroke();
  }
  if (pen && document.activeElement === pad) {
    context.beginPath();
    context.arc(pen.x * side, pen.y * side, (PEN_WIDTH * side) / 2, 0, 2 * Math.PI);
    context.globalAlpha = 0.35;
    context.fill();
    context.globalAlpha = 1;
  }
}

function paintInk(ink: Float32Array): void {
  const context = seen.getContext("2d")!;
  const image = context.createImageData(8, 8);
  const [, red = 0, green = 0, blue = 0] = /(\d+), (\d+), (\d+)/.exec(getComputedStyle(pad).color)?.map(Number) ?? [];
  ink.forEach((count, i) => image.data.set([red, green, blue, Math.round((count / 16) * 255)], 4 * i));
  context.putImageData(image, 0, 0);
}

function show(probabilities: ArrayLike<number> | undefined): void {
  const values = Array.from(probabilities ?? new Float32Array(10));
  const best = probabilities ? values.indexOf(Math.max(...values)) : -1;
  bars.forEach((row, digit) => setBar(row, probabilities ? values[digit] : undefined, digit === best));
  element("digit").textContent = String(Math.max(best, 0));
  element("digit").classList.toggle("hidden", best < 0);
  element("words").textContent = best < 0 ? "Nothing drawn yet" : certainty(values[best]!);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0;
}

async function start(): Promise<void> {
  const session = await InferenceSession.create(new URL("digits.ponnx", location.href).href);
  const where = describe(session);
  status.textContent = `Ready: ${where}`;

  const times: number[] = [];
  const classify = latest(async (ink: Float32Array) => {
    const before = performance.now();
    const { probabilities } = await session.run({ ink: new Tensor("float32", ink, [1, 1, 8, 8]) });
    times.push(performance.now() - before);
    if (times.length > RECENT) times.shift();
    if (!strokes.length) return show(undefined);
    show(probabilities!.data as Float32Array);
    status.textContent = `${where} · ${milliseconds(median(times))}`;
  });

  let frame = 0;
  const redraw = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      paint();
      const ink = countInk(strokes);
      paintInk(ink);
      if (strokes.length) classify(ink).catch((error: unknown) => fail(status, error));
      else show(undefined);
    });
  };
  listen(redraw);
  redraw();
}

function listen(redraw: () => void): void {
  const at = (event: PointerEvent): Point => {
    const box = pad.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  };
  let drawing: number | undefined;
  pad.addEventListener("pointerdown", (event) => {
    if (drawing !== undefined || event.button !== 0) return;
    drawing = event.pointerId;
    pad.setPointerCapture(drawing);
    pen = undefined;
    strokes.push([at(event)]);
    redraw();
  });
  pad.addEventListener("pointermove", (event) => {
    if (event.pointerId !== drawing) return;
    const events = event.getCoalescedEvents?.() ?? [];
    strokes.at(-1)?.push(...(events.length ? events : [event]).map(at));
    redraw();
  });
  for (const kind of ["pointerup", "pointercancel"] as const)
    pad.addEventListener(kind, (event) => {
      if (event.pointerId === drawing) drawing = undefined;
    });

  const clear = (): void => {
    strokes = [];
    pen = undefined;
    redraw();
  };
  const moves: Record<string, [number, number]> = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, -1],
    ArrowDown: [0, 1],
  };
  let inked = false;
  pad.addEventListener("keydown", (event) => {
    if (event.key === "Delete" || event.key === "Backspace" || event.key === "Escape") clear();
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const from = (pen ??= { x: 0.5, y: 0.2 });
    const bound = (v: number): number => Math.min(0.97, Math.max(0.03, v));
    pen = { x: bound(from.x + STEP * move[0]), y: bound(from.y + STEP * move[1]) };
    if (event.shiftKey) {
      if (inked) strokes.at(-1)?.push(pen);
      else strokes.push([from, pen]);
    }
    inked = event.shiftKey;
    redraw();
  });
  pad.addEventListener("keyup", (event) => {
    if (event.key === "Shift") inked = false;
  });
  pad.addEventListener("focus", () => {
    if (pad.matches(":focus-visible")) pen ??= { x: 0.5, y: 0.2 };
    redraw();
  });
  pad.addEventListener("blur", redraw);

  element("clear").addEventListener("click", clear);
  element("example").addEventListener("click", () => {
    strokes = EXAMPLES[example]!.map((stroke) => [...stroke]);
    example = (example + 3) % EXAMPLES.length;
    redraw();
  });
  new ResizeObserver(redraw).observe(pad);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

start().catch((error: unknown) => fail(status, error));
