"""Vectors of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..ir import Value
from ..ir.dims import Dim
from ..registry import Kernel
from . import scalar
from .content import constant


def literal(items: Sequence[Any], dtype: DType = DType.int64) -> Value:
    """A vector of numbers that may be symbolic, computed when shapes are bound."""
    content = np.empty(len(items), object)
    content[:] = list(items)
    if all(not isinstance(i, Dim) for i in items):
        return constant(np.array([scalar.cast(i, dtype) for i in items], to_numpy(dtype)), dtype)
    value: Value = LITERAL({"y": (dtype, (len(items),))}, {}, n=len(items), tail=tuple(items))
    value._content = content
    return value


LITERAL = Kernel("literal", ">y", "n tail[*]")
