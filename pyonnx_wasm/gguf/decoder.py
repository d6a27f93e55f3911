"""The graph that a GGUF file's architecture means: a decoder with a cache, in operators of ONNX, com.microsoft and org.ggml.

Inputs: ``input_ids`` int64 [1, n], ``num_logits_to_keep`` int64 [] (how many of the last positions get logits; 0: all) and for each
layer i ``past_key_values.i.key`` and ``.value`` float32 [1, heads, past, size]. Outputs: ``logits`` float32 [1, kept, vocabulary] and
``present.i.key`` and ``.value``, longer by n. The architectures' own papers aside, what counts is how llama.cpp computes them.

For several texts at a time (:class:`Several`) the first axis is ``batch``, and there are two more inputs: ``attention_mask`` int64
[batch, past + n], 0 at the places before a text begins, and ``position_ids`` int64 [batch, n].
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType
from ..onnxfile.graph import Graph, Node, TypeInfo, ValueInfo
from ..onnxfile.protobuf import ReadError
from ..onnxfile.reader import Model
from ..onnxfile.tensor import Tensor
from . import file as gguf
from .hints import generation

MICROSOFT, GGML = "com.microsoft", "org.ggml"


@dataclass(frozen=True)
class Architecture:
    """What the metadata does not say.

    Attributes:
        norm: ``"rms"`` or ``"layer"``.
        rope: ``"pairs"`` turns neighbours, ``"halves"`` the first and the second half; None: learned positions.
        act: of the feed-forward part.
        parallel: attention and feed-forward part read one normalised input.
        scaled: embeddings are multiplied by the root of their length.
        window: of this many layers all but the last look back over ``attention.sliding_window`` keys alone.
        local_base: base of the rotation of those layers, where it is not the model's.
    """

    norm: str = "rms"
    rope: str | None = "halves"
    act: str = "silu"
    parallel: bool = False
    scaled: bool = False
    window: int = 0
    local_base: float = 0.0


ARCHITECTURES = {
    "llama": Architecture(rope="pairs"),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(act="gelu_tanh", scaled=True),
    "gemma2": Architecture(act="gelu_tanh", scaled=True, window=2),
    "gemma3": Architecture(act="gelu_tanh", scaled=True, window=6, local_base=10000.0),
    "phi2": Architecture(norm="layer", act="gelu_tanh", parallel=True),
    "phi3": Architecture(),
    "gpt2": Architecture(norm="layer", act="gelu_tanh", rope=None),
}


@dataclass(frozen=True)
class Several(os.PathLike[str]):
    """The path of a file, to be read as the decoder of several texts at a time."""

    path: str

    def __fspath__(self) -> str:
        return self.path


def read(source: str | os.PathLike[str] | bytes | memoryview) -> Model:
    """Reads a file as the model that it means.

    Raises:
        ReadError: the file is damaged, or of an architecture that is not supported.
    """
    file = gguf.read(source)
    shown = f"{os.fspath(source)}: " if isinstance(source, str | os.PathLike) else ""
    try:
        graph = _Decoder(file, isinstance(source, Several)).graph()
        about = {k: str(file.metadata[k]) for k in ("general.name", "general.architecture") if k in file.metadata}
        opsets = {"": 23, MICROSOFT: 1, GGML: 1}
        return Model(graph, opsets, 12, "llama.cpp", about | generation(file), file.files.paths, file.files)
    except ReadError as error:
        file.files.close()
        message = f"{shown}{error}"
    raise ReadError(message)


class _Decoder:
    def __init__(self, file: gguf.File, several: bool = False) -> None:
        self.several = several
        self.file, self.nodes, self.constants, self.used = file, list[Node](), dict[str, Tensor](), set[str]()
        name = file.metadata.get("general.architecture")
        if name not in ARCHITECTURES:
            raise ReadError(f"architecture {name!r} is not supported; {', '.join(ARCHITECTURES)} are")
        self.name, self.kind = str(name), ARCHITECTURES[str(name)]
        if file.metadata.get(f"{name}.expert_count", 0):
            raise ReadError(f"architecture {name!r} with experts is not supported")
        self.layers = self.count("block_count", most=1024)
        self.width = self.count("embedding_length")
        self.heads = self.count("attention.head_count", most=4096)
        self.kv_heads = self.count("attention.head_count_kv", self.heads, 4096)
        self.size = self.count("attention.key_length", max(self.width // self.heads, 1))
        if self.heads % self.kv_heads or self.count("attention.value_length", self.size) != self.size:
            raise ReadError(f"{self.heads} heads over {self.kv_heads} of {self.size} features, values of another length: not supported")
        self.epsilon = self.number("attention.layer_norm_rms_epsilon" if self.kind.norm == "rms" else "attention.layer_norm_epsilon", 1e-5)

    def number(self, key: str, default: float | None = None) -> float:
        return self.file.number(f"{self.name}.{key}", default)

    def count(self, key: str, default: int | None = None, most: int = 1 << 24) -> int:
        return self.file.count(f"{self.name}.{key}", default, most)

    # Nodes

    def add(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attrs: Any) -> Any:
        """A node; its output's name, or those of several."""
        k = len(self.nodes)
        names = [f"{self.at}{op}_{k}" if i == 0 else f"{self.at}{op}_{k}:{i}" for i in range(outputs)]
        self.nodes.append(Node(op, domain, f"{self.at}{op}_{k}", "", inputs, tuple(names), attrs, k))
        return names[0] if outputs == 1 else names

    at = ""

    def constant(self, value: Any, dtype: Any) -> str:
        array = np.asarray(value, dtype)
        name = f"{self.at}constant_{len(self.constants)}"
        self.constants[name] = Tensor.of(array, name)
        return name

    # Weights

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    def weight(self, name: str, shape: tuple[int | None, ...]) -> gguf.Blocks:
        """A tensor of the file; its name is that of an initializer."""
        found = self.file.tensors.get(name)
        if found is None:
            raise ReadError(f"tensor {name!r} is missing, which {self.name} needs; the file is incomplete")
        if len(found.shape) != len(shape) or any(want not in (None, have) for have, want in zip(found.shape, shape, strict=True)):
            raise ReadError(f"tensor {name!r} has shape {list(found.shape)}, {self.name} needs {list(shape)} here")
        self.used.add(name)
        self.constants[name] = found.tensor
        return found

    def floats(self, name: str, *shape: int) -> str:
        """A small tensor as float32."""
        found = self.weight(name, shape)
        if found.kind not in gguf.PLAIN:
            raise ReadError(f"tensor {name!r} is {found.kind}; a type without blocks is needed here")
        return name if found.kind == "F32" else str(self.add("Cast", name, to=int(DType.float32)))

    def linear(self, x: str, name: str, inside: int, outside: int | None) -> Any:
        """x times the transpose of a weight, and its bias where there is one."""
        found = self.weight(f"{name}.weight", (outside, inside))
        if found.kind in gguf.PLAIN:
            y = self.add("MatMul", x, self.add("Transpose", self.floats(f"{name}.weight", *found.shape), perm=[1, 0]))
        else:
            y = self.add("MatMul", x, f"{name}.weight", domain=GGML, type=found.kind)
        return self.add("Add", y, self.floats(f"{name}.bias", found.shape[0])) if self.has(f"{name}.bias") else y

    def normed(self, x: str, name: str, size: int) -> str:
        scale = self.floats(f"{name}.weight", size)
        if self.kind.norm == "rms":
            return str(self.add("RMSNormalization", x, scale, axis=-1, epsilon=self.epsilon))
        bias = [self.floats(f"{name}.bias", size)] if self.has(f"{name}.bias") else []
        return str(self.add("LayerNormalization", x, scale, *bias, axis=-1, epsilon=self.epsilon))

    def optional(self, x: str, name: str) -> str:
        """Normalised, where the file has weights for it."""
        return self.normed(x, name, self.width) if self.has(f"{name}.weight") else x

    # Parts

    def graph(self) -> Graph:
        table = self.weight("token_embd.weight", (None, self.width))
        ids = "input_ids"
        if table.kind in gguf.PLAIN:
            x = self.add("Gather", "token_embd.weight", ids, axis=0)
            x = x if table.kind == "F32" else self.add("Cast", x, to=int(DType.float32))
        else:
            x = self.add("GetRows", "token_embd.weight", ids, domain=GGML, type=table.kind)
        if self.kind.scaled:
            x = self.add("Mul", x, self.constant(np.sqrt(np.float32(self.width)), np.float32))
        at = "position_ids" if self.several else self.places(ids)
        if self.several:
            mask = self.add("Cast", "attention_mask", to=int(DType.bool))
            self.seen = self.add("Unsqueeze", mask, self.constant([1, 2], np.int64))
        if self.kind.rope is None:
            x = self.add("Add", x, self.add("Gather", self.floats("position_embd.weight", self.context(), self.width), at, axis=0))
        else:
            self.rotations(at)
        presents = []
        for i in range(self.layers):
            self.at = f"blk.{i}."
            x, *present = self.layer(x, i)
            presents += present
        self.at = ""
        last = self.constant([np.iinfo(np.int64).max], np.int64)
        # Of what cannot leave int64 the host computes what sizes hang on: nothing is read of a GPU in the middle of a run.
        asked = self.add("Max", self.add("Reshape", "num_logits_to_keep", self.constant([1], np.int64)), self.constant([0], np.int64))
        begin = self.add("Neg", asked)
        x = self.normed(self.add("Slice", x, begin, last, self.constant([1], np.int64)), "output_norm", self.width)
        logits = self.linear(x, "output" if self.has("output.weight") else "token_embd", self.width, table.shape[0])
        if cap := self.number("final_logit_softcapping", 0):
            limit = self.constant(cap, np.float32)
            logits = self.add("Mul", self.add("Tanh", self.add("Div", logits, limit)), limit)
        self.unused()
        return self.whole(logits, presents)

    def places(self, ids: str) -> str:
        """Those of the new tokens, behind the cache's."""
        fresh, past = self.add("Shape", ids, start=1, end=2), self.add("Shape", "past_key_values.0.key", start=2, end=3)
        total = self.add("Add", past, fresh)
        one = self.constant(1, np.int64)
        self.ends = self.add("Cast", self.add("Sub", total, one), to=int(DType.int32))
        self.total = self.add("Cast", self.add("Squeeze", total), to=int(DType.int32))
        return str(self.add("Range", self.add("Squeeze", past), self.add("Squeeze", total), one))

    def context(self) -> int:
        return self.count("context_length")

    def unused(self) -> None:
        left = sorted(set(self.file.tensors) - self.used - {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
        if left:
            raise ReadError(f"tensor {left[0]!r} has no place in {self.name} as it is known; {len(left)} such tensors")

    def whole(self, logits: str, presents: list[str]) -> Graph:
        batch = "batch" if self.several else 1
        cache = [batch, self.kv_heads, "past", self.size]
        given: list[tuple[str, DType, list[Any]]] = [("input_ids", DType.int64, [batch, "length"]), ("num_logits_to_keep", DType.int64, [])]
        if self.several:
            given += [("attention_mask", DType.int64, [batch, "total"]), ("position_ids", DType.int64, [batch, "length"])]
        names = [f"{i}.{part}" for i in range(self.layers) for part in ("key", "value")]
        given += [(f"past_key_values.{name}", DType.float32, cache) for name in names]
        made: list[tuple[str, list[Any]]] = [("logits", [batch, "kept", None])] + [
            (f"present.{name}", [*cache[:2], "total", self.size]) for name in names
        ]
        for name, have in zip(("logits", *(f"present.{n}" for n in names)), (logits, *presents), strict=True):
            self.nodes.append(Node("Identity", "", name, "", (have,), (name,), {}, len(self.nodes)))
        inputs = [ValueInfo(n, TypeInfo("tensor", d, tuple(s))) for n, d, s in given]
        outputs = [ValueInfo(n, TypeInfo("tensor", DType.float32, tuple(s))) for n, s in made]
        return Graph(self.name, self.nodes, inputs, outputs, self.constants, {}, captures={})

    def rotations(self, at: str) -> None:
        """Cosines and sines of the new positions, of layers that look at all keys and of those with a window."""
        self.turned = self.count("rope.dimension_count", self.size)
        if self.turned % 2 or self.turned > self.size:
            raise ReadError(f"rotations of {self.turned} of {self.size} features are not supported")
        base = self.number("rope.freq_base", 10000.0)
        position = self.add("Unsqueeze", self.add("Cast", at, to=int(DType.float32)), self.constant([-1], np.int64))
        scaling, factor = self.file.metadata.get(f"{self.name}.rope.scaling.type", "none"), 1.0
        if scaling == "linear":
            factor = self.number("rope.scaling.factor", 1.0)
        elif scaling not in ("none", "longrope", "su"):
            raise ReadError(f"rotations scaled by {scaling!r} are not supported; 'linear' and 'none' are")
        self.full = self.angles(position, base, factor, True)
        self.local = self.angles(position, self.kind.local_base, 1.0, False) if self.kind.local_base else self.full

    def angles(self, position: str, base: float, factor: float, own: bool) -> tuple[str, str]:
        half = self.turned // 2
        frequencies = (np.float64(base) ** (-np.arange(half) / half) / factor).astype(np.float32)
        angle = self.add("Mul", position, self.constant(frequencies, np.float32))
        for name in ("rope_freqs.weight", "rope_factors_short.weight"):
            if own and self.has(name):
                angle = self.add("Div", angle, self.floats(name, half))
        rows = [self.add(f, angle) for f in ("Cos", "Sin")]
        if not self.several:
            rows = [self.add("Unsqueeze", row, self.constant([0], np.int64)) for row in rows]
        return rows[0], rows[1]

    def layer(self, x: str, i: int) -> tuple[str, str, str]:
        normal = self.normed(x, f"blk.{i}.attn_norm", self.width)
        y, *present = self.attention(normal, i)
        y = self.optional(y, f"blk.{i}.post_attention_norm")
        if self.kind.parallel:
            return self.add("Add", self.add("Add", x, y), self.feed_forward(normal, i)), *present
        x = self.add("Add", x, y)
        y = self.feed_forward(self.normed(x, f"blk.{i}.ffn_norm", self.width), i)
        return self.add("Add", x, self.optional(y, f"blk.{i}.post_ffw_norm")), *present

    def attention(self, x: str, i: int) -> list[str]:
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        if self.has(f"blk.{i}.attn_qkv.weight"):
            together = self.linear(x, f"blk.{i}.attn_qkv", self.width, sum(sizes))
            q, k, v = self.add("Split", together, self.constant(sizes, np.int64), outputs=3, axis=-1)
        else:
            q, k, v = (self.linear(x, f"blk.{i}.attn_{n}", self.width, s) for n, s in zip("qkv", sizes, strict=True))
        q, k = (self.per_head(p, f"blk.{i}.attn_{n}_norm") for n, p in (("q", q), ("k", k)))
        near = bool(self.kind.window and (i + 1) % self.kind.window)
        if self.kind.rope is not None:
            rotation = self.local if near else self.full
            how: dict[str, Any] = {"interleaved": int(self.kind.rope == "pairs"), "rotary_embedding_dim": self.turned}
            heads = ((q, self.heads), (k, self.kv_heads))
            q, k = (self.add("RotaryEmbedding", p, *rotation, num_heads=n, **how) for p, n in heads)
        y, key, value = self.attended(q, k, v, i, near)
        return [self.linear(y, f"blk.{i}.attn_output", sizes[0], self.width), key, value]

    def attended(self, q: str, k: str, v: str, i: int, near: bool) -> Any:
        """What attention makes of queries, and the longer keys and values."""
        attrs: dict[str, Any] = {"kv_num_heads": self.kv_heads, "scale": self.scale()}
        if cap := self.number("attn_logit_softcapping", 0):
            attrs["softcap"] = float(cap)
        window = None
        if near or (self.name == "phi3" and f"{self.name}.attention.sliding_window" in self.file.metadata):
            window = self.count("attention.sliding_window", 4096, 1 << 30)
        past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
        if self.several:
            attrs |= {"q_num_heads": self.heads, "is_causal": 1} | ({} if window is None else {"left_window_size": window - 1})
            return self.add("Attention", q, k, v, self.seen, *past, outputs=3, **attrs)
        attrs |= {"num_heads": self.heads} | ({} if window is None else {"local_window_size": window})
        return self.add("GroupQueryAttention", q, k, v, *past, self.ends, self.total, domain=MICROSOFT, outputs=3, **attrs)

    def scale(self) -> float:
        """Of the scores; the largest model of Gemma 2 (46 layers) and of Gemma 3 (62) divide by the features per head of their width."""
        wide = (self.name, self.layers) in (("gemma2", 46), ("gemma3", 62))
        return 1 / math.sqrt(self.width / self.heads if wide else self.size)

    def per_head(self, x: str, name: str) -> str:
        if not self.has(f"{name}.weight"):
            return x
        split = self.add("Reshape", x, self.constant([0, 0, -1, self.size], np.int64))
        return str(self.add("Reshape", self.normed(split, name, self.size), self.constant([0, 0, -1], np.int64)))

    def feed_forward(self, x: str, i: int) -> Any:
        inside = self.count("feed_forward_length")
        if self.has(f"blk.{i}.ffn_gate.weight"):
            gate, up = (self.linear(x, f"blk.{i}.ffn_{n}", self.width, inside) for n in ("gate", "up"))
            y = self.add("Mul", self.activated(gate), up)
        elif self.kind.norm == "rms":
            both = self.linear(x, f"blk.{i}.ffn_up", self.width, 2 * inside)
            gate, up = self.add("Split", both, self.constant([inside, inside], np.int64), outputs=2, axis=-1)
            y = self.add("Mul", self.activated(gate), up)
        else:
            y = self.activated(self.linear(x, f"blk.{i}.ffn_up", self.width, inside))
        return self.linear(y, f"blk.{i}.ffn_down", inside, self.width)

    def activated(self, x: str) -> str:
        if self.kind.act == "silu":
            return str(self.add("Mul", x, self.add("Sigmoid", x)))
        return str(self.add("Gelu", x, approximate="tanh"))
