/** Blocks in time on one line, to zoom, move and walk through by pointer and keys. */
import { tint } from "../../lab/hues.js";
import { button, colour, h, onTheme } from "../ui/dom.js";
import type { Step } from "../ui/host.js";
import { repaints } from "../ui/still.js";
import { milliseconds } from "../ui/tensor.js";

export interface Block extends Step {
  readonly start: number;
  readonly index: number;
}

const HEIGHT = 92;
const AXIS = 20;
const OVERVIEW = 10;
const ZOOM = 1.5;
const SMALLEST = 1e-3;

export class Timeline {
  readonly element: HTMLElement;
  readonly #canvas: HTMLCanvasElement;
  #blocks: readonly Block[] = [];
  #end = 1;
  #from = 0;
  #to = 1;
  #chosen: Block | undefined;

  constructor(
    readonly onChoose: (block: Block | undefined) => void,
    signal: AbortSignal,
  ) {
    this.#canvas = h("canvas", {
      class: "pwx-timeline",
      tabIndex: 0,
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label": "Timeline of the run. Left and right choose a step, plus and minus zoom, Escape shows all.",
    });
    const tools = h(
      "div",
      { class: "pwx-zoom", "data-still": "no" },
      button("Zoom in", () => this.#zoom(ZOOM), { icon: "plus", bare: true }),
      button("Zoom out", () => this.#zoom(1 / ZOOM), { icon: "minus", bare: true }),
      button("Show all", () => this.#all(), { icon: "reset", bare: true }),
    );
    this.element = h("div", { class: "pwx-lane" }, this.#canvas, tools);
    repaints(this.#canvas, (copy) => this.#draw(copy));
    this.#listen(signal);
  }

  show(blocks: readonly Block[]): void {
    this.#blocks = blocks;
    this.#end = Math.max(...blocks.map(({ start, ms }) => start + ms), SMALLEST);
    this.#chosen = undefined;
    this.#all();
  }

  /** Marks a block and brings it into view. */
  choose(block: Block): void {
    this.#chosen = block;
    const span = this.#to - this.#from;
    const middle = block.start + block.ms / 2;
    if (middle < this.#from || middle > this.#to) this.#view(middle - span / 2, span);
    this.#paint();
  }

  #all(): void {
    [this.#from, this.#to] = [0, this.#end];
    this.#paint();
  }

  #zoom(
    factor: number,
    at = this.#chosen ? this.#chosen.start + this.#chosen.ms / 2 : (this.#from + this.#to) / 2,
  ): void {
    const span = Math.min(this.#end, Math.max(SMALLEST, (this.#to - this.#from) / factor));
    this.#view(at - ((at - this.#from) / (this.#to - this.#from)) * span, span);
    this.#paint();
  }

  #view(from: number, span: number): void {
    this.#from = Math.max(0, Math.min(from, this.#end - span));
    this.#to = this.#from + span;
  }

  #time(clientX: number): number {
    const box = this.#canvas.getBoundingClientRect();
    return this.#from + ((clientX - box.left) / box.width) * (this.#to - this.#from);
  }

  #listen(signal: AbortSignal): void {
    const target = this.#canvas;
    let drag: { x: number; from: number } | undefined;
    const on = <K extends keyof HTMLElementEventMap>(
      kind: K,
      listener: (event: HTMLElementEventMap[K]) => void,
      options: AddEventListenerOptions = {},
    ) => target.addEventListener(kind, listener, { signal, ...options });
    on("pointerdown", (event) => {
      target.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, from: this.#from };
    });
    on("pointerup", () => (drag = undefined));
    on("pointermove", (event) => {
      if (drag) {
        const span = this.#to - this.#from;
        this.#view(drag.from - ((event.clientX - drag.x) / target.clientWidth) * span, span);
        return this.#paint();
      }
      const time = this.#time(event.clientX);
      const found = this.#blocks.find(({ start, ms }) => time >= start && time <= start + ms);
      if (found && found !== this.#chosen) this.#pick(found);
    });
    on("dblclick", () => this.#all());
    on(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.#zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, this.#time(event.clientX));
      },
      { passive: false },
    );
    on("keydown", (event) => this.#key(event));
    const observer = new ResizeObserver(() => this.#paint());
    observer.observe(target);
    signal.addEventListener("abort", () => observer.disconnect());
    onTheme(this.element, signal, () => this.#paint());
  }

  #key(event: KeyboardEvent): void {
    const last = this.#blocks.length - 1;
    const at = this.#chosen ? this.#blocks.indexOf(this.#chosen) : -1;
    const moves: Record<string, number> = {
      ArrowRight: Math.min(last, at + 1),
      ArrowLeft: Math.max(0, at - 1),
      Home: 0,
      End: last,
    };
    const move = moves[event.key];
    if (move !== undefined && this.#blocks[move]) {
      this.#pick(this.#blocks[move]);
      this.choose(this.#blocks[move]);
    } else if (event.key === "+" || event.key === "=") this.#zoom(ZOOM);
    else if (event.key === "-") this.#zoom(1 / ZOOM);
    else if (event.key === "Escape") {
      this.#chosen = undefined;
      this.onChoose(undefined);
      this.#all();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #pick(block: Block): void {
    this.#chosen = block;
    this.onChoose(block);
    this.#paint();
  }

  #paint(): void {
    this.#draw(this.#canvas);
  }

  /** Paints the timeline, in the colours that hold where the canvas is. */
  #draw(target: HTMLCanvasElement): void {
    const ratio = target === this.#canvas ? devicePixelRatio || 1 : 2;
    const around = target.parentElement!;
    const [width, height] = [target.clientWidth, HEIGHT];
    if (!width) return;
    if (target.width !== Math.round(width * ratio)) target.width = Math.round(width * ratio);
    if (target.height !== Math.round(height * ratio)) target.height = Math.round(height * ratio);
    const context = target.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const [line, soft, fg] = [colour(around, "--pwx-line"), colour(around, "--pwx-soft"), colour(around, "--pwx-fg")];
    const font = getComputedStyle(target).fontFamily;
    const scale = width / (this.#to - this.#from);
    const [top, bottom] = [OVERVIEW + 6, height - AXIS];

    context.fillStyle = line;
    context.fillRect(0, 0, width, OVERVIEW - 4);
    for (const { start, ms, kernel } of this.#blocks) {
      context.fillStyle = tint(kernel);
      context.fillRect((start / this.#end) * width, 0, Math.max(0.5, (ms / this.#end) * width), OVERVIEW - 4);
    }
    if (this.#to - this.#from < this.#end) {
      context.fillStyle = fg;
      context.fillRect(
        (this.#from / this.#end) * width,
        OVERVIEW - 3,
        Math.max(3, ((this.#to - this.#from) / this.#end) * width),
        2,
      );
    }

    context.textBaseline = "middle";
    for (const block of this.#blocks) {
      const x = (block.start - this.#from) * scale;
      const w = block.ms * scale;
      if (x + w < 0 || x > width) continue;
      context.fillStyle = tint(block.kernel);
      context.fillRect(x, top, Math.max(1, w - (w > 3 ? 1 : 0)), bottom - top);
      if (w < 34) continue;
      context.fillStyle = "#fff";
      const left = Math.max(x, 0) + 5;
      const room = Math.min(x + w, width) - left - 4;
      context.font = `600 11px ${font}`;
      const name = fitting(context, block.kernel, room);
      if (name) context.fillText(name, left, top + 14);
      context.font = `10px ${font}`;
      const time = milliseconds(block.ms);
      if (name && context.measureText(time).width <= room) context.fillText(time, left, top + 28);
    }
    if (this.#chosen) {
      const x = (this.#chosen.start - this.#from) * scale;
      context.strokeStyle = fg;
      context.lineWidth = 2;
      context.strokeRect(x, top - 1, Math.max(2, this.#chosen.ms * scale - 1), bottom - top + 2);
    }

    const step = tick((this.#to - this.#from) / Math.max(2, width / 110));
    context.font = `10px ${font}`;
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.fillStyle = soft;
    for (let t = Math.ceil(this.#from / step) * step; t <= this.#to; t += step) {
      const x = Math.round((t - this.#from) * scale) + 0.5;
      context.beginPath();
      context.moveTo(x, bottom);
      context.lineTo(x, bottom + 5);
      context.stroke();
      const text = `${Number(t.toPrecision(6))} ms`;
      const room = context.measureText(text).width;
      context.fillText(text, Math.min(width - room, Math.max(0, x - room / 2)), bottom + 12);
    }
  }
}

/** The text, shortened to the room; nothing where less than three letters of it fit. */
function fitting(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  for (let n = text.length - 1; n > 2; n--) {
    const short = `${text.slice(0, n)}…`;
    if (context.measureText(short).width <= room) return short;
  }
  return "";
}

/** 1, 2 or 5 times a power of ten, not less than `least`. */
function tick(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least) ?? 10 * power;
}
