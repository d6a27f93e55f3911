/** A picture in: dropped, pasted, from a file, an example, the camera or a drawing. */
import { button, canvas, colour, h, icon, messageOf, onTheme } from "../ui/dom.js";
import { describe, prepare, type Pixels, type Prepared } from "../ui/preprocess.js";
import { repaints } from "../ui/still.js";
import { signature, type Tensor, type Tensors, type Value } from "../ui/tensor.js";
import { Camera } from "./camera.js";
import { Drawing } from "./draw.js";
import { panel, type Context, type ImageInput, type InputPanel, type Picture } from "./panel.js";

const LARGEST = 40e6;
const KINDS = "PNG, JPEG, WebP, GIF, BMP, AVIF or SVG";

export class ImagePanel implements InputPanel {
  readonly element: HTMLElement;
  readonly #stage = canvas("The picture given to the model", "pwx-stage");
  readonly #drop: HTMLElement;
  readonly #board: HTMLCanvasElement | undefined;
  readonly #seen = canvas("What the model sees", "pwx-seen");
  readonly #alert = h("p", { class: "pwx-alert", role: "alert", hidden: true });
  readonly #tabs = new Map<string, HTMLButtonElement>();
  readonly #clear: HTMLButtonElement;
  readonly #camera = new Camera();
  readonly #drawing: Drawing | undefined;
  readonly #scratch = document.createElement("canvas");
  readonly #thumbnails: HTMLElement;
  #mode: "still" | "camera" | "draw" = "still";
  #source: { image: CanvasImageSource; width: number; height: number } | undefined;
  #prepared: Prepared | undefined;

