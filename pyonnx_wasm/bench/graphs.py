"""Models that are made for measuring how long compiling takes; no weights worth mentioning."""

from __future__ import annotations

from typing import Any


def chain(nodes: int) -> bytes:
    """A product by a 4 x 4 matrix and an activation, in turns, over ``[batch, 4]``."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    made = []
    for i in range(nodes):
        op, ins = ("MatMul", [f"t{i}", "w"]) if i % 2 == 0 else ("Relu", [f"t{i}"])
        made.append(helper.make_node(op, ins, [f"t{i + 1}"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("t0", f"t{nodes}"))
    return _saved(helper.make_graph(made, "chain", [x], [y], [weight]))


def decoder(layers: int = 12, width: int = 48, heads: int = 12, words: int = 64) -> bytes:
    """A decoder as PyTorch's tracing exporter writes one: sizes through Shape, Gather and Concat, a cache of keys and values that grows."""
    return _Decoder(width, heads, words).model(layers)


class _Decoder:
    def __init__(self, width: int, heads: int, words: int) -> None:
        import numpy as np

        self.width, self.heads, self.words = width, heads, words
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.rng = np.random.default_rng(0)

    def op(self, kind: str, *ins: str, n: int = 1, **attributes: Any) -> Any:
        from onnx import helper

        outs = [f"{kind}_{len(self.nodes)}_{k}" for k in range(n)]
        self.nodes.append(helper.make_node(kind, list(ins), outs, f"/{kind}_{len(self.nodes)}", **attributes))
        return outs[0] if n == 1 else outs

    def constant(self, value: Any, dtype: str = "int64") -> Any:
        """A Constant node, as the exporter writes one wherever it needs a number."""
        import numpy as np
        from onnx import numpy_helper

        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def weight(self, *shape: int) -> str:
        import numpy as np

        name = f"w{len(self.weights)}"
        self.weights[name] = self.rng.standard_normal(shape).astype(np.float32)
        return name

    def size(self, x: str, axis: int) -> Any:
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def shape(self, *sizes: str | int) -> Any:
        parts = [self.op("Unsqueeze", self.constant(s) if isinstance(s, int) else s, self.constant([0])) for s in sizes]
        return self.op("Concat", *parts, axis=0)

    def linear(self, x: str, n: int, m: int) -> Any:
        return self.op("Add", self.weight(m), self.op("MatMul", x, self.weight(n, m)))

    def norm(self, x: str) -> Any:
        return self.op("LayerNormalization", x, self.weight(self.width), self.weight(self.width), axis=-1)

    def gelu(self, x: str) -> Any:
        cube = self.op("Mul", self.op("Mul", x, x), x)
        inner = self.op("Add", x, self.op("Mul", cube, self.constant(0.044715, "float32")))
        tanh = self.op("Tanh", self.op("Mul", inner, self.constant(0.79788456, "float32")))
        half = self.op("Mul", x, self.constant(0.5, "float32"))
        return self.op("Mul", half, self.op("Add", tanh, self.constant(1.0, "float32")))

    def split_heads(self, x: str, batch: str, length: str) -> Any:
        each = self.op("Reshape", x, self.shape(batch, length, self.heads, self.width // self.heads))
        return self.op("Transpose", each, perm=[0, 2, 1, 3])

    def block(self, x: str, keys: str, values: str, mask: str) -> tuple[Any, Any, Any]:
        normed = self.norm(x)
        batch, length = self.size(normed, 0), self.size(normed, 1)
        q, k, v = self.op("Split", self.linear(normed, self.width, 3 * self.width), self.constant([self.width] * 3), n=3, axis=2)
        q, k, v = (self.split_heads(t, batch, length) for t in (q, k, v))
        k, v = self.op("Concat", keys, k, axis=2), self.op("Concat", values, v, axis=2)
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.op("Div", scores, self.constant(float(self.width // self.heads) ** 0.5, "float32"))
        shares = self.op("Softmax", self.op("Add", scaled, mask), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        joined = self.op("Reshape", mixed, self.shape(batch, length, self.width))
        x = self.op("Add", x, self.linear(joined, self.width, self.width))
        hidden = self.gelu(self.linear(self.norm(x), self.width, 4 * self.width))
        return self.op("Add", x, self.linear(hidden, 4 * self.width, self.width)), k, v

    def positions(self, past: str, length: str) -> tuple[Any, Any]:
        """The places of the new words, and the mask that hides later ones."""
        total = self.op("Add", past, length)
        step, zero = self.constant(1), self.constant(0)
        new, every = self.op("Range", past, total, step), self.op("Range", zero, total, step)
        seen = self.op("LessOrEqual", self.op("Unsqueeze", every, self.constant([0])), self.op("Unsqueeze", new, self.constant([1])))
        return new, self.op("Where", seen, self.constant(0.0, "float32"), self.constant(-1e9, "float32"))

    def model(self, layers: int) -> bytes:
        from onnx import TensorProto, helper, numpy_helper

        ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])
        past = [f"past_{i}_{part}" for i in range(layers) for part in "kv"]
        cache: list[str | int] = [self.heads, "past", self.width // self.heads]
        inputs = [ids, *(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *cache]) for name in past)]
        places, mask = self.positions(self.size(past[0], 2), self.size("input_ids", 1))
        x = self.op(
            "Add",
            self.op("Gather", self.weight(self.words, self.width), "input_ids", axis=0),
            self.op("Gather", self.weight(self.words, self.width), places, axis=0),
        )
        outputs = []
        for i in range(layers):
            x, k, v = self.block(x, past[2 * i], past[2 * i + 1], mask)
            outputs += [k, v]
        logits = self.op("MatMul", self.norm(x), self.weight(self.width, self.words))
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (logits, *outputs)]
        stored = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        return _saved(helper.make_graph(self.nodes, "decoder", inputs, infos, stored))


def _saved(graph: Any) -> bytes:
    from onnx import helper

    found: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return found
