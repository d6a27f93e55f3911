/** Pictures of a widget as it stands, for notebooks that are opened without a kernel. */

const WIDTH = 760;
const SCALE = 2;
const PATIENCE = 2000;
/** Rows of a table that a picture shows. */
const ROWS = 12;
/** Height of a list of which a picture shows the newest, in CSS pixels. */
const TALL = 1600;
const TEXT = "http://www.w3.org/1999/xhtml";

export type Look = "light" | "dark";

type Repaint = (copy: HTMLCanvasElement) => void;
const painters = new WeakMap<HTMLCanvasElement, Repaint>();

/** Tells how a canvas is painted in the colours and at the size of its copy; others are copied as they are. */
export function repaints(canvas: HTMLCanvasElement, paint: Repaint): void {
  painters.set(canvas, paint);
}

/**
 * A PNG of the element in one look, whatever the page's theme; what is around its rounded corners is transparent. It waits for images and
 * leaves out what is hidden and what only a live widget can do. Rejects where the browser does not let a page read such pictures back.
 */
export async function picture(
  element: HTMLElement,
  css: string,
  look: Look = "light",
  width = Math.min(WIDTH, element.offsetWidth || WIDTH),
): Promise<Blob> {
  await loaded(element);
  const clone = element.cloneNode(true) as HTMLElement;
  clone.classList.add("pwx-still", `pwx-${look}`);
  // What the page's theme sets must not reach the picture, and its rules must not lay the copy out.
  const plain = css.replace(/var\(--(?:jp|vscode)-[\w-]+,/g, "var(--pwx-none,");
  const stage = document.createElement("div");
  Object.assign(stage.style, { position: "fixed", left: "-9999px", top: "0", width: `${width}px`, contain: "strict" });
  stage.style.height = "100000px";
  const style = document.createElement("style");
  style.textContent = plain;
  stage.attachShadow({ mode: "open" }).append(style, clone);
  document.body.append(stage);
  try {
    freeze(element, clone);
    shorten(clone);
    const height = Math.ceil(clone.getBoundingClientRect().height) + 4;
    return await encoded(await drawn(clone, plain, width, height), width, height);
  } finally {
    stage.remove();
  }
}

/** Until fonts and images are there, or will not be. */
async function loaded(element: HTMLElement): Promise<void> {
  const late = new Promise((done) => setTimeout(done, PATIENCE));
  const images = [...element.querySelectorAll("img")].filter((image) => image.src && image.loading !== "lazy");
  const all = [document.fonts.ready, ...images.map((image) => image.decode().catch(() => {}))];
  await Promise.race([Promise.all(all), late]);
}

async function drawn(clone: HTMLElement, css: string, width: number, height: number): Promise<HTMLImageElement> {
  const text = new XMLSerializer().serializeToString(clone);
  const plain = css.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const source = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%"><div xmlns="${TEXT}"><style>${plain}</style>${text}</div></foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await image.decode();
  return image;
}

function encoded(image: HTMLImageElement, width: number, height: number): Promise<Blob> {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * SCALE);
  canvas.height = Math.round(height * SCALE);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be encoded"))),
      "image/png",
    ),
  );
}

/** Replaces what a clone does not carry: pixels of canvases and videos, values of inputs. Then leaves out what a picture is not to show. */
function freeze(from: HTMLElement, to: HTMLElement): void {
  const pairs = (selector: string) => {
    const copies = [...to.querySelectorAll<HTMLElement>(selector)];
    return [...from.querySelectorAll<HTMLElement>(selector)].map((original, i) => [original, copies[i]!] as const);
  };
  const scrolled = pairs(".pwx-scroll");
  for (const [original, copy] of pairs("input, textarea, select")) {
    if (original instanceof HTMLInputElement)
      copy.setAttribute(original.type === "checkbox" ? "data-on" : "value", original.value);
    if (original instanceof HTMLInputElement && original.checked) copy.setAttribute("checked", "");
    if (original instanceof HTMLTextAreaElement) copy.textContent = original.value;
    if (original instanceof HTMLSelectElement)
      copy
        .querySelectorAll("option")
        .forEach((option, i) => option.toggleAttribute("selected", i === original.selectedIndex));
  }
  for (const [original, copy] of pairs("img")) {
    const { src, naturalWidth, naturalHeight } = original as HTMLImageElement;
    if (!naturalWidth) copy.remove();
    if (src.startsWith("data:") || !naturalWidth) continue;
    const canvas = document.createElement("canvas");
    const scale = Math.min(1, 640 / Math.max(naturalWidth, naturalHeight));
    canvas.width = naturalWidth * scale;
    canvas.height = naturalHeight * scale;
    canvas.getContext("2d")!.drawImage(original as HTMLImageElement, 0, 0, canvas.width, canvas.height);
    copy.replaceWith(imageOf(canvas, copy));
  }
  for (const [original, copy] of pairs("canvas") as (readonly [HTMLCanvasElement, HTMLCanvasElement])[]) {
    const paint = painters.get(original);
    if (paint && !copy.closest("[hidden]")) paint(copy);
    const painted = paint ? copy : original;
    if (copy.closest("[hidden]") || !painted.width || !painted.height) copy.remove();
    else copy.replaceWith(imageOf(painted, copy));
  }
  for (const [, copy] of pairs("video, audio")) copy.remove();
  for (const named of to.querySelectorAll<HTMLElement>("[data-still-text]"))
    named.textContent = named.dataset["stillText"]!;
  for (const [, copy] of scrolled) copy.classList.remove("pwx-scroll");
  for (const extra of to.querySelectorAll("[data-still='no'], [hidden], .pwx-probe")) extra.remove();
}

/** Tables and lists without what only scrolling shows. */
function shorten(clone: HTMLElement): void {
  for (const list of clone.querySelectorAll<HTMLElement>("[data-still='newest']")) {
    let earlier = 0;
    for (; list.children.length > 2 && list.offsetHeight > TALL; earlier++) list.firstElementChild!.remove();
    const told = Object.assign(document.createElement("p"), { className: "pwx-soft" });
    told.textContent = `${earlier} earlier ${earlier === 1 ? "message" : "messages"}`;
    if (earlier) list.prepend(told);
  }
  for (const body of clone.querySelectorAll("tbody")) {
    const extra = [...body.rows].slice(ROWS);
    if (extra.length < 2) continue;
    for (const row of extra) row.remove();
    const cell = body.insertRow().insertCell();
    cell.className = "pwx-soft";
    cell.colSpan = 9;
    cell.textContent = `and ${extra.length} more rows`;
  }
}

function imageOf(canvas: HTMLCanvasElement, like: HTMLElement): HTMLImageElement {
  const image = document.createElement("img");
  image.className = like.className;
  image.style.cssText = like.style.cssText;
  image.src = canvas.toDataURL();
  image.width = canvas.width;
  image.height = canvas.height;
  return image;
}
