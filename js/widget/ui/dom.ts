/** Elements, icons and small controls. Text from models and people is only ever set as text. */

export type Child = Node | string | false | null | undefined;
type Props = Readonly<Record<string, unknown>>;

/** Makes an element: `on…` functions are listeners, `class` and `aria-…` are attributes, the rest are properties. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (/^(class|role|for|style|aria-.*|data-.*|list)$/.test(name)) element.setAttribute(name, String(value));
    else Object.assign(element, { [name]: value });
  }
  element.append(...children.filter((c): c is Node | string => c !== false && c !== null && c !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(
  tag: string,
  attributes: Readonly<Record<string, string | number>> = {},
  ...children: Child[]
): SVGElement {
  const element = document.createElementNS(SVG, tag) as SVGElement;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children.filter((c): c is Node | string => !!c));
  return element;
}

/** Outlines on a 24 × 24 grid. */
const ICONS = {
  file: "M12 16V4m0 0 4.5 4.5M12 4 7.5 8.5M4 15v4a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-4",
  camera: "M4 8h3l2-3h6l2 3h3v11H4zM12 10a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7",
  draw: "M4 20l1-4L16 5l3 3L8 19zM13.5 7.5l3 3",
  stop: "M7 7h10v10H7z",
  clear: "M6 6l12 12M18 6 6 18",
  play: "M8 5l11 7-11 7z",
  python: "M4 12h13m0 0-5-5m5 5-5 5M20 5v14",
  warn: "M12 4 3 19h18zM12 10v4M12 16.5v.01",
  info: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M12 11v5M12 8v.01",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  reset: "M4 12a8 8 0 1 1 2.5 5.8M4 12V7m0 5h5",
} as const;

export function icon(name: keyof typeof ICONS): SVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", class: "pwx-icon", "aria-hidden": "true" },
    svg("path", { d: ICONS[name] }),
  );
}

export function button(
  label: string,
  onclick: () => void,
  options: { icon?: keyof typeof ICONS; bare?: boolean } = {},
): HTMLButtonElement {
  return h(
    "button",
    {
      type: "button",
      class: options.bare ? "pwx-button pwx-bare" : "pwx-button",
      onclick,
      title: options.bare ? label : undefined,
      "aria-label": options.bare ? label : undefined,
    },
    options.icon ? icon(options.icon) : null,
    options.bare ? null : label,
  );
}

let ids = 0;

/** A control with its label above. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  control.id ||= `pwx-${++ids}-${Math.random().toString(36).slice(2, 8)}`;
  return h(
    "div",
    { class: "pwx-field" },
    h("label", { for: control.id }, label, hint ? h("small", {}, hint) : null),
    control,
  );
}

export function choice<T extends string>(
  label: string,
  options: readonly T[],
  value: T,
  change: (value: T) => void,
): HTMLSelectElement {
  const select = h(
    "select",
    { class: "pwx-input", "aria-label": label, onchange: () => change(select.value as T) },
    ...options.map((o) => h("option", { value: o }, o)),
  );
  select.value = value;
  return select;
}

/** An integer input that reports each valid value. */
export function integer(label: string, value: number, change: (value: number) => void, min = 0): HTMLInputElement {
  const input = h("input", {
    type: "number",
    class: "pwx-input pwx-integer",
    min: String(min),
    step: "1",
    value: String(value),
    "aria-label": label,
    oninput: () => {
      const given = input.valueAsNumber;
      const fine = Number.isSafeInteger(given) && given >= min;
      input.setAttribute("aria-invalid", String(!fine));
      if (fine) change(given);
    },
  });
  return input;
}

/** A canvas with a picture of device pixels for its size in CSS pixels. */
export function canvas(label: string, className = ""): HTMLCanvasElement {
  return h("canvas", { class: className, role: "img", "aria-label": label });
}

/** The value of a custom property or colour, as the element resolves it. */
export function colour(element: Element, property: string): string {
  const probe = h("span", { style: `color: var(${property}); display: none` });
  element.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Calls back when the element's text gets another colour, whichever way theme and style sheets change. */
export function onTheme(element: Element, signal: AbortSignal, callback: () => void): void {
  const probe = h("span", { class: "pwx-probe", "aria-hidden": "true" });
  element.append(probe);
  probe.addEventListener("transitionend", callback, { signal });
  // A page may hide itself while it changes its theme: that ends the transition, and nothing has a size until the next frame.
  probe.addEventListener("transitioncancel", () => requestAnimationFrame(callback), { signal });
  // Nothing changes visibly in a cell that is scrolled away.
  const observer = new IntersectionObserver(
    (entries) => entries.some(({ isIntersecting }) => isIntersecting) && callback(),
  );
  observer.observe(element);
  signal.addEventListener("abort", () => observer.disconnect());
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
