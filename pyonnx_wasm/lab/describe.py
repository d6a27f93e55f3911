"""What the JupyterLab viewer shows of a model, as plain data: never a weight's contents, only summaries of them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import inspect, ops, shapes
from .. import source as files
from ..ir import IRError
from ..onnxfile import reader
from ..onnxfile.tensor import SparseTensor, Tensor
from ..program import Compiled
from ..program import file as ponnx
from ..registry import KERNELS, find
from ..session import is_compiled
from . import statistics
from .contents import constant, stored
from .texts import written

TEXT = 400  # characters of one attribute
ELEMENTS = 16

ops.load_all()


def graph(path: str) -> dict[str, Any]:
    """The graph of a model file.

    Returns:
        ``kind`` (``"onnx"`` or ``"ponnx"``), ``name``, ``bytes``, ``about`` (rows of text) and the graph itself: ``inputs``,
        ``outputs`` (``{name, dtype, shape}``), ``nodes`` (``{name, op, domain, family, inputs, outputs, attrs, bodies}``), ``weights``
        (``{dtype, shape, bytes}`` by name). ``family`` names the module that implements the operator, None where nothing does.
        Of ONNX models also ``opsets`` and ``documentation``, what is written of nodes, by their first output.
    Raises:
        reader.ReadError, ponnx.FileError: the file is broken; the text says where.
    """
    head = {"name": os.path.basename(path), "bytes": os.path.getsize(path)}
    if is_compiled(path):
        return {"kind": "ponnx", **head, **_compiled(path)}
    with files.read(path) as model:
        about = [["opset", ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(model.opsets.items()))]]
        about += [["IR version", str(model.ir_version)], ["made by", model.producer or "unknown"]]
        texts = written(model)
        about += [[k, _cut(v)] for k, v in (("graph", texts["graph"]), ("domain", model.domain), ("description", model.description)) if v]
        about += [["version", str(model.version)]] if model.version else []
        about += [["about the graph", _cut(texts["about"])]] if texts["about"] else []
        about += [["external data", os.path.basename(f)] for f in model.files[1:]]
        about += [[k, _cut(v)] for k, v in model.metadata.items()]
        more = {"opsets": model.opsets, "documentation": texts["nodes"]}
        return {"kind": "onnx", **head, "about": about, **more, **_graph(model.graph, model.opsets)}


def inferred(path: str) -> dict[str, Any]:
    """Shapes of the values of an ONNX model: see :func:`pyonnx_wasm.shapes.as_json`."""
    with files.read(path) as model:
        return dict(shapes.as_json(shapes.infer(model)))


def weight(path: str, name: str) -> dict[str, Any]:
    """Statistics of one weight.

    Raises:
        KeyError: the model has no such weight.
        ValueError: its type has no statistics, or its contents are computed when the model is loaded.
    """
    with stored(path, name) as (dtype, shape, packed):
        return statistics.of_bytes(dtype, packed, math.prod(shape))


def _graph(graph: reader.Graph, opsets: Mapping[str, int]) -> dict[str, Any]:
    constants = {out: tensor for node in graph.nodes for out, tensor in constant(node)}
    return {
        "inputs": [_declared(i) for i in graph.inputs],
        "outputs": [_declared(o) for o in graph.outputs],
        "nodes": [_node(n, opsets) for n in graph.nodes if not (n.outputs and n.outputs[0] in constants)],
        "weights": {name: _stored(t) for name, t in (graph.initializers | constants).items()},
        "declared": {name: _declared(reader.ValueInfo(name, kind)) for name, kind in graph.value_info.items()},
    }


def _node(node: reader.Node, opsets: Mapping[str, int]) -> dict[str, Any]:
    try:
        family = find(node.domain, node.op_type, node.opset or opsets.get(node.domain, 1)).fn.__module__.rpartition(".")[2]
    except IRError:
        family = None
    return {
        "name": node.name,
        "op": node.op_type,
        "domain": node.domain,
        "family": family,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attrs": [[name, _attribute(value)] for name, value in node.attrs.items()],
        "bodies": [[name, _graph(g, opsets)] for name, value in node.attrs.items() for g in _graphs(value)],
    }


def _graphs(value: Any) -> list[reader.Graph]:
    return [g for g in (value if isinstance(value, list) else [value]) if isinstance(g, reader.Graph)]


def _attribute(value: Any) -> str:
    if isinstance(value, SparseTensor):
        return f"sparse {value.values.dtype.name} {list(value.dims)}"
    if isinstance(value, Tensor):
        text = f"{value.dtype.name} {list(value.shape)}"
        return text + f" = {value.numpy().tolist()}" if math.prod(value.shape) <= ELEMENTS else text
    if isinstance(value, reader.Graph):
        return f"graph of {len(value.nodes)} nodes"
    if isinstance(value, reader.TypeInfo):
        return _type(value)
    if isinstance(value, list) and value and not isinstance(value[0], (int, float, str)):
        return _cut(", ".join(map(_attribute, value[:ELEMENTS])))
    return _cut(f"{value:.9g}" if isinstance(value, float) else str(value))


def _type(kind: reader.TypeInfo) -> str:
    if kind.kind == "tensor":
        return kind.dtype.name if kind.dtype else "unknown"
    return f"{kind.kind} of {_type(kind.elem)}" if kind.elem else kind.kind


def _declared(info: reader.ValueInfo) -> dict[str, Any]:
    dims = None if info.type.shape is None else [f"{info.name}[{axis}]" if d is None else d for axis, d in enumerate(info.type.shape)]
    return {"name": info.name, "dtype": _type(info.type), "shape": dims}


def _stored(tensor: Tensor) -> dict[str, Any]:
    row: dict[str, Any] = {"dtype": tensor.dtype.name, "shape": list(tensor.shape), "bytes": tensor.nbytes}
    if math.prod(tensor.shape) <= ELEMENTS:
        row["text"] = _cut(str(tensor.numpy().tolist()))
    return row


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[:TEXT]} …"


def _compiled(path: str) -> dict[str, Any]:
    compiled = ponnx.load(path)
    made = compiled.provenance
    about = [["made from", str(made.get("source") or "unknown")], ["source sha256", str(made.get("sha256") or "unknown")]]
    about += [["opset", ", ".join(f"{k or 'ai.onnx'} {v}" for k, v in dict(made.get("opset") or {}).items())]]
    about += [["made by", str(made.get("producer") or "unknown")]]
    about += [["init steps", str(len(inspect.describe(compiled.init)["steps"]) if compiled.init else 0)]]
    signatures = {
        key: [{"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)} for s in rows]
        for key, rows in (("inputs", compiled.inputs), ("outputs", compiled.outputs))
    }
    return {"about": about, **signatures, **_steps(compiled)}


def _steps(compiled: Compiled) -> dict[str, Any]:
    """The main Program as a graph: a node per step, a value per thing that a step writes."""
    described = inspect.describe(compiled.main)
    storages = described["storages"]
    sides: dict[str, Sequence[Any]] = {"input": compiled.inputs, "weight": compiled.weights}
    current = {k: sides[s["kind"]][s["index"]].name for k, s in enumerate(storages) if s["kind"] in sides}
    used = {s["index"] for s in storages if s["kind"] == "weight"}
    weights = {
        w.name: {"dtype": w.dtype.name, "shape": list(w.shape), "bytes": w.nbytes} for k, w in enumerate(compiled.weights) if k in used
    }
    sizes: dict[str, str] = {}
    nodes: list[dict[str, Any]] = []
    for i, step in enumerate(described["steps"]):
        kernel = KERNELS.get(step["kernel"])
        count = sum(b.output for b in kernel.buffers) if kernel else 1
        writes, reads = step["storages"][:count], step["storages"][count:]
        # A storage may be written by parts; what continues one depends on the step before.
        before = [k for k in writes if k in current and k not in reads]
        inputs = [current.get(k, "") for k in [*reads, *before]]
        for k in writes:
            if k is not None:
                current[k] = f"storage {k}, step {i}"
                sizes[current[k]] = storages[k]["bytes"]
        outputs = [current.get(k, "") for k in writes]
        row = {"name": step["origin"], "op": step["kernel"], "domain": "", "family": step["kernel"], "attrs": [["step", str(i)]]}
        nodes.append({**row, "inputs": inputs, "outputs": outputs, "bodies": []})
    results = {current[k]: compiled.outputs[s["index"]].name for k, s in enumerate(storages) if s["kind"] == "output" and k in current}
    for node in nodes:
        for side in ("inputs", "outputs"):
            node[side] = [results.get(name, name) for name in node[side]]
    declared = {name: {"name": name, "dtype": f"{size} bytes", "shape": None} for name, size in sizes.items() if name not in results}
    return {"nodes": nodes, "weights": weights, "declared": declared}
