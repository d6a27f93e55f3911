/** The canvas: pans, zooms, selects; draws only what is in view, once per frame at most. */
import { TITLE, type Rectangle } from "./compound.js";
import { isGroup, type Group, type Leaf } from "./groups.js";
import { CanvasPen, FONTS, NO_MARKS, paint, whole, type Marks, type Palette } from "./paint.js";
import type { Measure, Scene } from "./scene.js";

export interface Actions {
  select(item: Group | Leaf | null): void;
  toggle(group: Group): void;
  search(): void;
  /** To the box before or after the selected one. */
  follow(step: -1 | 1): void;
}

const MIN_SCALE = 0.02;
const MAX_SCALE = 3;
const STEP = 60;
const CLICK = 5;

export class GraphCanvas {
  readonly element = document.createElement("canvas");
  private readonly context = this.element.getContext("2d")!;
  private scene: Scene | null = null;
  private palette: Palette | null = null;
  private marks: Marks = NO_MARKS;
  private scale = 1;
  private x = 0;
  private y = 0;
  private width = 0;
  private height = 0;
  private frame = 0;
  private fitted = false;
  private animation = 0;
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private readonly observer: ResizeObserver;

  constructor(private readonly actions: Actions) {
    const { element } = this;
    element.className = "pw-graph";
    element.tabIndex = 0;
    element.setAttribute("role", "application");
    element.setAttribute(
      "aria-label",
      "Graph. Arrow keys move, plus and minus zoom, 0 fits, slash searches, Enter opens and closes a group.",
    );
    element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    element.addEventListener("pointerdown", (event) => this.down(event));
    element.addEventListener("pointermove", (event) => this.move(event));
    element.addEventListener("pointerup", (event) => this.up(event));
    element.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    element.addEventListener("dblclick", (event) => this.double(event));
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("focus", () => this.draw());
    element.addEventListener("blur", () => this.draw());
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(element);
  }

  readonly measure: Measure = (text, font) => {
    this.context.font = FONTS[font];
    return this.context.measureText(text).width;
  };

  dispose(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    cancelAnimationFrame(this.animation);
  }

  /** Shows a scene; `anchor` stays where it is on the screen. */
  show(scene: Scene, anchor?: Group | Leaf): void {
    const before = anchor && this.scene ? this.rectangle(anchor) : null;
    this.scene = scene;
    const after = anchor ? this.rectangle(anchor) : null;
    if (before && after) {
      this.x += (before.x + before.width / 2 - after.x - after.width / 2) * this.scale;
      this.y += (before.y - after.y) * this.scale;
    }
    if (!this.fitted) this.fit(false);
    this.draw();
  }

  /** Paints the graph on another canvas of the page, as much of it as can be read there. */
  paintOn(target: HTMLCanvasElement, colours: Palette): void {
    if (!this.scene) return;
    const { clientWidth: width, clientHeight: height } = target;
    [target.width, target.height] = [2 * width, 2 * height];
    const all = whole(this.scene);
    const scale = Math.min(1, width / all.width, Math.max(height / all.height, 0.45));
    const context = target.getContext("2d")!;
    const left = (width - all.width * scale) / 2;
    const top = Math.max(0, (height - all.height * scale) / 2);
    context.scale(2, 2);
    context.fillStyle = colours.background;
    context.fillRect(0, 0, width, height);
    context.translate(left, top);
    context.scale(scale, scale);
    context.translate(-all.x, -all.y);
    paint(new CanvasPen(context), this.scene, colours, NO_MARKS, all, scale);
  }

  mark(marks: Marks): void {
    this.marks = marks;
    this.draw();
  }

  paintWith(palette: Palette): void {
    this.palette = palette;
    this.draw();
  }

  /** The whole graph in view; a tall one from its top, at a size that can be read. */
  fit(smooth = true, legible = !smooth): void {
    if (!this.scene || !this.width) return;
    this.fitted = true;
    const { width, height } = whole(this.scene);
    const all = Math.min(1, this.width / width, this.height / height);
    const readable = Math.min(1, Math.max(all, 0.3, Math.min(0.95, this.width / width)));
    const scale = legible ? readable : all;
    const tall = height * scale > this.height;
    this.fly(
      scale,
      (this.width - (width - 48) * scale) / 2,
      tall ? 24 * scale : (this.height - (height - 48) * scale) / 2,
      smooth,
    );
  }

