/** What the panel tells of a node, a group, a value and of the whole model. */
import { documentation } from "./documentation.js";
import { breakable, bytesText, el, millisecondsText, numberText } from "./dom.js";
import { isGroup, type Group, type Leaf } from "./groups.js";
import type { Model, Node, Value } from "./model.js";
import { nodesIn, shapeText, typeText } from "./scene.js";
import type { Documentation, Statistics } from "./knowledge.js";
import { valuesPanel, type Contents } from "./values.js";

export interface Context {
  readonly model: Model;
  /** Null where only the server could tell. */
  readonly statistics: ((weight: string) => Promise<Statistics>) | null;
  readonly contents: ((weight: string) => Contents) | null;
  readonly documentation: ((node: Node) => Promise<Documentation>) | null;
  readonly failures: Readonly<Record<string, string>>;
  readonly times: ReadonlyMap<string, number>;
  go(node: Node): void;
  toggle(group: Group): void;
  isOpen(group: Group): boolean;
}

export function itemDetails(item: Group | Leaf, context: Context): HTMLElement {
  return isGroup(item) ? groupDetails(item, context) : nodeDetails(item.node, context);
}

function groupDetails(group: Group, context: Context): HTMLElement {
  const nodes = nodesIn(group);
  const counts = new Map<string, number>();
  for (const { kind, call } of nodes) if (kind === "op") counts.set(call.op, (counts.get(call.op) ?? 0) + 1);
  const weights = new Set(nodes.flatMap((n) => n.inputs.filter((v) => v?.weight)));
  const size = [...weights].reduce((sum, v) => sum + v!.weight!.bytes, 0);
  const rows: [string, string | HTMLElement][] = [
    ["nodes", numberText(group.count)],
    ["weights", weights.size ? `${weights.size}, ${bytesText(size)}` : "none"],
  ];
  if (group.alike > 1) rows.push(["alike", `${group.alike} groups of this structure`]);
  return el(
    "div",
    {},
    heading("Group", group.label),
    el(
      "button",
      { class: "pw-button", onclick: () => context.toggle(group) },
      context.isOpen(group) ? "Close group" : "Open group",
    ),
    table(rows),
    section("Operators", table([...counts].sort((a, b) => b[1] - a[1]).map(([op, n]) => [op, String(n)]))),
  );
}

function nodeDetails(node: Node, context: Context): HTMLElement {
  if (node.kind !== "op") {
    const values = [...node.outputs, ...node.inputs].filter((v) => v !== null);
    return el(
      "div",
      {},
      heading(node.kind === "input" ? "Input" : "Output", node.label),
      ...values.map((v) => valueDetails(v, "", context, node)),
    );
  }
  const { call } = node;
  const failure = context.failures[call.name || `${call.op}`] ?? null;
  const time = context.times.get(call.name);
  return el(
    "div",
    {},
    heading(call.domain ? `${call.domain} · ${call.op}` : call.op, call.name),
    call.family === null && el("p", { class: "pw-error" }, "This operator is not supported."),
    failure !== null && call.family !== null && el("p", { class: "pw-error" }, failure),
    time !== undefined && table([["time", millisecondsText(time)]]),
    written(node, context),
    context.documentation && context.model.description.kind === "onnx"
      ? documentation(() => context.documentation!(node))
      : null,
    call.attrs.length > 0 && section("Attributes", table(call.attrs.map(([k, v]) => [k, v]))),
    section("Inputs", ...node.inputs.map((v, k) => (v ? valueDetails(v, `${k}`, context, node) : absent(k)))),
    section("Outputs", ...node.outputs.map((v, k) => valueDetails(v, `${k}`, context, node))),
  );
}

/** What the model's author wrote of the node. */
function written({ outputs }: Node, { model }: Context): HTMLElement | null {
  const texts = model.description.documentation ?? {};
  const name = outputs[0]?.name ?? "";
  if (!Object.hasOwn(texts, name)) return null;
  return el(
    "details",
    { class: "pw-fold", open: true },
    el("summary", {}, "Written in the model"),
    el("p", { class: "pw-written" }, texts[name]!),
  );
}

