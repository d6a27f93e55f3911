/** The graph's tree and layout, without a browser: node --test tests/jupyter/viewer/*.test.mjs */
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./bundle.mjs";

const { Model, compound, grouped, isGroup, layered, opened, repeats, scene, scopeOf } = await load(
  "model.ts",
  "groups.ts",
  "layered.ts",
  "compound.ts",
  "scene.ts",
);
const measure = (text) => 7 * text.length;

function call(name, op, inputs, outputs, rest = {}) {
  return { name, op, domain: "", inputs, outputs, attrs: [], bodies: [], ...rest };
}

function description(nodes, inputs = ["x"], outputs = [nodes.at(-1).outputs[0]], weights = {}) {
  const info = (name) => ({ name, dtype: "float32", shape: ["n", 4] });
  const shown = { inputs: inputs.map(info), outputs: outputs.map(info), nodes, weights, declared: {} };
  return { kind: "onnx", name: "m.onnx", bytes: 1, about: [], ...shown };
}

/** `layers` blocks of 50 nodes with residuals and attention's diamonds; `name` spells the scope of node k of a block. */
function transformer(layers, name) {
  const nodes = [];
  let last = "x";
  for (let l = 0; l < layers; l++) {
    const add = (k, op, inputs) => {
      const out = `v${l}_${k}`;
      nodes.push(call(name(l, k, op), op, inputs, [out]));
      return out;
    };
    const start = last;
    const heads = [0, 1, 2].map((h) => {
      let v = add(10 * h, "MatMul", [start, "w"]);
      for (let k = 1; k < 10; k++) v = add(10 * h + k, ["Add", "Reshape", "Transpose"][k % 3], [v]);
      return v;
    });
    let v = add(30, "MatMul", heads.slice(0, 2));
    v = add(31, "Softmax", [v, "mask"]);
    v = add(32, "MatMul", [v, heads[2]]);
    v = add(33, "Add", [v, start]);
    const middle = v;
    for (let k = 34; k < 49; k++) v = add(k, ["Gemm", "Gelu", "Mul"][k % 3], [v]);
    last = add(49, "Add", [v, middle]);
  }
  return description(nodes, ["x", "mask"], [last], { w: { dtype: "float32", shape: [4, 4], bytes: 64 } });
}

const scoped = (l, k, op) => `/model/layers.${l}/${k < 33 ? "attention" : "mlp"}/${op}_${k}`;

function overlaps(boxes, rectangles) {
  const found = [];
  const byParent = Map.groupBy ? Map.groupBy(boxes.keys(), (k) => boxes[k].parent) : group(boxes);
  for (const members of byParent.values()) {
    const sorted = members.sort((a, b) => rectangles[a].y - rectangles[b].y);
    for (const [at, a] of sorted.entries()) {
      for (const b of sorted.slice(at + 1)) {
        const [p, q] = [rectangles[a], rectangles[b]];
        if (q.y >= p.y + p.height) break;
        if (q.x < p.x + p.width - 1e-6 && p.x < q.x + q.width - 1e-6) found.push([a, b]);
      }
    }
  }
  return found;
}

function group(boxes) {
  const found = new Map();
  boxes.forEach((box, k) => found.set(box.parent, [...(found.get(box.parent) ?? []), k]));
  return found;
}

function sound(shown) {
  const { boxes, layout } = shown;
  assert.deepEqual(overlaps(boxes, layout.boxes), []);
  boxes.forEach(({ parent }, k) => {
    if (parent < 0) return;
    const [inner, outer] = [layout.boxes[k], layout.boxes[parent]];
    assert.ok(
      inner.x >= outer.x - 1e-6 && inner.x + inner.width <= outer.x + outer.width + 1e-6,
      "wider than its group",
    );
    assert.ok(
      inner.y >= outer.y - 1e-6 && inner.y + inner.height <= outer.y + outer.height + 1e-6,
      "higher than its group",
    );
  });
  const served = new Set(layout.pieces.flatMap((piece) => piece.edges));
  assert.equal(served.size, shown.wires.length);
  for (const { points } of layout.pieces)
    for (const { x, y } of points) assert.ok(Number.isFinite(x) && Number.isFinite(y));
}

