/** Boxes around what a detector finds, from a declared format. */
import { canvas, colour, h } from "../ui/dom.js";
import { reader, summarise, trouble, type Tensor, type Tensors, type Value } from "../ui/tensor.js";
import { panel, type BoxesOutput, type OutputPanel, type Picture } from "./panel.js";

/** A box in pixels of the model's input. */
export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly score: number;
  readonly label: number;
}

export const TINTS = ["#2f7de1", "#e2574c", "#21a179", "#c77d0a", "#8f5bd6", "#d6539b", "#00919c", "#7a8a1e"];

/**
 * The boxes of a result, best first, without those that overlap a better one of their class by more than `iou`.
 *
 * Layouts: "yolo" [1, 4 + classes, n]; "rows" [1, n, 4 + score + class] or [1, n, 4 + classes]; "objectness" [1, n, 5 + classes];
 * "split" boxes [1, n, 4] with scores [1, n] or [1, n, classes] and perhaps classes [1, n] in outputs of their own. `width` and `height`
 * are of the model's input.
 */
export function boxes(results: Tensors, output: string, spec: BoxesOutput, width: number, height: number): Box[] {
  const main = results[output]!;
  const at = reader(main);
  const [rows, columns] = main.dims.slice(-2) as [number, number];
  const [count, parts] = spec.layout === "yolo" ? [columns, rows] : [rows, columns];
  const element =
    spec.layout === "yolo"
      ? (i: number, part: number) => at(part * count + i)
      : (i: number, part: number) => at(i * parts + part);
  const scores = spec.scores ? results[spec.scores] : undefined;
  const classes = spec.classes ? results[spec.classes] : undefined;
  const judge = judgement(spec, element, parts, scores, classes, count);
  const shares = spec.normalized ?? isShares(count, element);
  const [fx, fy] = shares ? [width, height] : [1, 1];

  const found: Box[] = [];
  for (let i = 0; i < count; i++) {
    const { score, label } = judge(i);
    if (!(score >= spec.threshold)) continue;
    const four = [element(i, 0), element(i, 1), element(i, 2), element(i, 3)] as [number, number, number, number];
    if (spec.format === "yxyx") [four[0], four[1], four[2], four[3]] = [four[1], four[0], four[3], four[2]];
    const [a, b, c, d] = [four[0] * fx, four[1] * fy, four[2] * fx, four[3] * fy];
    const [w, hi] = spec.format === "xyxy" || spec.format === "yxyx" ? [c - a, d - b] : [c, d];
    const [x, y] = spec.format === "cxcywh" ? [a - w / 2, b - hi / 2] : [a, b];
    if ([x, y, w, hi].every(Number.isFinite) && w > 0 && hi > 0)
      found.push({ x, y, width: w, height: hi, score, label });
  }
  found.sort((p, q) => q.score - p.score);
  const kept: Box[] = [];
  for (const box of found) {
    if (kept.length >= spec.limit) break;
    if (kept.every((better) => better.label !== box.label || overlap(better, box) <= spec.iou)) kept.push(box);
  }
  return kept;
}

/** Whether all boxes lie within a unit or so: pixels would not. */
function isShares(count: number, element: (i: number, part: number) => number): boolean {
  for (let i = 0; i < count; i++) for (let part = 0; part < 4; part++) if (Math.abs(element(i, part)) > 2) return false;
  return true;
}

type Judge = (i: number) => { score: number; label: number };

function judgement(
  spec: BoxesOutput,
  element: (i: number, part: number) => number,
  parts: number,
  scores: Tensor | undefined,
  classes: Tensor | undefined,
  count: number,
): Judge {
  const best = (n: number, value: (c: number) => number): { score: number; label: number } => {
    let [label, score] = [0, -Infinity];
    for (let c = 0; c < n; c++) {
      const v = value(c);
      if (v > score) [label, score] = [c, v];
    }
    return { score, label };
  };
  if (scores) {
    const at = reader(scores);
    const width = count ? scores.data.length / count : 0;
    const label = classes && reader(classes);
    if (spec.background) return judged(width, spec.background, at);
    return (i) => {
      const found = best(width, (c) => at(i * width + c));
      return label ? { score: found.score, label: label(i) } : found;
    };
  }
  if (spec.layout === "rows" && parts <= 6)
    return (i) => ({ score: element(i, 4), label: parts > 5 ? element(i, 5) : 0 });
  if (spec.layout === "objectness") {
    const alone = parts === 5;
    return (i) => {
      const { score, label } = alone ? { score: 1, label: 0 } : best(parts - 5, (c) => element(i, 5 + c));
      return { score: score * element(i, 4), label };
    };
  }
  // Behind the classes there may be coefficients of masks.
  const known = Math.min(parts - 4, spec.labels.length || parts - 4);
  return (i) => best(known, (c) => element(i, 4 + c));
}