const absent = (k: number): HTMLElement =>
  el("div", { class: "pw-value" }, el("span", { class: "pw-index" }, String(k)), el("em", {}, "absent"));

function valueDetails(value: Value, index: string, context: Context, at: Node): HTMLElement {
  const type = value.declared ? typeText(value.declared) : "type unknown";
  const links: HTMLElement[] = [];
  const link = (text: string, node: Node): HTMLElement =>
    el("button", { class: "pw-link", onclick: () => context.go(node) }, text);
  const spelled = (node: Node): string =>
    node.label.startsWith(node.call.op) ? node.label : `${node.call.op} ${node.label}`;
  if (value.producer && value.producer !== at && !value.producer.constant)
    links.push(link(`from ${spelled(value.producer)}`, value.producer));
  if (value.producer === at) {
    const readers = value.consumers.filter((c) => c !== at && !c.constant);
    for (const reader of readers.slice(0, 8)) links.push(link(`to ${spelled(reader)}`, reader));
    if (readers.length > 8) links.push(el("span", { class: "pw-faint" }, `and ${readers.length - 8} more`));
  }
  return el(
    "div",
    { class: "pw-value" },
    index !== "" && el("span", { class: "pw-index" }, index),
    el("div", { class: "pw-name" }, ...breakable(value.name)),
    el("div", { class: "pw-type" }, type, value.content ? ` = [${value.content.join(", ")}]` : ""),
    value.producer?.constant &&
      el("div", { class: "pw-faint" }, `computed before the run by ${value.producer.call.op}`),
    ...weightDetails(value, context),
    ...links,
  );
}

function weightDetails(value: Value, context: Context): (HTMLElement | null)[] {
  const { weight } = value;
  if (!weight) return [];
  const parts: (HTMLElement | null)[] = [el("div", { class: "pw-faint" }, `weight, ${bytesText(weight.bytes)}`)];
  if (weight.text !== undefined) parts.push(el("div", { class: "pw-code" }, weight.text));
  const { statistics } = context;
  if (statistics && weight.dtype !== "string" && weight.bytes > 0) {
    const place = el("div", { class: "pw-statistics" });
    const show = async (): Promise<void> => {
      place.replaceChildren(el("span", { class: "pw-faint" }, "reading …"));
      try {
        place.replaceChildren(statisticsTable(await statistics(value.name)));
      } catch (error) {
        place.replaceChildren(el("p", { class: "pw-error" }, messageOf(error)));
      }
    };
    const draw = (): void => {
      const fail = (error: unknown): void => place.replaceChildren(el("p", { class: "pw-error" }, messageOf(error)));
      place.replaceChildren(valuesPanel(value.name, context.contents!(value.name), fail));
    };
    parts.push(
      el("button", { class: "pw-button pw-small", onclick: () => void show() }, "Statistics"),
      context.contents && !weight.dtype.startsWith("complex")
        ? el("button", { class: "pw-button pw-small", onclick: draw }, "Values")
        : null,
      place,
    );
  }
  return parts;
}

export function statisticsTable(s: Statistics): HTMLElement {
  const rows: [string, string][] = [
    ["min", numberText(s.min)],
    ["mean", numberText(s.mean)],
    ["max", numberText(s.max)],
    ["std", numberText(s.std)],
    ["zeros", s.count ? `${numberText(s.zero)} of ${numberText(s.count)}` : "0"],
  ];
  if (s.nan) rows.push(["NaN", numberText(s.nan)]);
  if (s.inf) rows.push(["infinite", numberText(s.inf)]);
  const marked = s.nan || s.inf ? "pw-alarm" : undefined;
  return el(
    "div",
    {},
    histogram(s),
    el("div", { class: marked ?? "" }, table(rows)),
    s.head.length > 0 &&
      el(
        "div",
        { class: "pw-code" },
        `${s.head.map((v) => (typeof v === "number" ? numberText(v) : v)).join(", ")}${s.count > s.head.length ? ", …" : ""}`,
      ),
  );
}

