/** A model as the viewer sees it: operator calls joined by values, in an order that can be run. */

export type Size = number | string;

export interface Declared {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly Size[] | null;
}

export interface Stored {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  /** The elements of a small one. */
  readonly text?: string;
}

export interface Call {
  readonly name: string;
  readonly op: string;
  readonly domain: string;
  /** Which family of operators implements it; null: none does; absent: not known here. */
  readonly family?: string | null;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attrs: readonly (readonly [string, string])[];
  readonly bodies: readonly (readonly [string, Body])[];
}

export interface Body {
  readonly inputs: readonly Declared[];
  readonly outputs: readonly Declared[];
  readonly nodes: readonly Call[];
  readonly weights: Readonly<Record<string, Stored>>;
  readonly declared: Readonly<Record<string, Declared>>;
}

export interface Description extends Body {
  readonly kind: "onnx" | "ponnx";
  readonly name: string;
  readonly bytes: number;
  readonly about: readonly (readonly [string, string])[];
  readonly opsets?: Readonly<Record<string, number>>;
  /** What is written of nodes in the model, by their first output. */
  readonly documentation?: Readonly<Record<string, string>>;
}

export interface Value {
  readonly name: string;
  readonly producer: Node | null;
  readonly consumers: Node[];
  readonly weight: Stored | null;
  declared: Declared | null;
  /** Elements of a small integer tensor that are known before the model runs. */
  content: readonly Size[] | null;
}

export interface Node {
  readonly id: number;
  readonly kind: "op" | "input" | "output";
  readonly call: Call;
  readonly label: string;
  /** Names of the groups around it, outermost first. */
  readonly scope: readonly string[];
  readonly inputs: (Value | null)[];
  readonly outputs: Value[];
  /** Depends on weights or sizes alone. */
  constant: boolean;
}

export class Model {
  readonly nodes: Node[] = [];
  readonly values: Value[] = [];
  private readonly named = new Map<string, Value[]>();

  constructor(readonly description: Description) {
    this.add(description, [], new Map());
    this.settle();
  }

  /** Finds the nodes that depend on weights or, by the contents that are known of values, on sizes alone. */
  settle(): void {
    for (const node of this.nodes) {
      node.constant = false;
      if (node.kind !== "op" || node.call.bodies.length) continue;
      const fixed = node.inputs.every((v) => !v || v.weight || v.producer?.constant);
      const literal = node.call.attrs.length === 1 && node.call.attrs[0]![0].startsWith("value");
      const sizes =
        node.outputs.length > 0 && node.outputs.every((v) => v.content?.every((e) => !`${e}`.includes("{")));
      const shown = node.outputs.some((v) => v.consumers.some((c) => c.kind === "output" || c.call.bodies.length));
      node.constant = !shown && (sizes || (fixed && (node.inputs.length > 0 || literal)));
    }
  }

  /** Values of a name; several where bodies reuse it. */
  find(name: string): readonly Value[] {
    return this.named.get(name) ?? [];
  }

  private add(body: Body, scope: readonly string[], outer: ReadonlyMap<string, Value>): Map<string, Value> {
    const here = new Map(outer);
    const define = (name: string, producer: Node | null, weight: Stored | null, declared: Declared | null): Value => {
      const value: Value = { name, producer, consumers: [], weight, declared, content: null };
      here.set(name, value);
      this.values.push(value);
      this.named.set(name, [...(this.named.get(name) ?? []), value]);
      return value;
    };
    for (const [name, stored] of Object.entries(body.weights))
      define(name, null, stored, { name, dtype: stored.dtype, shape: stored.shape });
    for (const info of body.inputs) {
      const node = this.node("input", blank(info.name), info.name, scope);
      node.outputs.push(define(info.name, node, null, info));
    }
    const scopes = scopesOf(body.nodes);
    body.nodes.forEach((call, k) => {
      const label = call.name.split(" + ").map(lastPart).join(" + ") || call.op;
      const inner = new Map<string, Value>();
      for (const [attribute, graph] of call.bodies) {
        const names = this.add(graph, [...scope, ...scopes[k]!, `${label} ${attribute}`], here);
        for (const { name } of graph.outputs) if (names.has(name)) inner.set(name, names.get(name)!);
      }
      const node = this.node("op", call, label, [...scope, ...scopes[k]!]);
      for (const name of call.inputs) this.read(node, name ? (here.get(name) ?? define(name, null, null, null)) : null);
      for (const value of inner.values()) this.read(node, value);
      for (const name of call.outputs) if (name) node.outputs.push(define(name, node, null, own(body.declared, name)));
    });
    for (const info of body.outputs) {
      const value = here.get(info.name);
      if (value && !value.declared?.shape) value.declared = info;
      if (scope.length) continue;
      this.read(this.node("output", blank(info.name), info.name, scope), value ?? define(info.name, null, null, info));
    }
    return here;
  }

  private node(kind: Node["kind"], call: Call, label: string, scope: readonly string[]): Node {
    const node: Node = { id: this.nodes.length, kind, call, label, scope, inputs: [], outputs: [], constant: false };
    this.nodes.push(node);
    return node;
  }

  private read(node: Node, value: Value | null): void {
    node.inputs.push(value);
    if (value && value.consumers.at(-1) !== node) value.consumers.push(node);
  }
}

/** A property of a record that came from outside, whatever its name. */
function own<T>(record: Readonly<Record<string, T>>, name: string): T | null {
  return Object.hasOwn(record, name) ? record[name]! : null;
}

function blank(name: string): Call {
  return { name, op: "", domain: "", inputs: [], outputs: [], attrs: [], bodies: [] };
}

const lastPart = (name: string): string => name.replace(/\/+$/, "").split("/").at(-1) ?? name;

/** The scope that a name spells: `/model/layers.3/attn/MatMul`, or `model.layers.3.attn.MatMul`. */
export function scopeOf(name: string): string[] {
  if (name.includes(" + ")) return name.split(" + ").map(scopeOf).reduce(common);
  if (name.includes("/")) return name.split("/").filter(Boolean).slice(0, -1);
  if (!/^[A-Za-z_]\w*(\.\w+)+$/.test(name)) return [];
  const parts: string[] = [];
  for (const part of name.split(".").slice(0, -1)) {
    if (/^\d+$/.test(part) && parts.length) parts.push(`${parts.pop()!}.${part}`);
    else parts.push(part);
  }
  return parts;
}

function common(a: readonly string[], b: readonly string[]): string[] {
  let k = 0;
  while (k < a.length && a[k] === b[k]) k++;
  return a.slice(0, k);
}

/** Scopes of calls: from their names; where those tell nothing, from the names of the weights that they read. */
function scopesOf(calls: readonly Call[]): string[][] {
  const scopes = calls.map((call) => scopeOf(call.name || call.outputs[0] || ""));
  if (scopes.filter((s) => s.length).length * 2 >= calls.length) return scopes;
  const anchors = calls.map((call, k) => {
    if (scopes[k]!.length) return scopes[k]!;
    const weight = call.inputs.find((name) => /^[A-Za-z_]\w*(\.\w+)+$/.test(name) && scopeOf(name).length > 1);
    return weight ? scopeOf(weight) : null;
  });
  const previous: (string[] | null)[] = [];
  anchors.reduce<string[] | null>((last, own) => (previous.push(own ?? last), own ?? last), null);
  let next: string[] | null = null;
  for (let k = calls.length - 1; k >= 0; k--) {
    next = anchors[k] ?? next;
    scopes[k] = anchors[k] ?? (previous[k] && next ? common(previous[k]!, next) : []);
  }
  return scopes;
}
