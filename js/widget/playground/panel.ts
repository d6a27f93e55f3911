/** What the panels of a playground share. */
import type { Preprocess, Placement, Pixels } from "../ui/preprocess.js";
import type { Dims } from "../ui/dims.js";
import { h } from "../ui/dom.js";
import type { Tensors, Value } from "../ui/tensor.js";

/** The picture that a run was made from, for outputs that draw on it. */
export interface Picture {
  readonly image: CanvasImageSource;
  readonly width: number;
  readonly height: number;
  readonly placement: Placement;
  /** Pixels that the model sees. */
  readonly seen: Pixels;
}

export interface InputPanel {
  readonly element: HTMLElement;
  /** True while inputs come by themselves, as from a camera. */
  streaming?(): boolean;
  /** True while the panel itself is still loading. */
  loading?(): boolean;
  /** Tensors for the next run; undefined while there is nothing to run. Throws an error that tells what to mend. */
  feeds(): Tensors | undefined;
  picture?(): Picture | undefined;
}

export interface OutputPanel {
  readonly element: HTMLElement;
  show(results: Tensors, picture: Picture | undefined): void;
  clear(): void;
}

/** What a panel may ask of its playground. */
export interface Context {
  /** The inputs have changed: run. */
  change(): void;
  /** Reads a file that Python holds for the widget. */
  asset(name: string): Promise<Uint8Array<ArrayBuffer>>;
  readonly signal: AbortSignal;
  readonly dims: Dims;
}

export type ImageInput = {
  readonly kind: "image";
  readonly inputs: readonly [string];
  readonly preprocess: Preprocess;
  readonly sources: readonly ("file" | "camera" | "draw")[];
  readonly examples: readonly { readonly name: string; readonly asset: string }[];
  readonly batch: number;
};
export type TextInput = {
  readonly kind: "text";
  readonly inputs: readonly string[];
  readonly roles: Readonly<Record<string, "ids" | "mask" | "types" | "positions">>;
  readonly tokenizer: string;
  readonly value: string;
  readonly examples: readonly string[];
  readonly max_length: number;
  readonly pad: number | null;
};
export type TableInput = {
  readonly kind: "table";
  readonly inputs: readonly [string];
  readonly columns: readonly string[];
  readonly rows: readonly (readonly number[])[];
};
export type SliderInput = {
  readonly kind: "slider";
  readonly inputs: readonly [string];
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly value: number;
};
export type AudioInput = {
  readonly kind: "audio";
  readonly inputs: readonly [string];
  /** Samples a second. */
  readonly rate: number;
  readonly scale: number;
  readonly sources: readonly ("file" | "microphone")[];
};
export type Fill = "zeros" | "ones" | "random" | "file";
export type TensorInput = {
  readonly kind: "tensor";
  readonly inputs: readonly [string];
  readonly fill: Fill;
  readonly seed: number;
};
export type InputSpec = ImageInput | AudioInput | TextInput | TableInput | SliderInput | TensorInput;

export type TopK = {
  readonly kind: "topk";
  readonly labels: readonly string[];
  readonly k: number;
  readonly activation: "auto" | "none" | "softmax" | "sigmoid";
};
export type ImageOutput = {
  readonly kind: "image";
  readonly range: readonly [number, number] | null;
  readonly layout: "NCHW" | "NHWC";
};
export type HeatMap = {
  readonly kind: "heatmap";
  readonly range: readonly [number, number] | null;
  readonly overlay: boolean;
  readonly labels: readonly string[];
};
export type BoxesOutput = {
  readonly kind: "boxes";
  readonly layout: "yolo" | "rows" | "objectness" | "split";
  readonly format: "xyxy" | "xywh" | "cxcywh" | "yxyx";
  readonly scores: string | null;
  readonly classes: string | null;
  readonly background: "first" | "last" | null;
  /** null: told from the numbers. */
  readonly normalized: boolean | null;
  readonly threshold: number;
  readonly iou: number;
  readonly limit: number;
  readonly labels: readonly string[];
};
export type TextOutput = { readonly kind: "text"; readonly tokenizer: string };
export type TableOutput = { readonly kind: "table"; readonly columns: readonly string[] };
export type TensorOutput = { readonly kind: "tensor" };
export type SoundOutput = { readonly kind: "sound"; readonly rate: number };
export type OutputSpec = (
  TopK | ImageOutput | HeatMap | BoxesOutput | TextOutput | TableOutput | TensorOutput | SoundOutput
) & {
  /** The output shown. */
  readonly output: string;
};

export interface Spec {
  readonly title: string;
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly panels: readonly InputSpec[];
  readonly shows: readonly OutputSpec[];
  readonly dims: Readonly<Record<string, number>>;
  /** What was taken from files and metadata, for people. */
  readonly found?: readonly string[];
  /** Whether Python changes the inputs and the results. */
  readonly before?: boolean;
  readonly after?: boolean;
  readonly backends: readonly string[];
}

/** A titled part of a column. */
export function panel(title: string, detail: string, ...children: readonly (Node | string)[]): HTMLElement {
  return h(
    "div",
    { class: "pwx-panel", role: "group", "aria-label": title },
    h("header", {}, title, h("small", {}, detail)),
    ...children,
  );
}

/** The value of that name. Throws an error if the signature has none. */
export function valueOf(values: readonly Value[], name: string): Value {
  const found = values.find((value) => value.name === name);
  if (!found) throw new Error(`the model has no "${name}"`);
  return found;
}
