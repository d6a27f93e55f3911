"""Decoders with random weights of 4 bits in the sizes of published ones, as a GGUF file and as an ONNX export of the same numbers.

The ONNX file is laid out as exporters for generation lay it out: MatMulNBits, GroupQueryAttention with its rotation, the last position's
logits alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BLOCK = 32  # weights with one scale, of Q4_0 and of MatMulNBits here
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Size:
    """Of a Llama decoder whose output shares the embeddings."""

    title: str
    width: int
    inside: int
    layers: int
    heads: int
    kv_heads: int
    words: int
    base: float
    context: int = 2048

    @property
    def head(self) -> int:
        return self.width // self.heads

    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """Name, rows (outputs) and columns (inputs) of each."""
        yield "token_embd", self.words, self.width
        kv = self.kv_heads * self.head
        for i in range(self.layers):
            yield f"blk.{i}.attn_q", self.width, self.width
            yield f"blk.{i}.attn_k", kv, self.width
            yield f"blk.{i}.attn_v", kv, self.width
            yield f"blk.{i}.attn_output", self.width, self.width
            yield f"blk.{i}.ffn_gate", self.inside, self.width
            yield f"blk.{i}.ffn_up", self.inside, self.width
            yield f"blk.{i}.ffn_down", self.width, self.inside

    def norms(self) -> Iterator[str]:
        for i in range(self.layers):
            yield from (f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm")
        yield "output_norm"

    @property
    def parameters(self) -> int:
        return sum(rows * columns for _, rows, columns in self.matrices())

    @property
    def read_bytes(self) -> int:
        """Of weights that a token needs: every matrix once, the embeddings as output."""
        return self.parameters // BLOCK * 18


SIZES = {
    "135m": Size("135 M (SmolLM2-135M's sizes)", 576, 1536, 30, 9, 3, 49152, 100000.0),
    "1b": Size("1 B (Llama-3.2-1B's sizes)", 2048, 8192, 16, 32, 8, 128256, 500000.0),
}


def blocks(size: Size, index: int, rows: int, columns: int) -> tuple[Array, Array]:
    """Codes of a matrix, uint8 [rows, columns / 32, 16], as Q4_0 packs them (weight i beside weight i + 16), and scales, float16.

    The scales have 8 significant bits, so that every weight is a float16.
    """
    rng = np.random.default_rng([size.width, index])
    count = columns // BLOCK
    codes = np.frombuffer(rng.bytes(rows * count * 16), np.uint8).reshape(rows, count, 16)
    scales = (rng.uniform(0.8, 1.2, (rows, count)) / (4.6 * math.sqrt(columns))).astype(np.float16)
    return codes, (scales.view(np.uint16) & 0xFFF8).view(np.float16)


def tokens(words: int) -> list[str]:
    """A vocabulary of letters and of what is no prefix of any text."""
    return ["<s>", "</s>", *LETTERS, "ab", *(f"<{i}>" for i in range(words - len(LETTERS) - 3))]


def write_gguf(size: Size, path: Path) -> None:
    """Raises ValueError where the package gguf is missing."""
    try:
        import gguf
    except ImportError as error:
        raise ValueError("the models are written with the package gguf: pip install gguf") from error
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(size.context)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.inside)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.head)
    writer.add_rope_freq_base(size.base)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens(size.words))
    writer.add_token_types([3, 3] + [1] * (size.words - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    for index, (name, rows, columns) in enumerate(size.matrices()):
        codes, scales = blocks(size, index, rows, columns)
        data = np.concatenate([scales[..., None].view(np.uint8), codes], -1).reshape(rows, -1)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for name in size.norms():
        writer.add_tensor(f"{name}.weight", np.ones(size.width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def in_order(codes: Array) -> Array:
    """Codes as MatMulNBits packs them: weight 2 i beside weight 2 i + 1."""
    low, high = codes & 15, codes >> 4
    return np.concatenate([low[..., 0::2] | low[..., 1::2] << 4, high[..., 0::2] | high[..., 1::2] << 4], -1)


class _Graph:
    def __init__(self, size: Size) -> None:
        from onnx import helper, numpy_helper

        self.size, self.helper, self.numpy = size, helper, numpy_helper
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self.shapes = {name: (i, rows, columns) for i, (name, rows, columns) in enumerate(size.matrices())}

    def keep(self, name: str, array: Array) -> str:
        self.stored.append(self.numpy.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op: str, inputs: list[str], *outputs: str, domain: str = "com.microsoft", **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(op, inputs, list(outputs), domain=domain, name=outputs[0], **attributes))
        return outputs[0]

    def linear(self, x: str, name: str, out: str) -> str:
        index, rows, columns = self.shapes[name]
        codes, scales = blocks(self.size, index, rows, columns)
        given = [x, self.keep(f"{name}.codes", in_order(codes)), self.keep(f"{name}.scales", scales.astype(np.float32).ravel())]
        return self.add("MatMulNBits", given, out, K=columns, N=rows, bits=4, block_size=BLOCK, accuracy_level=4)

    def embedded(self) -> str:
        """A row of the table, which is float16: onnxruntime-web reads no table of blocks on wasm."""
        from onnx import TensorProto

        index, rows, columns = self.shapes["token_embd"]
        codes, scales = blocks(self.size, index, rows, columns)
        table = np.concatenate([codes & 15, codes >> 4], -1).astype(np.float16) - np.float16(8)
        table *= scales[..., None]
        row = self.add("Gather", [self.keep("table", table.reshape(rows, columns)), "input_ids"], "row", domain="")
        return self.add("Cast", [row], "x", domain="", to=TensorProto.FLOAT)

    def norm(self, x: str, name: str, out: str) -> str:
        scale = self.keep(f"{name}.scale", np.ones(self.size.width, np.float32))
        return self.add("SimplifiedLayerNormalization", [x, scale], out, domain="", axis=-1, epsilon=1e-5)

    def added(self, x: str, y: str, name: str) -> tuple[str, str]:
        """The norm of a sum, and the sum."""
        scale = self.keep(f"{name}.scale", np.ones(self.size.width, np.float32))
        self.add("SkipSimplifiedLayerNormalization", [x, y, scale], f"{name}.y", "", "", f"{name}.sum", epsilon=1e-5)
        return f"{name}.y", f"{name}.sum"

    def layer(self, i: int, h: str, x: str) -> tuple[str, str]:
        size, at = self.size, f"blk.{i}"
        q, k, v = (self.linear(h, f"{at}.attn_{p}", f"{at}.{p}") for p in "qkv")
        past = [f"past_key_values.{i}.{p}" for p in ("key", "value")]
        self.add(
            "GroupQueryAttention", [q, k, v, *past, "ends", "total", "cosines", "sines"],
            f"{at}.attended", f"present.{i}.key", f"present.{i}.value",
            num_heads=size.heads, kv_num_heads=size.kv_heads, do_rotary=1, rotary_interleaved=1, scale=1 / math.sqrt(size.head),
        )  # fmt: skip
        h, x = self.added(x, self.linear(f"{at}.attended", f"{at}.attn_output", f"{at}.o"), f"{at}.ffn_norm")
        gate, up = (self.linear(h, f"{at}.ffn_{p}", f"{at}.{p}") for p in ("gate", "up"))
        act = self.add("Mul", [gate, self.add("Sigmoid", [gate], f"{at}.sigmoid", domain="")], f"{at}.silu", domain="")
        both = self.add("Mul", [act, up], f"{at}.product", domain="")
        name = "output_norm" if i + 1 == size.layers else f"blk.{i + 1}.attn_norm"
        return self.added(x, self.linear(both, f"{at}.ffn_down", f"{at}.down"), name)

    def model(self) -> Any:
        from onnx import TensorProto

        size, info = self.size, self.helper.make_tensor_value_info
        angles = np.outer(np.arange(size.context), size.base ** (-np.arange(size.head // 2) * 2 / size.head))
        self.keep("cosines", np.cos(angles).astype(np.float32))
        self.keep("sines", np.sin(angles).astype(np.float32))
        one, last = self.keep("one", np.array([1], np.int64)), self.keep("last", np.array([-1], np.int64))
        most = self.keep("most", np.array([2**62], np.int64))
        count = self.add("ReduceSum", ["attention_mask", one], "count", domain="", keepdims=0)
        self.add("Cast", [self.add("Sub", [count, one], "before", domain="")], "ends", domain="", to=TensorProto.INT32)
        length = self.add("Shape", ["attention_mask"], "length", domain="", start=1, end=2)
        self.add("Cast", [self.add("Squeeze", [length], "squeezed", domain="")], "total", domain="", to=TensorProto.INT32)
        x = self.embedded()
        h = self.norm(x, "blk.0.attn_norm", "h")
        for i in range(size.layers):
            h, x = self.layer(i, h, x)
        self.linear(self.add("Slice", [h, last, most, one], "final", domain=""), "token_embd", "logits")
        batch, total = "batch_size", "total_sequence_length"
        names = [f"{i}.{p}" for i in range(size.layers) for p in ("key", "value")]

        def cache(length: str) -> list[Any]:
            return [TensorProto.FLOAT, [batch, size.kv_heads, length, size.head]]

        inputs = [
            info("input_ids", TensorProto.INT64, [batch, "sequence_length"]),
            info("attention_mask", TensorProto.INT64, [batch, total]),
        ]
        inputs += [info(f"past_key_values.{n}", *cache("past_sequence_length")) for n in names]
        outputs = [info("logits", TensorProto.FLOAT, [batch, 1, size.words]), *(info(f"present.{n}", *cache(total)) for n in names)]
        graph = self.helper.make_graph(self.nodes, "decoder", inputs, outputs, self.stored)
        opsets = [self.helper.make_opsetid("", 21), self.helper.make_opsetid("com.microsoft", 1)]
        return self.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_export(size: Size, folder: Path) -> None:
    """The folder of a model as the hub has it for transformers.js. Raises ValueError where the package onnx is missing."""
    try:
        import onnx
    except ImportError as error:
        raise ValueError("the models are written with the package onnx: pip install onnx") from error
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    onnx.save(_Graph(size).model(), folder / "onnx/model_q4.onnx")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size.width, "intermediate_size": size.inside,
        "num_hidden_layers": size.layers, "num_attention_heads": size.heads, "num_key_value_heads": size.kv_heads,
        "vocab_size": size.words, "max_position_embeddings": size.context, "rope_theta": size.base, "bos_token_id": 0,
        "eos_token_id": 1, "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))


def made(name: str, size: Size, folder: Path) -> tuple[Path, Path]:
    """A model's GGUF file and the folder of its export, written where they are missing."""
    gguf, export = folder / f"{name}.gguf", folder / name
    folder.mkdir(parents=True, exist_ok=True)
    if not gguf.exists():
        write_gguf(size, gguf.with_suffix(".part"))
        gguf.with_suffix(".part").rename(gguf)
    if not (export / "config.json").exists():
        write_export(size, export)
    return gguf, export
