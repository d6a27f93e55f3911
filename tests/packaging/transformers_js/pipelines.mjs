// What people do with transformers.js; `run(case, options)` gives plain values, the same whichever runtime is beneath.
import { AutoModel, AutoTokenizer, RawImage, Tensor, TextStreamer, env, pipeline, random } from "@huggingface/transformers";

export { env };
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.useBrowserCache = false;

const loaded = new Map();
/** Pipelines are kept, as pages keep them. */
const ready = (task, model, options) => {
  const key = JSON.stringify([task, model, options]);
  if (!loaded.has(key)) loaded.set(key, pipeline(task, model, options));
  return loaded.get(key);
};

export async function dispose() {
  const made = await Promise.allSettled(loaded.values());
  loaded.clear();
  for (const { value } of made) await value?.dispose();
}

/** A picture with something to see at every scale. */
function picture(width, height) {
  const data = new Uint8ClampedArray(width * height * 3);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const at = (y * width + x) * 3;
      data[at] = 128 + 90 * Math.sin(x / 5 + y / 9);
      data[at + 1] = (x * 5) % 256;
      data[at + 2] = (x - width / 3) ** 2 + (y - height / 2) ** 2 < (height / 4) ** 2 ? 240 : 20 + y;
    }
  return new RawImage(data, width, height, 3);
}

/** A tone that rises, with pauses; 16 kHz. */
function sound(seconds) {
  return Float32Array.from({ length: seconds * 16000 }, (_, i) => {
    const t = i / 16000;
    return t % 1 < 0.8 ? 0.4 * Math.sin(2 * Math.PI * (200 + 60 * t) * t) + 0.1 * Math.sin(2 * Math.PI * 1333 * t) : 0;
  });
}

/** Tensors and pictures as plain values. */
function plain(value) {
  if (value === null || typeof value !== "object") return typeof value === "bigint" ? Number(value) : value;
  if (value instanceof RawImage) return { size: [value.width, value.height, value.channels], pixels: [...value.data] };
  if (ArrayBuffer.isView(value)) return [...value].map(Number);
  if (value.dims && value.data) return { dims: [...value.dims], numbers: plain(value.data) };
  if (Array.isArray(value)) return value.map(plain);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
}

const PROMPT = "the cat sat on the";
const cases = {
  async "feature extraction"(options) {
    const extract = await ready("feature-extraction", "features", options);
    const texts = ["the cat sat on the mat", "a dog ran"];
    return [await extract(texts, { pooling: "mean", normalize: true }), await extract("paris", { pooling: "none" })];
  },
  async "text generation"(options) {
    const write = await ready("text-generation", "writer", options);
    const pieces = [];
    const streamer = new TextStreamer(write.tokenizer, {
      skip_prompt: true,
      callback_function: (text) => pieces.push(text),
    });
    const greedy = await write(PROMPT, { max_new_tokens: 12, do_sample: false, streamer });
    const two = await write([PROMPT, "a dog"], { max_new_tokens: 5, do_sample: false });
    const chat = await write([{ role: "user", content: "hello" }], { max_new_tokens: 5, do_sample: false });
    return [greedy, pieces, two, chat];
  },
  async "text generation, sampled"(options) {
    const write = await ready("text-generation", "writer", options);
    random.seed(5);
    return await write(PROMPT, { max_new_tokens: 12, do_sample: true, temperature: 1.5, top_k: 20 });
  },
  async logits(options) {
    const tokenizer = await AutoTokenizer.from_pretrained("writer");
    const write = await ready("text-generation", "writer", options);
    // Rounded to 8 bits, none of its activations is within 0.0002 of a tie, as one of PROMPT's is (19.499996): there the
    // last bit of a sum, which backends order differently, makes it another code.
    const { logits } = await write.model(tokenizer("a dog is now"));
    return logits;
  },
  async "fill mask"(options) {
    const fill = await ready("fill-mask", "fill", options);
    return await fill("the [MASK] sat on the mat .", { top_k: 3 });
  },
  async "token classification"(options) {
    return await (
      await ready("token-classification", "tokens", options)
    )("bert sings in london", { ignore_labels: [] });
  },
  async "text classification"(options) {
    return await (
      await ready("text-classification", "entailment", options)
    )(["the cat", "a big dog"], { top_k: 3 });
  },
  async "zero-shot classification"(options) {
    const classify = await ready("zero-shot-classification", "entailment", options);
    const { labels, scores } = await classify("the cat sat on the mat", ["cat", "dog", "paris"], { multi_label: true });
    return Object.fromEntries(labels.map((label, i) => [label, scores[i]])); // some are nearly the same
  },
  async "image classification"(options) {
    return await (
      await ready("image-classification", "classes", options)
    )(picture(48, 40), { top_k: 3 });
  },
  async "image segmentation"(options) {
    return await (
      await ready("image-segmentation", "regions", options)
    )(picture(96, 64));
  },
  async "depth estimation"(options) {
    return await (
      await ready("depth-estimation", "depth", options)
    )(picture(64, 96));
  },
  async "object detection"(options) {
    return await (
      await ready("object-detection", "objects", options)
    )(picture(96, 64), { threshold: 0.01, percentage: true });
  },
  async "zero-shot image classification"(options) {
    const classify = await ready("zero-shot-image-classification", "pairs", options);
    return await classify(picture(40, 40), ["a cat", "the big dog", "paris"]);
  },
  async "speech recognition"(options) {
    const hear = await ready("automatic-speech-recognition", "hearing", options);
    const audio = sound(6);
    return [
      await hear(audio, { max_new_tokens: 16 }),
      await hear(audio, { max_new_tokens: 24, return_timestamps: true }),
    ];
  },
  async "speech logits"(options) {
    const hear = await ready("automatic-speech-recognition", "hearing", options);
    const { input_features } = await hear.processor(sound(3));
    const { logits } = await hear.model({ input_features, decoder_input_ids: new Tensor("int64", [1n, 5n, 9n], [1, 3]) });
    return logits;
  },
  async "text to speech"(options) {
    return await (
      await ready("text-to-speech", "speaking", options)
    )("hello big cat");
  },
  async "background removal"(options) {
    return await (
      await ready("background-removal", "matte", options)
    )(picture(64, 48));
  },
  /** What a page with a graph of its own does. */
  async interpolation() {
    const image = picture(33, 21);
    return [await image.resize(20, 30), await image.rgba()];
  },
};

export const names = Object.keys(cases);
export const run = async (name, options) => plain(await cases[name](options));