for (const [what, name] of [
  ["scoped", scoped],
  ["nameless", () => ""],
  ["flatly named", (l, k, op) => `${op}_${50 * l + k}`],
])
  test(`5,000 ${what} nodes open to at most 300 boxes, none over another`, () => {
    const model = new Model(transformer(100, name));
    const root = grouped(model);
    const shown = scene(root, opened(root), measure);
    assert.ok(shown.boxes.length <= 300 && shown.boxes.length >= 10, `${shown.boxes.length} boxes`);
    sound(shown);
    assert.equal(root.count, 5000);
  });

test("60,000 nodes of one scope", () => {
  const root = grouped(new Model(transformer(1200, (l, k, op) => `/model/${op}_${50 * l + k}`)));
  const shown = scene(root, opened(root), measure);
  assert.ok(shown.boxes.length <= 300);
  assert.equal(root.count, 60_000);
  sound(shown);
});

test("every group opened", () => {
  const root = grouped(new Model(transformer(20, scoped)));
  const open = new Set();
  const queue = [root];
  for (const g of queue) (open.add(g), queue.push(...g.children.filter(isGroup)));
  const shown = scene(root, open, measure);
  assert.equal(shown.boxes.filter((b) => !isGroup(b.item)).length, 1003);
  sound(shown);
});

test("equal blocks are found, with and without names", () => {
  const root = grouped(new Model(transformer(12, scoped)));
  const layers = root.children.find(isGroup);
  assert.equal(layers.children.find(isGroup).alike, 12);
  const kinds = ["in", ..."abcdeabcdeabcdeabcde", "out"];
  assert.deepEqual(repeats(kinds), [[1, 6], [6, 11], [11, 16], [16, 21]]); // prettier-ignore
  assert.deepEqual(repeats([..."aaaaaaaaaaaaaaaa"]), []);
});

test("a chain of 20,000 in one group: depth is no limit", () => {
  const items = Array.from({ length: 20_000 }, (_, order) => ({ width: 60, height: 28, order }));
  const links = items.slice(1).map((_, k) => ({ from: k, to: k + 1 }));
  const { items: placed } = layered(items, links);
  placed.slice(1).forEach((p, k) => assert.ok(p.y > placed[k].y && Math.abs(p.x - placed[k].x) < 1e-6));
});

test("degenerate graphs", () => {
  assert.deepEqual(layered([], []), { items: [], links: [], width: 0, height: 0 });
  const box = (order, rest = {}) => ({ parent: -1, open: false, width: 60, height: 28, order, ...rest });
  const one = compound([box(0)], [{ from: 0, to: 0 }]);
  assert.deepEqual([one.width, one.height, one.pieces], [60, 28, []]);
  const cycle = compound([box(0), box(1), box(2)], [{ from: 0, to: 1 }, { from: 1, to: 2 }, { from: 2, to: 0 }]); // prettier-ignore
  assert.equal(cycle.pieces.length, 3);
  const empty = compound([box(0, { open: true }), box(1)], [{ from: 1, to: 0 }]);
  assert.ok(empty.boxes[0].height > 0);
  const star = compound([...Array(300).keys()].map((k) => box(k)), [...Array(299).keys()].map((k) => ({ from: 0, to: k + 1 }))); // prettier-ignore
  assert.deepEqual(
    overlaps(
      [...Array(300)].map(() => box(0)),
      star.boxes,
    ),
    [],
  );
});

