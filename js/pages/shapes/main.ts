import { Camera } from "../../widget/playground/camera.js";
import { describe, element, fail, milliseconds, onDrop, read } from "../common.js";
import { Detector, type Found } from "./detector.js";
import { paint, row } from "./paint.js";
import { HEIGHT, Scene, WIDTH } from "./scene.js";

/** Rows of the list; the picture shows all. */
const LISTED = 10;
/** Times shown are means of so many runs. */
const RECENT = 20;
/** The longer side that is kept of a person's picture. */
const LARGEST = 1024;

const canvas = element<HTMLCanvasElement>("picture");
const status = element("status");
const moving = element("moving");
const cameraButton = element("camera");
const threshold = element<HTMLInputElement>("threshold");
const camera = new Camera();
/** The picture without boxes. */
const plain = document.createElement("canvas");

let scene: Scene | undefined;
let detector: Detector;
let running = false;
let again = false;
let times: number[] = [];
let frames: number[] = [];

const live = (): boolean => camera.running || moving.ariaPressed === "true";

function chosen(name: string): string {
  return document.querySelector<HTMLInputElement>(`input[name=${name}]:checked`)!.value;
}

function show(found: readonly Found[]): void {
  paint(canvas, plain, found);
  element("found").replaceChildren(...found.slice(0, LISTED).map(row));
  element("more").textContent = found.length > LISTED ? `and ${found.length - LISTED} more` : "";
  // Read out once a picture stands still.
  element("summary").ariaLive = live() ? "off" : "polite";
  const noun = found.length === 1 ? "shape" : "shapes";
  element("count").textContent = String(found.length);
  element("words").textContent = `${noun} found${scene ? `, ${scene.shapes.length} drawn` : ""}`;
  canvas.ariaLabel = `Picture, ${found.length} ${noun} found`;
}

function tell(ms: number): void {
  const now = performance.now();
  times = [...times, ms].slice(-RECENT);
  frames = [...frames, now].slice(-RECENT);
  const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
  const parts = [describe(detector.session), `${milliseconds(mean)} a picture`];
  const rate = (1000 * (frames.length - 1)) / (now - frames[0]!);
  if (live() && frames.length > 2) parts.push(`${rate.toFixed(0)} frames per second`);
  if (detector.session.fallback) parts.push(detector.session.fallback);
  status.classList.remove("failed");
  status.textContent = parts.join(" · ");
}

/** Looks at the picture that is there; however often it is asked for meanwhile, it looks once more. */
async function look(): Promise<void> {
  again = running;
  if (running) return;
  running = true;
  canvas.ariaBusy = "true";
  try {
    const before = performance.now();
    const found = await detector.find(plain, Number(chosen("size")), Number(threshold.value));
    tell(performance.now() - before);
    show(found);
  } catch (error) {
    fail(status, error);
  }
  running = false;
  if (again) await look();
  else canvas.ariaBusy = "false";
}

/** The canvas of the picture, of that size. */
function blank(width: number, height: number): CanvasRenderingContext2D {
  if (plain.width !== width || plain.height !== height) Object.assign(plain, { width, height });
  return plain.getContext("2d", { willReadFrequently: true })!;
}

/** Makes a picture from outside the one that is looked at. */
function take(source: CanvasImageSource, width: number, height: number): void {
  scene = undefined;
  const scale = Math.min(1, LARGEST / Math.max(width, height));
  const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  blank(w, h).drawImage(source, 0, 0, w, h);
}

/** Ends what moves. */
function still(): void {
  camera.stop();
  moving.ariaPressed = cameraButton.ariaPressed = "false";
  [times, frames] = [[], []];
}

function fresh(): void {
  still();
  scene = new Scene();
  scene.draw(blank(WIDTH, HEIGHT));
  void look();
}

function animate(): void {
  const on = moving.ariaPressed !== "true";
  still();
  if (!on) return void look();
  if (!scene) fresh();
  moving.ariaPressed = "true";
  let last = performance.now();
  const step = async (now: number): Promise<void> => {
    if (moving.ariaPressed !== "true" || !scene) return;
    scene.move(Math.min(0.1, Math.max(0, now - last) / 1000));
    last = now;
    scene.draw(blank(WIDTH, HEIGHT));
    await look();
    requestAnimationFrame((time) => void step(time));
  };
  requestAnimationFrame((time) => void step(time));
}

async function film(): Promise<void> {
  const on = !camera.running;
  still();
  if (!on) return look();
  try {
    await camera.start(() => {
      if (running) return;
      take(camera.video, camera.video.videoWidth, camera.video.videoHeight);
      void look();
    }, still);
    cameraButton.ariaPressed = "true";
  } catch (error) {
    status.textContent = error instanceof Error ? error.message : String(error);
  }
}

async function open(file: Blob): Promise<void> {
  still();
  try {
    const picture = await createImageBitmap(file);
    take(picture, picture.width, picture.height);
  } catch {
    status.textContent = "The file could not be read as a picture.";
    return;
  }
  await look();
}

/** Goes on with another backend, or with the one that there is where that cannot be had. */
async function change(model: ArrayBuffer): Promise<void> {
  const wanted = chosen("backend") as "wasm" | "webgpu";
  status.textContent = "Getting ready";
  try {
    const before = detector;
    detector = await Detector.on(wanted, model);
    [times, frames] = [[], []];
    await look();
    await before.session.release();
  } catch (error) {
    element("backend").querySelector<HTMLInputElement>(`[value=${detector.session.backend}]`)!.checked = true;
    status.textContent = `There is no ${wanted} here: ${error instanceof Error ? error.message : String(error)}`;
  }
}

function listen(model: ArrayBuffer): void {
  element("scene").addEventListener("click", fresh);
  moving.addEventListener("click", animate);
  cameraButton.addEventListener("click", () => void film());
  const picker = element<HTMLInputElement>("file");
  element("choose").addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    if (picker.files?.[0]) void open(picker.files[0]);
    picker.value = "";
  });
  onDrop(element("stage"), ([file]) => void open(file!));
  addEventListener("paste", (event) => {
    const [file] = event.clipboardData?.files ?? [];
    if (file) void open(file);
  });
  threshold.addEventListener("input", () => {
    element("least").textContent = `${Math.round(100 * Number(threshold.value))} %`;
    void look();
  });
  element("size").addEventListener("change", () => {
    [times, frames] = [[], []];
    void look();
  });
  const webgpu = element("backend").querySelector<HTMLInputElement>("[value=webgpu]")!;
  webgpu.disabled = !("gpu" in navigator);
  if (webgpu.disabled) webgpu.parentElement!.title = "This browser has no WebGPU";
  element("backend").addEventListener("change", () => void change(model));
}

async function start(): Promise<void> {
  const model = await (await read("shapes.ponnx")).arrayBuffer();
  detector = await Detector.on("wasm", model);
  listen(model);
  fresh();
}

start().catch((error: unknown) => fail(status, error));
