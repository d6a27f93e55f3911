/** A picture of a widget as it stands, for notebooks that are opened without a kernel. */

const WIDTH = 760;

/** A PNG of the element in its light look. Rejects where the browser does not let a page read such pictures back. */
export async function picture(
  element: HTMLElement,
  css: string,
  width = Math.min(WIDTH, element.offsetWidth || WIDTH),
): Promise<Blob> {
  const clone = element.cloneNode(true) as HTMLElement;
  clone.classList.add("pwx-light");
  freeze(element, clone);
  for (const extra of clone.querySelectorAll("[data-still='no']")) extra.remove();

  const measured = document.createElement("div");
  measured.className = "pwx-measure";
  Object.assign(measured.style, {
    position: "fixed",
    left: "-9999px",
    top: "0",
    width: `${width}px`,
    visibility: "hidden",
  });
  measured.append(clone);
  document.body.append(measured);
  const height = Math.ceil(clone.getBoundingClientRect().height) + 4;
  measured.remove();

  const text = new XMLSerializer().serializeToString(clone);
  const plain = css
    .replace(/var\(--jp-[\w-]+,/g, "var(--pwx-none,")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;");
  const source = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%"><div xmlns="http://www.w3.org/1999/xhtml"><style>${plain}</style>${text}</div></foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await image.decode();

  const scale = 1.5;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d")!;
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be encoded"))),
      "image/png",
    ),
  );
}

/** Replaces what a clone does not carry: pixels of canvases and videos, values of inputs. */
function freeze(from: HTMLElement, to: HTMLElement): void {
  const pairs = (selector: string) => {
    const copies = to.querySelectorAll<HTMLElement>(selector);
    return [...from.querySelectorAll<HTMLElement>(selector)].map((original, i) => [original, copies[i]!] as const);
  };
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
    if (src.startsWith("data:") || !naturalWidth) continue;
    const canvas = document.createElement("canvas");
    const scale = Math.min(1, 320 / Math.max(naturalWidth, naturalHeight));
    canvas.width = naturalWidth * scale;
    canvas.height = naturalHeight * scale;
    canvas.getContext("2d")!.drawImage(original as HTMLImageElement, 0, 0, canvas.width, canvas.height);
    copy.replaceWith(imageOf(canvas, copy));
  }
  for (const [original, copy] of pairs("canvas")) {
    const { width, height } = original as HTMLCanvasElement;
    if (!width || !height) continue;
    copy.replaceWith(imageOf(backed(original as HTMLCanvasElement), copy));
  }
  for (const [, copy] of pairs("video")) copy.remove();
}

/** The canvas on what lies behind it: its colours may be those of a dark theme. */
function backed(canvas: HTMLCanvasElement): HTMLCanvasElement {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d")!;
  for (let behind: Element | null = canvas; behind; behind = behind.parentElement) {
    const { backgroundColor } = getComputedStyle(behind);
    if (/^rgba\(.*, 0\)$|^transparent$/.test(backgroundColor)) continue;
    context.fillStyle = backgroundColor;
    context.fillRect(0, 0, copy.width, copy.height);
    break;
  }
  context.drawImage(canvas, 0, 0);
  return copy;
}

function imageOf(canvas: HTMLCanvasElement, like: HTMLElement): HTMLImageElement {
  const image = document.createElement("img");
  image.className = like.className;
  image.style.cssText = like.style.cssText;
  image.hidden = like.hidden;
  image.src = canvas.toDataURL();
  return image;
}