  constructor(
    readonly value: Value,
    readonly spec: ImageInput,
    readonly context: Context,
  ) {
    const { signal } = context;
    const file = h("input", {
      type: "file",
      accept: "image/*,video/*",
      hidden: true,
      "aria-label": `Image file for ${value.name}`,
      onchange: () => {
        const [chosen] = file.files ?? [];
        if (chosen) void this.#open(chosen);
        file.value = "";
      },
    });
    const words = h("span", {}, "Drop or paste an image, or ", h("u", {}, "choose a file"));
    const empty = h("div", { class: "pwx-empty", "data-still-text": "No image was given" }, icon("file"), words);
    this.#drop = h(
      "div",
      {
        class: "pwx-drop",
        tabIndex: 0,
        role: "button",
        "aria-label": `Image for ${value.name}: drop, paste, or press Enter to choose a file`,
        onclick: () => file.click(),
        onkeydown: (event: KeyboardEvent) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          event.stopPropagation();
          file.click();
        },
      },
      empty,
      this.#stage,
    );
    const tab = (name: string, label: string, glyph: "file" | "camera" | "draw", act: () => void) => {
      const control = button(label, act, { icon: glyph });
      control.setAttribute("aria-pressed", "false");
      this.#tabs.set(name, control);
      return control;
    };
    this.#clear = button("Clear", () => this.#reset(), { icon: "clear", bare: true });
    const bar = h("div", { class: "pwx-row", "data-still": "no" });
    if (spec.sources.includes("draw")) {
      this.#board = h("canvas", {
        class: "pwx-board",
        tabIndex: 0,
        role: "img",
        "aria-label":
          "Drawing area. Draw with the pointer, or move the pen with arrow keys and hold Shift for ink; Delete clears.",
      });
      this.#drawing = new Drawing(this.#board, !spec.preprocess.invert, () => this.#drawn(), signal);
      bar.append(tab("draw", "Draw", "draw", () => this.#enter("draw")));
      const observer = new ResizeObserver(() => this.#paintBoard());
      observer.observe(this.#board);
      signal.addEventListener("abort", () => observer.disconnect());
    }
    if (spec.sources.includes("file"))
      bar.append(tab("still", "Image", "file", () => (this.#mode === "still" ? file.click() : this.#enter("still"))));
    if (spec.sources.includes("camera")) bar.append(tab("camera", "Camera", "camera", () => void this.#toggleCamera()));
    bar.append(h("span", { class: "pwx-grow" }), this.#clear);
    this.#thumbnails = h("div", {
      class: "pwx-examples",
      role: "group",
      "aria-label": "Examples",
      hidden: !spec.examples.length,
    });
    this.element = panel(
      value.name,
      signature(value),
      bar,
      h("div", { class: "pwx-picture" }, this.#drop, ...(this.#board ? [this.#board] : [])),
      this.#thumbnails,
      this.#alert,
      h("div", { class: "pwx-sees" }, this.#seen, h("div", { class: "pwx-soft" }, describe(spec.preprocess))),
      file,
    );
    if (this.#board) {
      onTheme(this.element, signal, () => this.#paintBoard());
      repaints(this.#board, (copy) =>
        this.#drawing?.paint(colour(copy.parentElement!, "--pwx-fg"), "Nothing was drawn", copy),
      );
    }
    this.#listen();
    this.#enter(this.#drawing ? "draw" : "still");
    void this.#showExamples();
    signal.addEventListener("abort", () => this.#camera.stop());
  }

  streaming(): boolean {
    return this.#camera.running;
  }

  feeds(): Tensors | undefined {
    const pixels = this.#pixels();
    if (!pixels) return undefined;
    this.#prepared = prepare(pixels, this.spec.preprocess);
    this.#paintSeen(this.#prepared.seen);
    return { [this.value.name]: repeated(this.#prepared.tensor, this.spec) };
  }

  picture(): Picture | undefined {
    if (!this.#prepared || !this.#source) return undefined;
    // The frame that was prepared: a video is further by now.
    const { seen, placement } = this.#prepared;
    const { width, height } = this.#source;
    return { image: this.#scratch, width, height, seen, placement };
  }

  #pixels(): Pixels | undefined {
    if (this.#mode === "draw") {
      if (!this.#drawing || this.#drawing.empty) return undefined;
      const image = this.#drawing.picture();
      this.#source = { image, width: image.width, height: image.height };
    }
    if (this.#mode === "camera" && !this.#camera.running) return undefined;
    if (!this.#source) return undefined;
    const { image, width, height } = this.#source;
    const scratch = this.#scratch;
    if (scratch.width !== width || scratch.height !== height) [scratch.width, scratch.height] = [width, height];
    const context = scratch.getContext("2d", { willReadFrequently: true })!;
    context.clearRect(0, 0, width, height);
    context.drawImage(image, 0, 0, width, height);
    return { width, height, channels: 4, data: context.getImageData(0, 0, width, height).data };
  }

  #enter(mode: "still" | "camera" | "draw"): void {
    if (mode !== "camera") this.#camera.stop();
    if (mode !== this.#mode) this.#source = undefined;
    this.#mode = mode;
    for (const [name, tab] of this.#tabs) tab.setAttribute("aria-pressed", String(name === mode));
    if (this.#board) this.#board.hidden = mode !== "draw";
    this.#drop.hidden = mode === "draw";
    this.#alert.hidden = true;
    this.#present();
    this.context.change();
  }

  #present(): void {
    const shown = this.#source !== undefined && this.#mode !== "draw";
    this.#stage.hidden = !shown;
    this.#drop.classList.toggle("pwx-full", shown);
    this.#clear.disabled = this.#mode === "draw" ? !!this.#drawing?.empty : !shown;
    if (shown) this.#paintStage();
    if (!this.#pixelsGiven()) this.#seen.hidden = true;
  }

  #pixelsGiven(): boolean {
    return this.#mode === "draw" ? !this.#drawing?.empty : this.#source !== undefined;
  }

  #paintStage(): void {
    const { image, width, height } = this.#source!;
    const scale = Math.min(1, 960 / Math.max(width, height));
    const [w, hi] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    if (this.#stage.width !== w || this.#stage.height !== hi) [this.#stage.width, this.#stage.height] = [w, hi];
    this.#stage.getContext("2d")!.drawImage(image, 0, 0, w, hi);
  }

  #paintSeen({ width, height, data }: Pixels): void {
    this.#seen.hidden = false;
    [this.#seen.width, this.#seen.height] = [width, height];
    const image = new ImageData(width, height);
    const grey = this.spec.preprocess.color === "L";
    for (let i = 0, o = 0; i < data.length; i += 3, o += 4) {
      const luma = grey ? (data[i]! * 19595 + data[i + 1]! * 38470 + data[i + 2]! * 7471 + 0x8000) >> 16 : 0;
      for (let c = 0; c < 3; c++) image.data[o + c] = grey ? luma : data[i + c]!;
      image.data[o + 3] = 255;
    }
    this.#seen.getContext("2d")!.putImageData(image, 0, 0);
  }

  #paintBoard(): void {
    if (this.#board && !this.#board.hidden)
      this.#drawing?.paint(colour(this.#board.parentElement!, "--pwx-fg"), "Draw here");
  }

  #drawn(): void {
    this.#paintBoard();
    this.#present();
    this.context.change();
  }

  #reset(): void {
    if (this.#mode === "draw") return this.#drawing?.clear();
    this.#source = undefined;
    this.#enter("still");
  }

  async #toggleCamera(): Promise<void> {
    if (this.#camera.running) return this.#enter("still");
    this.#enter("camera");
    try {
      await this.#camera.start(
        () => this.#frame(),
        () => {
          this.#enter("still");
          this.#fail(new Error("The camera was disconnected. Connect it again, or use a file."));
        },
      );
      if (this.context.signal.aborted || this.#mode !== "camera") this.#camera.stop();
    } catch (error) {
      if (this.#mode === "camera") this.#enter("still");
      this.#fail(error);
    }
  }

  #frame(): void {
    const { video } = this.#camera;
    this.#source = { image: video, width: video.videoWidth, height: video.videoHeight };
    this.#present();
    this.context.change();
  }

  async #play(film: Blob): Promise<void> {
    this.#enter("camera");
    try {
      await this.#camera.play(film, () => this.#frame());
      if (this.context.signal.aborted || this.#mode !== "camera") this.#camera.stop();
    } catch (error) {
      this.#enter("still");
      throw error;
    }
  }

  #fail(error: unknown): void {
    this.#alert.replaceChildren(icon("warn"), messageOf(error));
    this.#alert.hidden = false;
  }

  /** Opens a file or blob; what is no image, or too large, is said and changes nothing. */
  async #open(blob: Blob): Promise<void> {
    this.#alert.hidden = true;
    const name = blob instanceof File ? blob.name : "The image";
    try {
      if (blob.type.startsWith("video/")) return await this.#play(blob);
      if (blob.type && !blob.type.startsWith("image/"))
        throw new Error(`${name} is ${blob.type}, not an image: use ${KINDS}.`);
      const image = await decode(blob, name);
      if (this.context.signal.aborted) return;
      this.#enter("still");
      const [width, height] =
        "naturalWidth" in image ? [image.naturalWidth || 512, image.naturalHeight || 512] : [image.width, image.height];
      if (width * height > LARGEST)
        throw new Error(
          `${name} has ${width} × ${height} pixels; the limit is ${LARGEST / 1e6} million. Make it smaller.`,
        );
      this.#source = { image, width, height };
      this.#present();
      this.context.change();
    } catch (error) {
      this.#fail(error);
    }
  }

  #listen(): void {
    const { element } = this;
    const { signal } = this.context;
    let depth = 0;
    const over = (inside: boolean): void => {
      depth = inside ? depth + 1 : Math.max(0, depth - 1);
      element.classList.toggle("pwx-over", depth > 0);
    };
    element.addEventListener("dragenter", () => over(true), { signal });
    element.addEventListener("dragleave", () => over(false), { signal });
    element.addEventListener("dragover", (event) => event.preventDefault(), { signal });
    element.addEventListener(
      "drop",
      (event) => {
        event.preventDefault();
        event.stopPropagation();
        depth = 1;
        over(false);
        const [file] = event.dataTransfer?.files ?? [];
        if (file) void this.#open(file);
        else this.#fail(new Error(`Nothing that was dropped is a file: drop ${KINDS}.`));
      },
      { signal },
    );
    element.addEventListener(
      "paste",
      (event) => {
        const item = [...(event.clipboardData?.items ?? [])].find(({ kind }) => kind === "file");
        event.preventDefault();
        event.stopPropagation();
        const file = item?.getAsFile();
        if (file) void this.#open(file);
        else this.#fail(new Error("The clipboard holds no image."));
      },
      { signal },
    );
  }

  async #showExamples(): Promise<void> {
    for (const { name, asset } of this.spec.examples) {
      try {
        const blob = new Blob([await this.context.asset(asset)], { type: "image/*" });
        const url = URL.createObjectURL(blob);
        this.context.signal.addEventListener("abort", () => URL.revokeObjectURL(url));
        const thumbnail = h("img", { src: url, alt: name, loading: "lazy" });
        this.#thumbnails.append(
          h(
            "button",
            {
              type: "button",
              class: "pwx-example",
              title: name,
              "aria-label": `Example: ${name}`,
              onclick: () => void this.#open(blob),
            },
            thumbnail,
          ),
        );
      } catch (error) {
        if (!this.context.signal.aborted) this.#fail(error);
      }
    }
  }
}

async function decode(blob: Blob, name: string): Promise<ImageBitmap | HTMLImageElement> {
  try {
    return await createImageBitmap(blob, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    if (blob.type !== "image/svg+xml") throw new Error(`${name} cannot be read as an image: use ${KINDS}.`);
  }
  const url = URL.createObjectURL(blob);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    return image;
  } catch {
    throw new Error(`${name} cannot be read as an image: use ${KINDS}.`);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** The picture as often as a fixed batch asks for. */
function repeated(tensor: Tensor, { batch, preprocess }: ImageInput): Tensor {
  const axis = preprocess.layout.indexOf("N");
  if (batch === 1 || axis !== 0) return tensor;
  const one = tensor.data;
  const data = new (one.constructor as Float32ArrayConstructor)(one.length * batch) as unknown as Float32Array;
  for (let i = 0; i < batch; i++) data.set(one as Float32Array, i * one.length);
  return { ...tensor, dims: [batch, ...tensor.dims.slice(1)], data };
}
