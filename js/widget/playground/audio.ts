/** Sound in: from a file or the microphone, as samples of the model's rate; and sound out. */
import { button, canvas, colour, h, icon, messageOf, onTheme } from "../ui/dom.js";
import { repaints } from "../ui/still.js";
import { filled, reader, signature, summarise, trouble, type Tensors, type Value } from "../ui/tensor.js";
import { panel, type AudioInput, type Context, type InputPanel, type OutputPanel, type SoundOutput } from "./panel.js";

const HEIGHT = 64;
/** Seconds after which a recording ends by itself. */
const LONGEST = 30;

/** Samples between -1 and 1 as a wave on the line of zero. */
class Wave {
  readonly canvas: HTMLCanvasElement;
  #samples: ArrayLike<number> = [];

  constructor(label: string, signal?: AbortSignal) {
    this.canvas = canvas(label, "pwx-wave");
    repaints(this.canvas, (copy) => this.#paint(copy));
    if (signal) onTheme(h("div", {}, this.canvas), signal, () => this.#paint(this.canvas));
  }

  show(samples: ArrayLike<number>): void {
    this.#samples = samples;
    this.canvas.hidden = !samples.length;
    this.#paint(this.canvas);
  }

  #paint(target: HTMLCanvasElement): void {
    const samples = this.#samples;
    const width = Math.max(1, Math.round((target.clientWidth || 300) * 2));
    [target.width, target.height] = [width, 2 * HEIGHT];
    const context = target.getContext("2d")!;
    context.fillStyle = colour(target.parentElement ?? target, "--pwx-accent");
    for (let x = 0; x < width; x++) {
      let [low, high] = [0, 0];
      const end = Math.floor(((x + 1) * samples.length) / width);
      for (let k = Math.floor((x * samples.length) / width); k < end; k++) {
        low = Math.min(low, samples[k]!);
        high = Math.max(high, samples[k]!);
      }
      const [top, bottom] = [HEIGHT * (1 - Math.min(1, high)), HEIGHT * (1 - Math.max(-1, low))];
      context.fillRect(x, top, 1, Math.max(1, bottom - top));
    }
  }
}

/** One channel of a sound at a rate. Throws an error that says what is wrong with it. */
async function samplesOf(blob: Blob, rate: number, name: string): Promise<Float32Array> {
  try {
    const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await blob.arrayBuffer());
    const mixed = new Float32Array(sound.length);
    for (let c = 0; c < sound.numberOfChannels; c++) {
      const channel = sound.getChannelData(c);
      for (let k = 0; k < mixed.length; k++) mixed[k]! += channel[k]! / sound.numberOfChannels;
    }
    return mixed;
  } catch {
    throw new Error(`${name} cannot be read as sound: use WAV, MP3, OGG, FLAC, M4A or WebM.`);
  }
}

export class AudioPanel implements InputPanel {
  readonly element: HTMLElement;
  readonly #wave: Wave;
  readonly #told = h("div", { class: "pwx-soft", role: "status" }, "No sound yet");
  readonly #alert = h("p", { class: "pwx-alert", role: "alert", hidden: true });
  readonly #player = h("audio", { controls: true, hidden: true, "aria-label": "The sound given to the model" });
  readonly #record: HTMLButtonElement;
  #samples: Float32Array | undefined;
  #recorder: MediaRecorder | undefined;