test("random graphs: boxes stay apart, inside their groups", () => {
  let seed = 1;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 60; round++) {
    const count = 2 + random(60);
    const nodes = [];
    for (let k = 0; k < count; k++) {
      const inputs = [...Array(1 + random(3))].map(() => (k && random(4) ? `v${random(k)}` : "x"));
      const scope = [...Array(random(4))].map((_, d) => `s${d}${random(3)}/`).join("");
      nodes.push(call(`${scope}n${k}`, "Op", inputs, [`v${k}`]));
    }
    const root = grouped(new Model(description(nodes)));
    sound(scene(root, opened(root), measure));
    sound(scene(root, new Set([root]), measure));
  }
});

test("scopes", () => {
  assert.deepEqual(scopeOf("/model/layers.3/attn/MatMul"), ["model", "layers.3", "attn"]);
  assert.deepEqual(scopeOf("model.layers.3.attn.MatMul"), ["model", "layers.3", "attn"]);
  assert.deepEqual(scopeOf("/a/b/Conv + /a/c/Relu"), ["a"]);
  assert.deepEqual(scopeOf("Conv_12"), []);
  assert.deepEqual(scopeOf("<img src=x onerror=alert(1)>/y"), ["<img src=x onerror=alert(1)>"]);
  const weight = { dtype: "float32", shape: [4], bytes: 16 };
  const names = ["net.0.q.weight", "net.0.k.weight", "net.1.q.weight"];
  const nodes = names.flatMap((w, k) => [
    call(`node_${k}`, "MatMul", [k ? `b${k - 1}` : "x", w], [`a${k}`]),
    call(`act_${k}`, "Relu", [`a${k}`], [`b${k}`]),
  ]);
  const model = new Model(description(nodes, ["x"], ["b2"], Object.fromEntries(names.map((n) => [n, weight]))));
  assert.deepEqual(
    model.nodes.filter((n) => n.kind === "op").map((n) => n.scope.join("/")),
    ["net.0/q", "net.0", "net.0/k", "", "net.1/q", ""],
  );
});

test("nodes that depend on sizes alone hide once their contents are known", () => {
  const nodes = [
    call("shape", "Shape", ["x"], ["s"]),
    call("shift", "Add", ["s", "k"], ["t"]),
    call("reshape", "Reshape", ["x", "s"], ["y"]),
    call("expand", "Expand", ["y", "t"], ["z"]),
  ];
  const model = new Model(description(nodes, ["x", "k"], ["z"]));
  const hidden = () => model.nodes.filter((n) => n.constant).map((n) => n.label);
  assert.deepEqual(hidden(), []);
  model.find("s")[0].content = ["n", 4];
  model.find("t")[0].content = ["n + 'k{0}'", "4 + 'k{1}'"];
  model.settle();
  assert.deepEqual(hidden(), ["shape"]);
});

test("constants hide, bodies become groups, names that hide others resolve to the nearest", () => {
  const body = {
    inputs: [],
    outputs: [{ name: "t", dtype: "float32", shape: null }],
    nodes: [call("inner", "Neg", ["x"], ["t"])],
    weights: {},
    declared: {},
  };
  const nodes = [
    call("scale", "Mul", ["w", "w"], ["w2"]),
    call("choose", "If", ["c"], ["y"], { bodies: [["then_branch", body]] }),
    call("out", "Add", ["y", "w2"], ["z"]),
  ];
  const w = { dtype: "float32", shape: [4], bytes: 16 };
  const model = new Model(description(nodes, ["x", "c"], ["z"], { w, constructor: w, ["__proto__"]: w }));
  assert.ok(model.nodes.find((n) => n.label === "scale").constant);
  const root = grouped(model);
  const shown = scene(root, opened(root), measure);
  const titles = shown.boxes.map((b) => b.title);
  assert.ok(titles.includes("Neg") && !titles.includes("Mul"));
  const edge = (from, to) => shown.wires.some((e) => titles[e.from] === from && titles[e.to] === to);
  assert.ok(edge("x", "Neg") && edge("Neg", "If") && edge("If", "Add"));
  assert.ok(grouped(model, true).count > root.count);
});