/** Of classes with one for nothing: shares as they are, others through softmax. */
function judged(width: number, background: "first" | "last", at: (i: number) => number): Judge {
  const [from, to] = background === "first" ? [1, width] : [0, width - 1];
  return (i) => {
    const row = Array.from({ length: width }, (_, c) => at(i * width + c));
    const sum = row.reduce((a, b) => a + b, 0);
    const shares = Math.abs(sum - 1) < 0.01 && row.every((v) => v >= 0);
    const top = Math.max(...row);
    const total = shares ? 1 : row.reduce((a, b) => a + Math.exp(b - top), 0);
    let [label, score] = [0, -Infinity];
    for (let c = from; c < to; c++) {
      const share = shares ? row[c]! : Math.exp(row[c]! - top) / total;
      if (share > score) [label, score] = [c - from, share];
    }
    return { score, label };
  };
}

function overlap(a: Box, b: Box): number {
  const w = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const h = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  if (w <= 0 || h <= 0) return 0;
  return (w * h) / (a.width * a.height + b.width * b.height - w * h);
}

export class BoxesShow implements OutputPanel {
  readonly element: HTMLElement;
  readonly #canvas = canvas("The picture with boxes", "pwx-stage");
  readonly #count = h("div", { class: "pwx-soft", role: "status" });
  #threshold: number;
  #last: { results: Tensors; picture: Picture } | undefined;

  constructor(
    readonly value: Value,
    readonly spec: BoxesOutput,
  ) {
    this.#threshold = spec.threshold;
    const shown = h("span", { class: "pwx-soft" }, spec.threshold.toFixed(2));
    const slider = h("input", {
      type: "range",
      class: "pwx-slider",
      min: "0",
      max: "1",
      step: "0.01",
      "aria-label": "Least score shown",
      onkeydown: (event: KeyboardEvent) => event.stopPropagation(),
      oninput: () => {
        this.#threshold = slider.valueAsNumber;
        shown.textContent = this.#threshold.toFixed(2);
        if (this.#last) this.show(this.#last.results, this.#last.picture);
      },
    });
    slider.value = String(spec.threshold);
    this.element = panel(
      value.name,
      `boxes, ${spec.format}`,
      this.#canvas,
      this.#count,
      h("div", { class: "pwx-row pwx-sliding" }, h("span", { class: "pwx-soft" }, "score ≥"), slider, shown),
    );
    this.clear();
  }

  show(results: Tensors, picture: Picture | undefined): void {
    const result = results[this.value.name];
    if (!result || !picture) return;
    this.#last = { results, picture };
    const { seen, placement } = picture;
    const found = boxes(
      results,
      this.value.name,
      { ...this.spec, threshold: this.#threshold },
      seen.width,
      seen.height,
    );
    const scale = Math.min(1, 960 / Math.max(picture.width, picture.height));
    const target = this.#canvas;
    [target.width, target.height] = [
      Math.max(1, Math.round(picture.width * scale)),
      Math.max(1, Math.round(picture.height * scale)),
    ];
    target.hidden = false;
    const context = target.getContext("2d")!;
    context.drawImage(picture.image, 0, 0, target.width, target.height);
    const unit = Math.max(1.5, target.width / 320);
    context.lineWidth = unit;
    context.font = `600 ${Math.round(9 * unit)}px ${getComputedStyle(target).fontFamily}`;
    context.textBaseline = "top";
    for (const box of [...found].reverse()) {
      const x = ((box.x - placement.x0) / placement.sx) * scale;
      const y = ((box.y - placement.y0) / placement.sy) * scale;
      const tint = TINTS[box.label % TINTS.length] ?? colour(target, "--pwx-accent");
      context.strokeStyle = context.fillStyle = tint;
      context.strokeRect(x, y, (box.width / placement.sx) * scale, (box.height / placement.sy) * scale);
      const text = `${this.spec.labels[box.label] ?? box.label} ${(100 * box.score).toFixed(0)} %`;
      const top = Math.max(0, y - 11 * unit);
      context.fillRect(x - unit / 2, top, context.measureText(text).width + 5 * unit, 11 * unit);
      context.fillStyle = "#fff";
      context.fillText(text, x + 2 * unit, top + unit);
    }
    const wrong = trouble(summarise(result));
    this.#count.textContent = wrong ? `${wrong}.` : found.length === 1 ? "1 box" : `${found.length} boxes`;
  }

  clear(): void {
    this.#last = undefined;
    this.#canvas.hidden = true;
    this.#count.textContent = "Nothing to show yet";
  }
}