  constructor(
    readonly value: Value,
    readonly spec: AudioInput,
    readonly context: Context,
  ) {
    this.#wave = new Wave(`Wave of ${value.name}`, context.signal);
    const file = h("input", {
      type: "file",
      accept: "audio/*,video/*",
      hidden: true,
      "aria-label": `Sound for ${value.name}`,
      onchange: () => {
        const [chosen] = file.files ?? [];
        if (chosen) void this.#take(chosen, chosen.name);
        file.value = "";
      },
    });
    this.#record = button("Record", () => void this.#toggle(), { icon: "camera" });
    this.#record.setAttribute("aria-pressed", "false");
    const bar = h(
      "div",
      { class: "pwx-row" },
      spec.sources.includes("file") ? button("Choose a file", () => file.click(), { icon: "file" }) : null,
      spec.sources.includes("microphone") ? this.#record : null,
    );
    this.element = panel(
      value.name,
      signature(value),
      bar,
      this.#wave.canvas,
      this.#player,
      this.#told,
      this.#alert,
      file,
    );
    this.#wave.canvas.hidden = true;
    this.element.addEventListener("dragover", (event) => event.preventDefault(), { signal: context.signal });
    this.element.addEventListener(
      "drop",
      (event) => {
        event.preventDefault();
        event.stopPropagation();
        const [dropped] = event.dataTransfer?.files ?? [];
        if (dropped) void this.#take(dropped, dropped.name);
      },
      { signal: context.signal },
    );
    context.signal.addEventListener("abort", () => {
      this.#stop();
      if (this.#player.src) URL.revokeObjectURL(this.#player.src);
    });
  }

  loading(): boolean {
    return this.#recorder !== undefined;
  }

  feeds(): Tensors | undefined {
    const samples = this.#samples;
    if (!samples) return undefined;
    const { shape, type, name } = this.value;
    const last = shape.at(-1);
    const length = typeof last === "number" ? last : samples.length;
    const dims = [...shape.slice(0, -1).map((d) => (typeof d === "number" ? d : 1)), length];
    // What a fixed length does not hold is silence at the end, or left out.
    return { [name]: filled(type, dims, (k) => (samples[k % length] ?? 0) * this.spec.scale) };
  }

  async #take(blob: Blob, name: string): Promise<void> {
    this.#alert.hidden = true;
    try {
      const samples = await samplesOf(blob, this.spec.rate, name);
      if (this.context.signal.aborted) return;
      this.#samples = samples;
      this.#wave.show(samples);
      if (this.#player.src) URL.revokeObjectURL(this.#player.src);
      this.#player.src = URL.createObjectURL(blob);
      this.#player.hidden = false;
      this.#told.textContent = `${name}: ${(samples.length / this.spec.rate).toFixed(2)} s at ${this.spec.rate} Hz`;
      this.context.change();
    } catch (error) {
      this.#fail(error);
    }
  }

  async #toggle(): Promise<void> {
    if (this.#recorder) return this.#stop();
    this.#alert.hidden = true;
    try {
      if (!navigator.mediaDevices?.getUserMedia)
        throw new Error("The microphone needs a secure page (https or localhost) that allows it. Use a file instead.");
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const recorder = (this.#recorder = new MediaRecorder(stream));
      const parts: Blob[] = [];
      recorder.ondataavailable = ({ data }) => parts.push(data);
      recorder.onstop = () => {
        for (const track of stream.getTracks()) track.stop();
        this.#recorder = undefined;
        this.#record.setAttribute("aria-pressed", "false");
        if (!this.context.signal.aborted) void this.#take(new Blob(parts, { type: recorder.mimeType }), "Recording");
      };
      recorder.start();
      setTimeout(() => this.#recorder === recorder && this.#stop(), LONGEST * 1000);
      this.#record.setAttribute("aria-pressed", "true");
      this.#told.textContent = `Recording: press again to end it, ${LONGEST} s at most`;
    } catch (error) {
      const name = error instanceof DOMException ? error.name : "";
      const denied = name === "NotAllowedError" || name === "SecurityError";
      const none = name === "NotFoundError";
      this.#fail(
        denied
          ? new Error(
              "The microphone was not allowed. Allow it in the browser's settings for this page, or use a file.",
            )
          : none
            ? new Error("No microphone was found. Use a file instead.")
            : error,
      );
    }
  }

  #stop(): void {
    if (this.#recorder?.state === "recording") this.#recorder.stop();
  }

  #fail(error: unknown): void {
    this.#alert.replaceChildren(icon("warn"), messageOf(error));
    this.#alert.hidden = false;
  }
}

/** Sound out: its wave, and a player. */
export class SoundShow implements OutputPanel {
  readonly element: HTMLElement;
  readonly #wave: Wave;
  readonly #player: HTMLAudioElement;
  readonly #told = h("div", { class: "pwx-soft", role: "status" });

  constructor(
    readonly value: Value,
    readonly spec: SoundOutput,
  ) {
    this.#wave = new Wave(`Wave of ${value.name}`);
    this.#player = h("audio", { controls: true, "aria-label": `Sound of ${value.name}` });
    this.element = panel(value.name, signature(value), this.#wave.canvas, this.#player, this.#told);
    this.clear();
  }

  show(results: Tensors): void {
    const result = results[this.value.name];
    if (!result) return;
    const at = reader(result);
    const samples = Float32Array.from({ length: result.data.length }, (_, k) => at(k));
    const wrong = trouble(summarise(result));
    this.#wave.show(samples);
    this.#free();
    this.#player.src = URL.createObjectURL(wav(samples, this.spec.rate));
    this.#player.hidden = !!wrong || !samples.length;
    this.#told.textContent = wrong
      ? `${wrong}.`
      : `${(samples.length / this.spec.rate).toFixed(2)} s at ${this.spec.rate} Hz`;
  }

  clear(): void {
    this.#free();
    this.#wave.show([]);
    this.#player.hidden = true;
    this.#told.textContent = "Nothing to hear yet";
  }

  #free(): void {
    if (this.#player.src) URL.revokeObjectURL(this.#player.src);
    this.#player.removeAttribute("src");
  }
}

/** A WAV file of 16-bit samples. */
function wav(samples: Float32Array, rate: number): Blob {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at: number, letters: string): void =>
    [...letters].forEach((c, k) => view.setUint8(at + k, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  for (const [at, value] of [[20, 1], [22, 1], [32, 2], [34, 16]] as const) view.setUint16(at, value, true); // prettier-ignore
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((v, k) => view.setInt16(44 + 2 * k, Math.round(32767 * Math.min(1, Math.max(-1, v))), true));
  return new Blob([view.buffer], { type: "audio/wav" });
}
