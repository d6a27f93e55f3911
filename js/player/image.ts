/** Tensors as pictures, by onnxruntime's rules: pixel = (value - bias) * mean, from planes or from pixels. */
import type * as ort from "onnxruntime-common";

/** Throws for shapes that are no picture: `[1, channels, height, width]`, or NHWC, with 1, 3 or 4 channels as the format says. */
export function toImageData(
  data: ArrayLike<number | bigint>,
  dims: readonly number[],
  { tensorLayout = "NCHW", format = "RGB", norm = {} }: ort.TensorToImageDataOptions = {},
): ImageData {
  const planes = tensorLayout === "NCHW";
  const [, channels = 0, height = 0, width = 0] = planes ? dims : [dims[0], dims[3], dims[1], dims[2]];
  if (dims.length !== 4 || (channels === 4) !== (format === "RGBA") || ![1, 3, 4].includes(channels))
    throw new Error(`Tensor: [${dims}] as ${tensorLayout} is no picture in the format ${format}`);
  const order = channels === 1 ? [0, 0, 0] : [..."RGBA"].map((colour) => format.indexOf(colour));
  const [mean, bias] = [perChannel(norm.mean, 255), perChannel(norm.bias, 0)];
  const [pixel, channel] = planes ? [1, width * height] : [channels, 1];
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++)
    for (let colour = 0; colour < 4; colour++) {
      const from = order[colour] ?? -1;
      const value = () => (Number(data[i * pixel + from * channel]) - bias[colour]!) * mean[colour]!;
      image.data[i * 4 + colour] = from < 0 ? 255 : value();
    }
  return image;
}

function perChannel(given: number | readonly number[] | undefined, otherwise: number): number[] {
  const values = typeof given === "number" ? [given, given, given, given] : given;
  return Array.from({ length: 4 }, (_, i) => values?.[i] ?? otherwise);
}

export function toDataURL(image: ImageData): string {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
