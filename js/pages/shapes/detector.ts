import { InferenceSession, Tensor } from "pyonnx-wasm";

/** A shape that was found; the box in parts of the picture's width and height. */
export interface Found {
  readonly label: string;
  readonly score: number;
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

/** Finds shapes in what a canvas holds, at any size; the model's own NonMaxSuppression leaves one box of each. */
export class Detector {
  readonly session: InferenceSession;
  readonly #labels: readonly string[];
  readonly #canvas = document.createElement("canvas");

  private constructor(session: InferenceSession, labels: readonly string[]) {
    this.session = session;
    this.#labels = labels;
  }

  static async on(backend: "wasm" | "webgpu", model: ArrayBuffer): Promise<Detector> {
    const session = await InferenceSession.create(model, { executionProviders: [backend, "wasm"] });
    return new Detector(session, JSON.parse(session.metadata?.custom["labels"] ?? "[]") as string[]);
  }

  /** `longer` is the longer side in pixels that the model sees, `threshold` the least score from 0 to 1. Surest first. */
  async find(picture: HTMLCanvasElement, longer: number, threshold: number): Promise<Found[]> {
    const scale = longer / Math.max(picture.width, picture.height);
    const width = Math.max(8, Math.round(picture.width * scale));
    const height = Math.max(8, Math.round(picture.height * scale));
    Object.assign(this.#canvas, { width, height });
    const context = this.#canvas.getContext("2d", { willReadFrequently: true })!;
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, 0, 0, width, height);
    const { data } = context.getImageData(0, 0, width, height);
    const { boxes, labels, scores } = await this.session.run({
      image: new Tensor("uint8", new Uint8Array(data.buffer), [height, width, 4]),
      threshold: new Tensor("float32", [threshold], []),
    });
    const [sides, sure] = [boxes!.data as Float32Array, scores!.data as Float32Array];
    return Array.from(labels!.data as BigInt64Array, (label, i) => ({
      label: this.#labels[Number(label)] ?? `label ${label}`,
      score: sure[i]!,
      left: sides[4 * i]! / width,
      top: sides[4 * i + 1]! / height,
      right: sides[4 * i + 2]! / width,
      bottom: sides[4 * i + 3]! / height,
    }));
  }
}
