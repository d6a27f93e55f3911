"""What is measured: models with the sizes of their symbols and contents for their inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..dtypes import to_numpy
from ..program import Signature

ZOO = Path(__file__).with_name("zoo.json")
COPIES = 8
KERNELS = {
    "matmul_384x384x512": "matmul 384×384 · 384×512",
    "matmul_1x768x3072": "matrix-vector 768 · 768×3072",
    "conv3x3_64_64_56": "conv 3×3, 64→64, 56²",
    "conv3x3_256_256_14": "conv 3×3, 256→256, 14²",
    "conv1x1_64_256_56": "conv 1×1, 64→256, 56²",
    "depthwise3x3_144_56": "depthwise 3×3, 144, 56²",
}  # titles


@dataclass(frozen=True)
class Case:
    """One model at one size.

    Attributes:
        dims: sizes of symbols; those not named are 1.
        ranges: half-open ranges of integer inputs; [0, 2) where none is given.
        quantised: 8-bit or 4-bit weights, which the mean over f32 models leaves out.
        flops: floating-point operations of one run of a kernel; 0 for models.
    """

    name: str
    path: Path
    dims: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    quantised: bool = False
    flops: int = 0

    def shape(self, s: Signature) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.dims.get(d, 1) for d in s.shape)

    def feed(self, inputs: Sequence[Signature]) -> dict[str, np.ndarray]:
        """The same contents each time: normal floats, uniform integers."""
        rng = np.random.default_rng(0)

        def content(s: Signature) -> np.ndarray:
            if s.dtype.is_float:
                return rng.standard_normal(self.shape(s)).astype(to_numpy(s.dtype))
            return rng.integers(*self.ranges.get(s.name, (0, 2)), self.shape(s)).astype(to_numpy(s.dtype))

        return {s.name: content(s) for s in inputs}


def zoo(folder: Path, names: Sequence[str] = ()) -> list[Case]:
    """The cases of ``zoo.json`` whose models are in the folder, or those named.

    Raises:
        ValueError: no such case, or the model of a named case is missing.
    """
    table: dict[str, dict[str, Any]] = json.loads(ZOO.read_text())
    for name in names:
        if name not in table:
            raise ValueError(f"there is no case {name!r}; the cases are {', '.join(table)}")
        if not (folder / table[name]["file"]).exists():
            raise ValueError(f"case {name!r} needs {folder / table[name]['file']}: build it with tests/models/make_zoo.py")
    found = [
        Case(
            name,
            folder / row["file"],
            row.get("dims", {}),
            {k: (low, high) for k, (low, high) in row.get("ranges", {}).items()},
            row.get("quantised", False),
        )
        for name, row in table.items()
        if (name in names if names else (folder / row["file"]).exists())
    ]
    if not found:
        raise ValueError(f"{folder} holds no model of the zoo: build it with tests/models/make_zoo.py")
    return found


def titles() -> dict[str, str]:
    """What readers call the cases."""
    table = json.loads(ZOO.read_text(encoding="utf-8"))
    return {name: row["title"] for name, row in table.items()} | KERNELS


def kernels(folder: Path, names: Sequence[str] = ()) -> Iterator[Case]:
    """Models of one operator, written into the folder.

    Each applies it with several weights to a constant plus a scalar input and gives a slice of each result, so that
    a run is the operator's time and not that of copying tensors in and out.

    Raises:
        ValueError: the package onnx is missing.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ValueError("kernels are measured in models that the package onnx builds: pip install onnx") from error

    rng = np.random.default_rng(0)

    def write(name: str, op: str, x: list[int], weights: list[list[int]], flops: int, **attributes: Any) -> Case:
        def tensor(name: str, shape: list[int]) -> Any:
            return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)

        corner = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("first", [0]), ("last", [1]), ("axis", [1]))]
        tensors, outputs = [tensor("constant", x), *corner], []
        nodes = [helper.make_node("Add", ["constant", "scalar"], ["x"])]
        for i in range(COPIES):
            own = [tensor(f"w{i}_{k}", shape) for k, shape in enumerate(weights)]
            nodes.append(helper.make_node(op, ["x", *(t.name for t in own)], [f"result{i}"], **attributes))
            nodes.append(helper.make_node("Slice", [f"result{i}", "first", "last", "axis"], [f"y{i}"]))
            tensors += own
            outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None))
        scalar = helper.make_tensor_value_info("scalar", TensorProto.FLOAT, [])
        graph = helper.make_graph(nodes, op, [scalar], outputs, tensors)
        path = folder / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return Case(name, path, flops=COPIES * flops)

    def matmul(m: int, k: int, n: int) -> Case:
        return write(f"matmul_{m}x{k}x{n}", "MatMul", [m, k], [[k, n]], 2 * m * k * n)

    def conv(name: str, c: int, m: int, size: int, kernel: int, group: int = 1) -> Case:
        weights = [[m, c // group, kernel, kernel], [m]]
        flops = 2 * m * size * size * (c // group) * kernel * kernel
        return write(name, "Conv", [1, c, size, size], weights, flops, pads=[kernel // 2] * 4, group=group)

    def loop(trips: int) -> Case:
        """A scalar that grows by one per trip: what a trip costs by itself. The number of trips is an input."""
        info = helper.make_tensor_value_info
        step, go, carried, more = (info(n, t, []) for n, t in (("i", 7), ("go", 9), ("v", 1), ("w", 1)))
        grow = [helper.make_node("Add", ["v", "one"], ["w"]), helper.make_node("Identity", ["go"], ["on"])]
        body = helper.make_graph(grow, "body", [step, go, carried], [info("on", 9, []), more])
        nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
        inputs, outputs = [info("trips", 7, []), info("x", 1, [])], [info("y", 1, [])]
        graph = helper.make_graph(nodes, "loop", inputs, outputs, [numpy_helper.from_array(np.array(1, np.float32), "one")])
        path = folder / f"loop_{trips}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return Case(path.stem, path, ranges={"trips": (trips, trips + 1)})

    for case in (
        matmul(384, 384, 512),
        matmul(1, 768, 3072),
        conv("conv3x3_64_64_56", 64, 64, 56, 3),
        conv("conv3x3_256_256_14", 256, 256, 14, 3),
        conv("conv1x1_64_256_56", 64, 256, 56, 1),
        conv("depthwise3x3_144_56", 144, 144, 56, 3, group=144),
        loop(1_000_000),
    ):
        if not names or case.name in names:
            yield case
