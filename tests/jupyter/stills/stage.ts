/** Widgets on fixed figures: a model that answers at once and a clock that a test can foresee. */
import ui from "../../../js/widget/ui/ui.css";
import chatCss from "../../../js/widget/chat/chat.css";
import compareCss from "../../../js/widget/compare/compare.css";
import playgroundCss from "../../../js/widget/playground/playground.css";
import profileCss from "../../../js/widget/profile/profile.css";
import { Chat, type Message } from "../../../js/widget/chat/chat.js";
import { Compare } from "../../../js/widget/compare/compare.js";
import { Playground } from "../../../js/widget/playground/playground.js";
import { Profile } from "../../../js/widget/profile/profile.js";
import { picture, type Look } from "../../../js/widget/ui/still.js";
import type { Runnable } from "../../../js/widget/ui/host.js";
import type { Tensors } from "../../../js/widget/ui/tensor.js";

export const css = ui + chatCss + compareCss + playgroundCss + profileCss;
const { signal } = new AbortController();

/** Milliseconds pass only while a model runs. */
let now = 0;
performance.now = () => now;

function host(outputs: (backend: string) => Tensors, asset?: () => Promise<Blob>) {
  return {
    backends: ["wasm"],
    async asset() {
      return new Uint8Array(await (await asset!()).arrayBuffer());
    },
    async load(backend: string): Promise<Runnable> {
      return {
        label: `${backend} · one thread`,
        async run() {
          now += backend === "cpu" ? 1.5 : 2;
          return outputs(backend);
        },
        async release() {},
      };
    },
  };
}

const floats = (n: number, value: (i: number) => number) => ({
  type: "float32" as const,
  dims: [n],
  data: Float32Array.from({ length: n }, (_, i) => value(i)),
});

export function profile(): HTMLElement {
  const kernels = ["conv", "map", "pool", "matmul", "softmax", "reduce", "attention"];
  const trace = Array.from({ length: 20 }, (_, i) => ({
    name: `/model/encoder/layer.${i >> 2}/a_long_name_of_a_node/${kernels[i % 7]}_${i}`,
    kernel: kernels[i % 7]!,
    ms: 0.4 + ((i * 7) % 11) / 4,
    bytes: 1000 * (i + 1) ** 2,
  }));
  const spec = { title: "encoder.onnx", inputs: [], backends: ["wasm"], seed: 0, dims: {}, runs: 1, live: false };
  const shown = new Profile({ spec, host: host(() => ({})), signal, given: Promise.resolve(undefined), onSteps() {}, onSettled() {} });
  shown.trace(trace);
  return shown.element;
}

export function compare(): HTMLElement {
  const value = { name: "x", type: "float32" as const, shape: ["n", 4] };
  const spec = {
    title: "encoder.onnx",
    inputs: [value],
    outputs: [{ ...value, name: "scores" }, { ...value, name: "hidden" }],
    backends: ["cpu", "wasm"],
    seed: 0,
    dims: { n: 2 },
    tolerance: 1e-5,
  };
  const outputs = (backend: string): Tensors => ({
    scores: floats(400, (i) => Math.sin(i) + (backend === "wasm" ? 1e-7 * Math.cos(7 * i) : 0)),
    hidden: floats(400, (i) => Math.cos(i) + (backend === "wasm" ? 1e-3 * Math.sin(3 * i) : 0)),
  });
  return new Compare({ spec, host: host(outputs), signal, given: Promise.resolve(undefined), onFigures() {}, onSettled() {} }).element;
}

/** A playground of pictures: of a drawing area, of a photograph, or of nothing yet. */
export function playground(sources: readonly ("draw" | "file" | "camera")[]): HTMLElement {
  const preprocess = { resize: [24, 32], fit: "cover", filter: "bilinear", layout: "NCHW", color: "RGB", dtype: "float32", scale: 1 / 255, mean: 0, std: 1, trim: null, fill: 0, invert: false, crop: null }; // prettier-ignore
  const spec = {
    title: "animals.onnx",
    inputs: [{ name: "pixels", type: "float32" as const, shape: [1, 3, 24, 32] }],
    outputs: [{ name: "scores", type: "float32" as const, shape: [1, 4] }],
    panels: [{ kind: "image", inputs: ["pixels"], preprocess, sources, examples: [{ name: "blue", asset: "blue" }], batch: 1 }],
    shows: [{ kind: "topk", output: "scores", labels: ["cat", "dog", "a rather long name of a bird", "fish"], k: 4, activation: "none" }],
    dims: {},
    backends: ["wasm"],
  };
  const scores = { ...floats(4, (i) => [0.1, 0.65, 0.2, 0.05][i]!), dims: [1, 4] };
  const options = { spec, host: host(() => ({ scores }), drawn), signal, sync: false, onSync() {}, onSettled() {} };
  return new Playground(options as never).element;
}

/** A conversation, with a system prompt that is nobody's business. */
export function chat(messages: readonly Message[] = TALK): HTMLElement {
  const none = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  const words = { ...none, added_tokens: [], model: { type: "WordLevel", vocab: { "?": 0 }, unk_token: "?" } };
  const floats = { isTensor: true, type: "float32", shape: [1, 2, "past", 4] };
  const session = {
    inputMetadata: ["key", "value"].map((part) => ({ ...floats, name: `past_key_values.0.${part}` })),
    outputNames: ["logits", "present.0.key", "present.0.value"],
    outputMetadata: [{ ...floats, name: "logits", shape: [1, "length", 1] }],
  };
  const [model, backends] = [{ label: "wasm · one thread", session, release: async () => {} }, ["wasm"]];
  const shown = new Chat({
    spec: { title: "small-talk.gguf", backends, tokenizer: "words", template: "", hints: { ends: [], context_length: 99 } },
    host: { backends, asset: async () => new TextEncoder().encode(JSON.stringify(words)), load: async () => model },
    signal,
    player: async () => ({ Tensor: class {} }),
    settings: () => ({}),
    onMessages() {},
    onSystem() {},
    onSettled() {},
  } as never);
  shown.show(messages, "You are brief.");
  return shown.element;
}

const TALK: readonly Message[] = [
  { role: "user", content: "What lives in the sea, and is not a fish?" },
  {
    role: "assistant",
    content: `Whales, for one: they breathe air. Others:\n\n  1. octopuses\n  2. ${"sea_urchins_".repeat(8)}`,
  },
  { role: "user", content: "And on land? <b>Briefly</b>." },
  { role: "assistant", content: "Füchse." },
];

/** A sun in a blue sky. */
function drawn(): Promise<Blob> {
  const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 240 });
  const context = canvas.getContext("2d")!;
  context.fillStyle = "#27c";
  context.fillRect(0, 0, 320, 240);
  context.fillStyle = "#fd5";
  context.arc(160, 120, 80, 0, 7);
  context.fill();
  return new Promise((done) => canvas.toBlob((blob) => done(blob!)));
}

/** The picture as a data: address. */
export async function still(element: HTMLElement, look: Look): Promise<string> {
  const blob = await picture(element, css, look, 640);
  return new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.readAsDataURL(blob);
  });
}
