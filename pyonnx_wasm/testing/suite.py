"""The ONNX backend suite: its cases, and the comparison with what they expect."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..dtypes import from_numpy
from . import tolerance

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")


@dataclass(frozen=True)
class Case:
    """One test of the suite: a serialised model, inputs by name, expected outputs by name."""

    name: str
    kind: str
    model: bytes
    feeds: Mapping[str, Any]
    expected: Mapping[str, Any]
    rtol: float
    atol: float
    operators: tuple[str, ...] = ()  # of each node, those of branches and loops too; where an operator is expanded, that operator
    chance: bool = False  # outputs are random: what is expected has their dtypes and shapes alone


@dataclass
class Notes:
    """What runs tell of the cases that pass, by name.

    Attributes:
        on_core: the kernels that the core ran beside a GPU, or in its place, of each case that passes with its help.
        epsilons: how far outputs are off.
    """

    on_core: dict[str, tuple[str, ...]] = field(default_factory=dict)
    epsilons: dict[str, float] = field(default_factory=dict)


class Mismatch(AssertionError):
    """An output differs from the expected one."""


@cache
def cases() -> tuple[Case, ...]:
    """The whole suite, in a fixed order; nothing is downloaded."""
    import warnings

    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [_case(test) for kind in KINDS for test in sorted(load_model_tests(kind=kind), key=lambda t: t.name)]
    named = {case.name: case for case in found}
    whole = [named.get(case.name.partition("_expanded")[0], case) for case in found]
    return tuple(replace(case, operators=of.operators) for case, of in zip(found, whole, strict=True))


def _case(test: Any) -> Case:
    import onnx

    if test.kind == "node":
        model = test.model
        [(given, expected)] = test.data_sets
    elif test.model_dir:
        model = onnx.load(os.path.join(test.model_dir, "model.onnx"))
        [data] = Path(test.model_dir).glob("test_data_set_*")
        given = _stored(data, "input", model.graph.input)
        expected = _stored(data, "output", model.graph.output)
    else:
        path = Path(onnx.__file__).parents[1] / test.url
        model = onnx.load(str(path))
        given = [_ramp(i.type.tensor_type.shape) for i in _fed(model)]
        expected = _stored(path.parent, f"{path.stem}_output", model.graph.output)
    inputs = [i.name for i in (model.graph.input if test.model_dir else _fed(model))]
    feeds = {name: _array(value) for name, value in zip(inputs, given, strict=False)}
    outputs = {o.name: _array(value) for o, value in zip(model.graph.output, expected, strict=True)}
    chance = _chance(model, feeds)
    return Case(test.name, test.kind, model.SerializeToString(), feeds, outputs, test.rtol, test.atol, operators_of(model.graph), chance)


def operators_of(graph: Any) -> tuple[str, ...]:
    """The operator of each node of a graph and of the graphs in its attributes."""
    inner = (operators_of(a.g) for n in graph.node for a in n.attribute if a.HasField("g"))
    return (*(n.op_type for n in graph.node), *(operator for operators in inner for operator in operators))


def _chance(model: Any, feeds: Mapping[str, Any]) -> bool:
    drops = "training_dropout" in model.graph.name and bool(feeds["r"])
    return drops or any(n.op_type in ("Bernoulli", "RandomUniformLike") for n in model.graph.node)


def _fed(model: Any) -> list[Any]:
    stored = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in stored]


def _stored(folder: str | Path, stem: str, infos: Iterable[Any]) -> list[Any]:
    """The values of a data set: tensors, sequences of them, or optionals."""
    import onnx

    values = []
    for k, info in enumerate(infos):
        path = Path(folder) / f"{stem}_{k}.pb"
        if not path.exists():
            break
        kind = info.type.WhichOneof("value")
        proto: Any = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(kind, onnx.TensorProto)()
        proto.ParseFromString(path.read_bytes())
        values.append(
            onnx.numpy_helper.to_list(proto) if kind == "sequence_type"
            else onnx.numpy_helper.to_optional(proto) if kind == "optional_type"
            else onnx.numpy_helper.to_array(proto)
        )  # fmt: skip
    return values


def _ramp(shape: Any) -> np.ndarray:
    """The input of a ``real`` case: arange(n) / n."""
    sizes = [d.dim_value or 1 for d in shape.dim]
    n = int(np.prod(sizes))
    return (np.arange(n).reshape(sizes) / n).astype(np.float32)


def _array(value: Any) -> Any:
    import onnx

    if isinstance(value, np.generic):
        return np.asarray(value)
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(case: Case, outputs: Sequence[tuple[str, Any]], backend: str = "cpu") -> float:
    """The official comparison of a case's outputs, then that by the :mod:`.tolerance` of its operators.

    Args:
        outputs: dtype name (of :class:`~pyonnx_wasm.dtypes.DType`) and array, list of arrays or None; dtypes that numpy lacks as bit
            patterns.
    Returns:
        How many epsilons they are off.
    Raises:
        Mismatch: saying what differs.
    """
    allowed = tolerance.epsilons(case.operators, backend)
    needed = 0.0
    for (name, want), (dtype, got) in zip(case.expected.items(), outputs, strict=True):
        off = _compare(case, name, want, dtype, got, backend)
        if off > allowed:
            raise Mismatch(f"output {name!r} is {off:.3g} epsilons off, {', '.join(sorted(set(case.operators)))} may be {allowed:g}")
        needed = max(needed, off)
    return needed


def _compare(case: Case, name: str, want: Any, dtype: str, got: Any, backend: str) -> float:
    from onnx.backend.test.runner import Runner

    if isinstance(want, np.ndarray):
        if not isinstance(got, np.ndarray):
            raise Mismatch(f"output {name!r} is a {type(got).__name__}, should be an array")
        declared = from_numpy(want.dtype).name if want.dtype.kind not in "OUS" else "string"
        if (dtype, got.shape) != (declared, want.shape):
            raise Mismatch(f"output {name!r} is {dtype}{list(got.shape)}, should be {declared}{list(want.shape)}")
        if case.chance:
            _drawn(name, case, want, got)
            return 0.0
        shown = got if got.dtype == want.dtype else _shown(got, want.dtype)
        try:
            Runner.assert_similar_outputs([want], [shown], case.rtol, case.atol)
        except AssertionError as error:
            raise Mismatch(f"output {name!r} differs: {' '.join(str(error).split())[:400]}") from None
        return _epsilons(case, want, shown, backend)
    if want is None or got is None or len(want) != len(got):
        if got is not want:
            raise Mismatch(f"output {name!r} is {_count(got)}, should be {_count(want)}")
        return 0.0
    items = enumerate(zip(want, got, strict=True))
    return max((_compare(case, f"{name}[{i}]", _array(item), dtype, found, backend) for i, (item, found) in items), default=0.0)


def _epsilons(case: Case, want: np.ndarray, got: np.ndarray, backend: str) -> float:
    if want.dtype.kind in "OUS":
        return 0.0
    if case.name in tolerance.DECIMALS:
        got = np.where(np.abs(got - want) <= 10.0 ** -tolerance.DECIMALS[case.name], want, got)
    size = 0.0 if tolerance.ELEMENTWISE.issuperset(case.operators) else tolerance.largest(want)
    return float(np.max(tolerance.off(got, want, size, backend in tolerance.GPUS), initial=0.0))


def _count(x: Any) -> str:
    return "nothing" if x is None else f"{len(x)} tensors"


def _drawn(name: str, case: Case, want: np.ndarray, got: np.ndarray) -> None:
    """Other generators draw other numbers: each element must be 0, or what one that was drawn is of its input."""
    other = np.ones(want.shape, want.dtype)
    if "dropout" in case.name and want.dtype.kind == "f":
        (given, *_), kept = case.feeds.values(), want != 0
        other = given * (want[kept] / given[kept]).flat[0]
    if not np.all((got == 0) | np.isclose(got, other, case.rtol, case.atol)):
        raise Mismatch(f"output {name!r} holds what cannot be drawn")


def _shown(bits: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Bit patterns as the ``ml_dtypes`` type that the suite expects; those of signed 2- and 4-bit integers extend the sign."""
    if dtype.name in ("int2", "int4"):
        half = 1 << (int(dtype.name[3:]) - 1)
        return ((bits ^ half).astype(np.int8) - np.int8(half)).astype(dtype)
    return bits.view(dtype)
