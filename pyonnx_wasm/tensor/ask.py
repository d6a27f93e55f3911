"""The contents that an operator must know while it is compiled."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..ir import Graph, IRError, NeedsContent, Value
from ..ir.dims import Dim, DimLike
from . import scalar
from .content import content, sources
from .map import cast


def dims_of(x: Value, what: str) -> list[DimLike]:
    """The elements of an integer tensor as sizes; raises NeedsContent where they are data."""
    known = content(x)
    if known is None or any(e is None for e in known.reshape(-1)):
        known = Graph.current().fold(x)
    if known is None:
        raise NeedsContent(what, sources(x))
    return [int(e) if isinstance(e, (bool, np.bool_, np.integer, float)) else e for e in known.reshape(-1)]


def ints_of(x: Value, what: str) -> list[int]:
    """The elements of an integer tensor that must be plain numbers; raises NeedsContent where they are not."""
    got = dims_of(x, what)
    if any(isinstance(e, Dim) for e in got):
        raise NeedsContent(what, sources(x))
    return [int(e) for e in got]


def floats_of(x: Value, what: str) -> list[float]:
    """The elements of a tensor as Python floats; raises NeedsContent where they are data."""
    if x.dtype.is_float and x.dtype not in scalar.COMPUTE:
        x = cast(x, DType.float32)
    known = content(x)
    if known is None or any(e is None or isinstance(e, Dim) for e in known.reshape(-1)):
        known = Graph.current().fold(x)
    if known is None or any(isinstance(e, Dim) for e in known.reshape(-1)):
        raise NeedsContent(what, sources(x))
    return [float(e) for e in known.reshape(-1)]


def scalar_of(x: Value, what: str) -> float:
    """The only element of a tensor, as a float."""
    got = floats_of(x, what)
    if len(got) != 1:
        raise IRError(f"{what} must have one element, it has {len(got)}")
    return got[0]
