"""Models that quantise what they compute, judged part by part.

Scale and zero point of DynamicQuantizeLinear follow from the least and the greatest element: the last bit of one float moves codes all over
the tensor, each by a 255th of its range, and after some layers two right results differ by as much as the quantisation itself is off. So
each such tensor is given to both sides as onnxruntime computes it, and what they make of it is compared, no quantisation behind another.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from .cases import Case

QUANTISES = "DynamicQuantizeLinear"
GIVEN = "given:"


def cut(case: Case, feed: dict[str, np.ndarray], folder: Path) -> tuple[Case, dict[str, np.ndarray], int] | None:
    """The case with every tensor that is quantised as an output, and read from an input; its feed; and how many parts that makes.

    None where the model quantises nothing at run time, or onnx or onnxruntime are not there.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    model = onnx.load(case.path)
    nodes = [node for node in model.graph.node if node.op_type == QUANTISES]
    names = list(dict.fromkeys(node.input[0] for node in nodes))
    if not names:
        return None
    produced = {output for node in model.graph.node for output in node.output}
    names = [name for name in names if name in produced]
    present = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = dict(zip(names, session.run(names, feed), strict=True))
    for node in nodes:
        if node.input[0] in given:
            node.input[0] = GIVEN + node.input[0]
    for name, value in given.items():
        model.graph.input.append(_floats(onnx, GIVEN + name, value.shape))
    path = folder / f"{case.name}.parts.onnx"
    onnx.save(model, path)
    return dataclasses.replace(case, path=path), {**feed, **{GIVEN + name: value for name, value in given.items()}}, len(names) + 1


def _floats(onnx: Any, name: str, shape: tuple[int, ...]) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
