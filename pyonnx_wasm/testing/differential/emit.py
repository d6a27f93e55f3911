"""Writes a case as a test that runs as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from .sketch import Case
from .values import Array

_HEAD = """import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from pyonnx_wasm.testing.differential import backends, judge
from pyonnx_wasm.testing.differential.sketch import Case

"""


def text_of(case: Case, title: str, backend: str = "cpu") -> str:
    """The text of a test: it fails as long as the backend disagrees with the oracles.

    Args:
        title: what is wrong, for the docstring.
    """
    name = "".join(c if c.isalnum() else "_" for c in case.name).lower()
    opsets = ", ".join(f"helper.make_opsetid({o.domain!r}, {o.version})" for o in case.model.opset_import)
    lines = [
        f"def test_{name}() -> None:",
        f'    """{title}"""'.replace("\\", "/"),
        *_graph(case.model.graph, "graph", "    "),
        f"    model = helper.make_model(graph, opset_imports=[{opsets}], ir_version={case.model.ir_version})",
        f"    runs = ({', '.join(_feeds(feeds) for feeds in case.runs)},)",
        f"    case = Case({case.name!r}, model, runs, {case.loose})",
        f'    with backends.opened("{backend}") as answers:',
        f'        verdict = judge.judge(case, answers(case), "{backend}")',
        "    assert not verdict.finding, verdict",
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _feeds(feeds: dict[str, Array]) -> str:
    return "{" + ", ".join(f"{n!r}: {array(a)}" for n, a in feeds.items()) + "}"


def array(given: Array) -> str:
    """An array as Python writes it."""
    dtype = f"ml_dtypes.{given.dtype.name}" if given.dtype.type.__module__ == "ml_dtypes" else f"np.{given.dtype.name}"
    dtype = "bool" if dtype == "np.bool" else dtype
    if given.size > 4 and given.dtype.kind in "fiub" and (given == given.reshape(-1)[0]).all():
        return f"np.full({list(given.shape)}, {_number(given.reshape(-1)[0])}, {dtype})"
    if given.size == 0:
        return f"np.zeros({list(given.shape)}, {dtype})"
    return f"np.array({_nested(given)}, {dtype})"


def _nested(given: Any) -> str:
    if np.ndim(given) == 0:
        return _number(given)
    return f"[{', '.join(_nested(row) for row in given)}]"


def _number(value: Any) -> str:
    value = np.asarray(value)
    if value.dtype.kind == "b":
        return str(bool(value))
    if value.dtype.kind in "iu" or (value.dtype.kind == "V" and "int" in value.dtype.name):
        return str(int(value))
    if value.dtype.kind == "c":
        return repr(complex(value))
    number = float(value)
    if np.isnan(number) or np.isinf(number):
        return "np.nan" if np.isnan(number) else "np.inf" if number > 0 else "-np.inf"
    return str(value) if value.dtype.kind == "f" and value.dtype.itemsize < 8 else repr(number)


def _graph(graph: onnx.GraphProto, name: str, indent: str) -> list[str]:
    """Lines that define a graph under this name, those of its subgraphs before it."""
    lines: list[str] = []
    nodes = []
    for index, node in enumerate(graph.node):
        text, before = _node(node, f"{name}_{index}", indent)
        lines += before
        nodes.append(text)
    lines.append(f"{indent}{name} = helper.make_graph(")
    lines.append(f"{indent}    [{f', {chr(10)}{indent}     '.join(nodes)}],")
    lines.append(f"{indent}    {graph.name!r},")
    lines.append(f"{indent}    [{', '.join(_info(i) for i in graph.input)}],")
    lines.append(f"{indent}    [{', '.join(f'helper.make_empty_tensor_value_info({o.name!r})' for o in graph.output)}],")
    stored = ", ".join(f"numpy_helper.from_array({array(numpy_helper.to_array(t))}, {t.name!r})" for t in graph.initializer)
    return [*lines, f"{indent}    [{stored}],", f"{indent})"]


def _info(info: onnx.ValueInfoProto) -> str:
    tensor = info.type.tensor_type
    shape = [d.dim_param or d.dim_value if d.WhichOneof("value") else None for d in tensor.shape.dim] if tensor.HasField("shape") else None
    return f"helper.make_tensor_value_info({info.name!r}, TensorProto.{TensorProto.DataType.Name(tensor.elem_type)}, {shape})"


def _node(node: onnx.NodeProto, name: str, indent: str) -> tuple[str, list[str]]:
    before: list[str] = []
    given = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            before += _graph(attribute.g, f"{name}_{attribute.name}", indent)
            given.append(f"{attribute.name}={name}_{attribute.name}")
        elif attribute.type == AttributeProto.TENSOR:
            given.append(f"{attribute.name}=numpy_helper.from_array({array(numpy_helper.to_array(attribute.t))})")
        elif attribute.type == AttributeProto.TYPE_PROTO:
            given.append(f"{attribute.name}=helper.make_tensor_type_proto({attribute.tp.tensor_type.elem_type}, None)")
        else:
            given.append(f"{attribute.name}={_plain(helper.get_attribute_value(attribute))!r}")
    domain = [f"domain={node.domain!r}"] if node.domain else []
    arguments = ", ".join([repr(node.op_type), repr(list(node.input)), repr(list(node.output)), *domain, *given])
    return f"helper.make_node({arguments})", before


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
