"""Models and JavaScript of the player's tests."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import external_data_helper, helper, numpy_helper

import pyonnx_wasm

DIST = Path(__file__).parents[2] / "js" / "dist"
CSP = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"
WEIGHT_MB = 24
TYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
Run = Callable[..., Any]


def write(path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], gpu: bool = False, **weights: np.ndarray) -> None:
    """Compiles a graph into `path`, with `gpu` for GPUs too; inputs and outputs are {name: (dtype, dims)}."""

    def info(side: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(t)), dims) for name, (t, dims) in side.items()]

    graph = helper.make_graph(nodes, "g", info(inputs), info(outputs), [numpy_helper.from_array(w, name) for name, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path.with_suffix(".onnx"))
    pyonnx_wasm.save(pyonnx_wasm.compile(path.with_suffix(".onnx"), gpu=gpu), path)


def write_text(path: Path, text: str) -> None:
    """Compiles a graph in ONNX's text form into `path`."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    pyonnx_wasm.save(pyonnx_wasm.compile(model.SerializeToString()), path)


DENSE_RNG = np.random.default_rng(7)
W, B, SHIFT = (DENSE_RNG.standard_normal(s, dtype=np.float32) for s in ((67, 31), (31,), (31,)))


def dense(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ W + (B + SHIFT), 0)


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header: dict[str, Any] | str, body: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-(len(text) + 8) % 256)
    return len(text).to_bytes(8, "little") + text + body


def spread(model: onnx.ModelProto, path: Path, files: Sequence[str]) -> None:
    """Writes a model to `path` with its weights in turn in files beside it, which begin with bytes of nothing, each with another count."""
    held = {file: b"?" * 1000 * (k + 1) for k, file in enumerate(files)}
    for k, tensor in enumerate(model.graph.initializer):
        file = files[k % len(files)]
        data = numpy_helper.to_array(tensor).tobytes()
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # however it was stored
        external_data_helper.set_external_data(tensor, file, offset=len(held[file]), length=len(data))
        tensor.ClearField("raw_data")
        held[file] += data + b"?" * 24
    path.write_bytes(model.SerializeToString())
    for file, data in held.items():
        (path.parent / file).write_bytes(data)


def make_thin(root: Path) -> None:
    """`thin/dense.ponnx`: the weights stay in the source, `odd.ponnx`: in another file, at odd offsets; the others name files elsewhere."""
    (root / "thin").mkdir()
    source = root / "thin" / "source model.onnx"
    source.write_bytes((root / "dense.onnx").read_bytes())
    pyonnx_wasm.save(pyonnx_wasm.compile(source), root / "thin/dense.ponnx", thin=True)
    header, body = split((root / "dense.ponnx").read_bytes())
    for weight in header["weights"]:
        if "at" in weight:
            weight["from"] = [0, weight.pop("at") + 13]
    (root / "thin/odd data.bin").write_bytes(b"?" * 13 + body)
    for name, file in {
        "odd": "odd data.bin",
        "up": "../dense.bin",
        "absolute": "/dense.bin",
        "elsewhere": "https://example.com/dense.bin",
    }.items():
        header["files"] = [file]
        (root / f"thin/{name}.ponnx").write_bytes(join(header, body))


HELPERS = """
const { InferenceSession, Tensor, env } = await import("/player/index.mjs");
const create = (...args) => InferenceSession.create(...args);
const bytes = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
const error = (promise) => promise.then(() => null, (e) => e.message);
const until = async (holds, seconds = 10) => {
  const end = performance.now() + 1000 * seconds;
  while (!(await holds()) && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
};
const plain = (results) => Object.fromEntries(
  Object.entries(results).map(([name, { type, dims, data }]) => [name, { type, dims, data: [...data].map(Number) }]),
);
const x = (rows) => {
  const data = Float32Array.from({ length: rows * 67 }, (_, i) => ((i * 37) % 101) / 50 - 1);
  return new Tensor("float32", data, [rows, 67]);
};
"""


def ramp(rows: int) -> np.ndarray:
    """What `x(rows)` is in JavaScript."""
    return (((np.arange(rows * 67) * 37) % 101) / np.float64(50) - 1).astype(np.float32).reshape(rows, 67)
