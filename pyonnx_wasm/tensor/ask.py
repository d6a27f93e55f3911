"""The contents that an operator needs as sizes or parameters: known when the model is compiled, or read when the Program runs."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..ir import Content, Graph, IRError, Value
from ..ir.dims import Dim, DimLike
from . import scalar
from .content import content
from .map import cast
from .views import COPY, contiguous

READ_LIMIT = 1024  # elements of a tensor that become symbols


def dims_of(x: Value, what: str) -> list[DimLike]:
    """The elements of an integer tensor as sizes; those that are data are read once the tensor is there."""
    known = _known(x)
    if known is None or any(e is None for e in known.reshape(-1)):
        known = _read(cast(x, DType.int64) if x.dtype.is_float else x, what, known)
    return [int(e) if isinstance(e, (bool, np.bool_, np.integer, float)) else e for e in known.reshape(-1)]


def params_of(x: Value, what: str) -> list[float | Dim]:
    """The elements of a float tensor as parameters of kernels: those that are data are no numbers to compute with."""
    x = _computable(x)
    known = _known(x)
    if known is None or any(e is None or isinstance(e, Dim) for e in known.reshape(-1)):
        return list(_read(x, what, None).reshape(-1))
    return [float(e) for e in known.reshape(-1)]


def floats_of(x: Value, what: str) -> list[float]:
    """The elements of a tensor as Python floats, where :func:`is_known` holds."""
    known = _known(_computable(x))
    if known is None or any(e is None or isinstance(e, Dim) for e in known.reshape(-1)):
        raise IRError(f"{what} must be known when the model is compiled: give its value as a constant")
    return [float(e) for e in known.reshape(-1)]


def is_known(x: Value) -> bool:
    """True when every element is a plain number at compile time."""
    known = _known(_computable(x))
    return known is not None and not any(e is None or isinstance(e, Dim) for e in known.reshape(-1))


def _known(x: Value) -> Content | None:
    known = content(x)
    if known is None or any(e is None for e in known.reshape(-1)):
        folded = Graph.current().fold(x)
        known = folded if folded is not None else known
    return known


def _computable(x: Value) -> Value:
    return cast(x, DType.float32) if x.dtype.is_float and x.dtype not in scalar.COMPUTE else x


def _read(x: Value, what: str, known: Content | None) -> Content:
    """The elements with symbols where they are data."""
    shape = [s for s in x.shape if isinstance(s, int)]
    if len(shape) != x.rank:
        raise IRError(f"{what}: how many numbers it holds must be known when the model is compiled, its shape is {list(map(str, x.shape))}")
    count = int(np.prod(shape, dtype=np.int64))
    if count > READ_LIMIT:
        raise IRError(f"{what} holds {count} numbers that are data; at most {READ_LIMIT} are read")
    if x.dtype.bits < 8:
        x = cast(x, DType.int32)
    if x.storage.kind == "input" and not isinstance(x.offset, int):  # only what steps wrote can be read at a place that is data
        x = COPY({"y": (x.dtype, x.shape)}, {"x": x})
    elif x.storage.kind != "input" or not all(isinstance(s, int) for s in x.strides):
        x = contiguous(x)
    graph, found = Graph.current(), np.empty(count, object)
    for k in range(count):
        have = None if known is None else known.reshape(-1)[k]
        found[k] = graph.read(x, k) if have is None else have
    return found.reshape(shape)
