/** Pictures, by the browser's own decoders. */
import type { OperatorFunction } from "./callbacks.js";
import { Tensor } from "./tensor.js";

const decode: OperatorFunction = async ([stream], { pixel_format: format = "RGB" }) => {
  const bytes = (stream as Tensor).data as Uint8Array<ArrayBuffer>;
  const exact: ImageBitmapOptions = { premultiplyAlpha: "none", colorSpaceConversion: "none" };
  let picture: ImageBitmap;
  try {
    picture = await createImageBitmap(new Blob([bytes]), exact);
  } catch (error) {
    throw new Error(`the browser cannot decode the picture of ${bytes.length} bytes: ${(error as Error).message}`);
  }
  const { width, height } = picture;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("the browser has no canvas to read pixels from");
  context.drawImage(picture, 0, 0);
  picture.close();
  const { data } = context.getImageData(0, 0, width, height);
  const grey = format === "Grayscale";
  const channels = grey ? 1 : 3;
  const pixels = new Uint8Array(width * height * channels);
  for (let i = 0; i < width * height; i++) {
    const [r, g, b] = [data[4 * i]!, data[4 * i + 1]!, data[4 * i + 2]!];
    if (grey)
      pixels[i] = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16; // ITU-R 601-2
    else pixels.set(format === "BGR" ? [b, g, r] : [r, g, b], 3 * i);
  }
  return new Tensor("uint8", pixels, [height, width, channels]);
};

/** Operators that the page runs without being told. */
export const built: Readonly<Record<string, OperatorFunction>> = { ImageDecoder: decode };