function histogram({ histogram: bins, min, max }: Statistics): HTMLElement | null {
  if (!bins.length) return null;
  const highest = Math.max(...bins);
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", `0 0 ${bins.length} 24`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `histogram from ${numberText(min)} to ${numberText(max)}`);
  bins.forEach((count, k) => {
    const bar = document.createElementNS(ns, "rect");
    const height = count ? Math.max(0.6, (24 * count) / highest) : 0;
    for (const [name, value] of [["x", k + 0.08], ["y", 24 - height], ["width", 0.84], ["height", height]] as const) bar.setAttribute(name, String(value)); // prettier-ignore
    svg.append(bar);
  });
  return el(
    "div",
    { class: "pw-histogram" },
    svg,
    el("div", { class: "pw-ends" }, el("span", {}, numberText(min)), el("span", {}, numberText(max))),
  );
}

export function modelDetails(context: Context, note: string): HTMLElement {
  const { description, nodes } = context.model;
  const counts = new Map<string, number>();
  const unsupported = new Set<string>();
  for (const { kind, call } of nodes) {
    if (kind !== "op") continue;
    counts.set(call.op, (counts.get(call.op) ?? 0) + 1);
    if (call.family === null) unsupported.add(call.op);
  }
  const weights = Object.values(description.weights);
  const total = weights.reduce((sum, w) => sum + w.bytes, 0);
  const sides = (key: "inputs" | "outputs"): HTMLElement | null =>
    section(
      key === "inputs" ? "Inputs" : "Outputs",
      ...description[key].map((s) =>
        el(
          "div",
          { class: "pw-value" },
          el("div", { class: "pw-name" }, ...breakable(s.name)),
          el("div", { class: "pw-type" }, `${s.dtype}${shapeText(s.shape)}`),
        ),
      ),
    );
  const failures = Object.entries(context.failures);
  return el(
    "div",
    {},
    heading(description.kind === "onnx" ? "ONNX model" : "Compiled model", description.name),
    el("p", { class: "pw-faint" }, note),
    table([
      ["file", bytesText(description.bytes)],
      [description.kind === "onnx" ? "nodes" : "steps", numberText([...counts.values()].reduce((a, b) => a + b, 0))],
      ["weights", weights.length ? `${weights.length}, ${bytesText(total)}` : "none"],
      ...description.about.map(([k, v]): [string, string] => [k, v]),
    ]),
    unsupported.size > 0 && el("p", { class: "pw-error" }, `Not supported: ${[...unsupported].join(", ")}`),
    failures.length > 0 &&
      section(
        "Without a shape",
        ...failures
          .slice(0, 20)
          .map(([name, why]) =>
            el(
              "div",
              { class: "pw-value" },
              el("div", { class: "pw-name" }, name),
              el("div", { class: "pw-faint" }, why),
            ),
          ),
      ),
    sides("inputs"),
    sides("outputs"),
    section("Operators", table([...counts].sort((a, b) => b[1] - a[1]).map(([op, n]) => [op, String(n)]))),
  );
}

export function heading(kind: string, name: string): HTMLElement {
  return el(
    "header",
    { class: "pw-heading" },
    el("div", { class: "pw-kind" }, kind),
    name && name !== kind ? el("div", { class: "pw-name" }, ...breakable(name)) : null,
  );
}

export function section(title: string, ...children: (HTMLElement | null)[]): HTMLElement | null {
  return children.length ? el("section", {}, el("h3", {}, title), ...children) : null;
}

export function table(rows: readonly (readonly [string, string | HTMLElement])[]): HTMLElement {
  return el(
    "table",
    {},
    ...rows.map(([k, v]) => el("tr", {}, el("th", { scope: "row" }, ...breakable(k)), el("td", {}, v))),
  );
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