  zoom(factor: number, at = { x: this.width / 2, y: this.height / 2 }): void {
    const scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    this.x = at.x - ((at.x - this.x) * scale) / this.scale;
    this.y = at.y - ((at.y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }

  /** Brings a box to the middle, large enough to read. */
  reveal(item: Group | Leaf, smooth = true): void {
    const at = this.rectangle(item);
    if (!at) return;
    const scale = Math.min(Math.max(this.scale, 0.9), 1.5);
    this.fly(
      scale,
      this.width / 2 - (at.x + at.width / 2) * scale,
      this.height / 2 - (at.y + Math.min(at.height, 200) / 2) * scale,
      smooth,
    );
  }

  /** Where a box is on the page, for tests and for what points at it. */
  place(item: Group | Leaf): Rectangle | null {
    const at = this.rectangle(item);
    if (!at) return null;
    const { left, top } = this.element.getBoundingClientRect();
    const { scale, x, y } = this;
    return {
      x: left + x + at.x * scale,
      y: top + y + at.y * scale,
      width: at.width * scale,
      height: at.height * scale,
    };
  }

  private rectangle(item: Group | Leaf): Rectangle | null {
    const k = this.scene?.index.get(item);
    return k === undefined ? null : this.scene!.layout.boxes[k]!;
  }

  private fly(scale: number, x: number, y: number, smooth: boolean): void {
    cancelAnimationFrame(this.animation);
    const from = { scale: this.scale, x: this.x, y: this.y };
    const still = !smooth || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const begin = performance.now();
    const step = (now: number): void => {
      const t = still ? 1 : Math.min(1, (now - begin) / 220);
      const ease = 1 - (1 - t) ** 3;
      this.scale = from.scale * (scale / from.scale) ** ease;
      this.x = from.x + (x - from.x) * ease;
      this.y = from.y + (y - from.y) * ease;
      this.draw();
      if (t < 1) this.animation = requestAnimationFrame(step);
      this.element.toggleAttribute("data-moving", t < 1);
    };
    step(begin);
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.element;
    const first = !this.width;
    if (!first && this.width) this.x += (clientWidth - this.width) / 2;
    this.width = clientWidth;
    this.height = clientHeight;
    const ratio = devicePixelRatio || 1;
    this.element.width = Math.max(1, Math.round(clientWidth * ratio));
    this.element.height = Math.max(1, Math.round(clientHeight * ratio));
    if (first) this.fit(false);
    this.paint();
  }

  private draw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  private paint(): void {
    const { context, scene, palette, scale, x, y } = this;
    if (!palette || !this.width) return;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.background;
    context.fillRect(0, 0, this.width, this.height);
    if (!scene) return;
    context.translate(x, y);
    context.scale(scale, scale);
    const view = { x: -x / scale, y: -y / scale, width: this.width / scale, height: this.height / scale };
    paint(new CanvasPen(context), scene, palette, this.marks, view, scale);
    this.element.dataset["boxes"] = String(scene.boxes.length);
  }

  private hit(event: MouseEvent): { item: Group | Leaf; title: boolean } | null {
    if (!this.scene) return null;
    const x = (event.offsetX - this.x) / this.scale;
    const y = (event.offsetY - this.y) / this.scale;
    const { boxes, layout } = this.scene;
    for (let k = boxes.length - 1; k >= 0; k--) {
      const r = layout.boxes[k]!;
      if (x >= r.x && x <= r.x + r.width && y >= r.y && y <= r.y + r.height)
        return { item: boxes[k]!.item, title: boxes[k]!.open && y < r.y + TITLE };
    }
    return null;
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (
      event.ctrlKey ||
      event.metaKey ||
      (Math.abs(event.deltaY) >= 100 && !event.deltaX && Number.isInteger(event.deltaY))
    )
      this.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), {
        x: event.offsetX,
        y: event.offsetY,
      });
    else this.pan(-event.deltaX * unit, -event.deltaY * unit);
  }

  private pan(x: number, y: number): void {
    cancelAnimationFrame(this.animation);
    this.x += x;
    this.y += y;
    this.draw();
  }

  private down(event: PointerEvent): void {
    if (event.button > 1) return;
    this.element.setPointerCapture(event.pointerId);
    if (!this.pointers.size) this.moved = 0;
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  }

  private move(event: PointerEvent): void {
    const last = this.pointers.get(event.pointerId);
    if (!last) {
      const hit = event.pointerType === "mouse" ? this.hit(event) : null;
      this.element.style.cursor = hit ? "pointer" : "grab";
      // Titles on the boxes may be cut.
      this.element.title = !hit
        ? ""
        : isGroup(hit.item)
          ? hit.item.label
          : hit.item.node.call.name || hit.item.node.label;
      return;
    }
    const now = { x: event.offsetX, y: event.offsetY };
    const [dx, dy] = [now.x - last.x, now.y - last.y];
    this.moved += Math.abs(dx) + Math.abs(dy);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (this.moved < CLICK) return;
    if (!other) {
      this.pan(dx, dy);
      return;
    }
    const distance = (p: { x: number; y: number }): number => Math.hypot(p.x - other.x, p.y - other.y);
    this.pan(dx / 2, dy / 2);
    this.zoom(distance(now) / Math.max(1, distance(last)), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
  }

  private up(event: PointerEvent): void {
    if (!this.pointers.delete(event.pointerId) || this.moved >= CLICK || event.button > 0) return;
    this.element.focus();
    const hit = this.hit(event);
    if (hit?.title && isGroup(hit.item)) this.actions.toggle(hit.item);
    else this.actions.select(hit?.item ?? null);
  }

  private double(event: MouseEvent): void {
    const hit = this.hit(event);
    if (hit && !hit.title && isGroup(hit.item) && !this.scene?.boxes[this.scene.index.get(hit.item)!]?.open)
      this.actions.toggle(hit.item);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const selected = this.scene?.boxes[this.marks.selected]?.item;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => this.pan(STEP, 0),
      ArrowRight: () => this.pan(-STEP, 0),
      ArrowUp: () => (selected && !event.shiftKey ? this.actions.follow(-1) : this.pan(0, STEP)),
      ArrowDown: () => (selected && !event.shiftKey ? this.actions.follow(1) : this.pan(0, -STEP)),
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "0": () => this.fit(),
      "/": () => this.actions.search(),
      Escape: () => this.actions.select(null),
      Enter: () => selected && isGroup(selected) && this.actions.toggle(selected),
    };
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : undefined;
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
