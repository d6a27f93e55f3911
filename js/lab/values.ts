/** Elements of a weight: a heat map of one plane at a time, and the whole tensor as an .npy file. */
import { download, el, numberText } from "./dom.js";
import type { Plane } from "./knowledge.js";

export interface Contents {
  plane(index: number): Promise<Plane>;
  npy(): Promise<Blob>;
}

/** Below zero blue, above it red, zero as the page is. */
function paint(canvas: HTMLCanvasElement, { height, width }: Plane, values: Float32Array, most: number): void {
  [canvas.width, canvas.height] = [Math.max(1, width), Math.max(1, height)];
  const image = new ImageData(Math.max(1, width), Math.max(1, height));
  values.forEach((value, k) => {
    const share = most ? Math.min(1, Math.abs(value) / most) : 0;
    const [r, g, b] = value < 0 ? [33, 102, 192] : [200, 50, 40];
    image.data.set(Number.isFinite(value) ? [r!, g!, b!, 255 * Math.sqrt(share)] : [255, 0, 255, 255], 4 * k);
  });
  canvas.getContext("2d")!.putImageData(image, 0, 0);
}

export function valuesPanel(name: string, contents: Contents, tell: (error: unknown) => void): HTMLElement {
  const canvas = el("canvas", { class: "pw-plane", role: "img", tabindex: 0 });
  const under = el("div", { class: "pw-faint", role: "status" });
  const index = el("input", { type: "number", min: 0, step: 1, value: 0, "aria-label": `plane of ${name}` });
  const which = el("label", { class: "pw-field", hidden: true }, el("span", {}, "plane"), index);
  let shown: { plane: Plane; values: Float32Array } | null = null;
  let at = { row: 0, column: 0 };

  const show = async (): Promise<void> => {
    try {
      const plane = await contents.plane(Math.max(0, Math.round(Number(index.value)) || 0));
      const values = new Float32Array(Uint8Array.from(atob(plane.values), (c) => c.charCodeAt(0)).buffer);
      const most = values.reduce((a, v) => (Number.isFinite(v) ? Math.max(a, Math.abs(v)) : a), 0);
      shown = { plane, values };
      which.hidden = plane.planes < 2;
      index.max = String(plane.planes - 1);
      paint(canvas, plane, values, most);
      canvas.style.aspectRatio = `${Math.max(1, plane.width)} / ${Math.min(Math.max(plane.height, plane.width / 6), 2 * plane.width) || 1}`;
      const part = plane.height < plane.rows || plane.width < plane.columns ? `, ${plane.height} × ${plane.width} of them shown` : ""; // prettier-ignore
      canvas.setAttribute("aria-label", `Heat map of ${name}: ${plane.rows} × ${plane.columns} values up to ± ${numberText(most)}${part}`); // prettier-ignore
      under.textContent = `${plane.rows} × ${plane.columns}${part}, ± ${numberText(most)}`;
    } catch (error) {
      tell(error);
    }
  };
  const point = (row: number, column: number): void => {
    if (!shown) return;
    const { rows, columns, height, width } = shown.plane;
    at = { row: Math.min(height - 1, Math.max(0, row)), column: Math.min(width - 1, Math.max(0, column)) };
    const real = [at.row, at.column].map((k, axis) => {
      const [all, some] = axis ? [columns, width] : [rows, height];
      return some < 2 ? 0 : Math.floor((k * (all - 1)) / (some - 1));
    });
    under.textContent = `[${real.join(", ")}] = ${numberText(shown.values[at.row * width + at.column] ?? null)}`;
  };
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    if (!shown) return;
    const { height, width } = shown.plane;
    point(Math.floor((offsetY * height) / canvas.clientHeight), Math.floor((offsetX * width) / canvas.clientWidth));
  });
  canvas.addEventListener("keydown", (event) => {
    const moves: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }; // prettier-ignore
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    point(at.row + move[0], at.column + move[1]);
  });
  index.addEventListener("change", () => void show());
  const file = `${name.split(/[/\\]/).at(-1) || "tensor"}.npy`;
  const save = async (): Promise<void> => {
    try {
      download(file, await contents.npy());
    } catch (error) {
      tell(error);
    }
  };
  void show();
  return el(
    "div",
    { class: "pw-values" },
    which,
    canvas,
    under,
    el("button", { class: "pw-button pw-small", type: "button", onclick: () => void save() }, "Save as .npy"),
  );
}
