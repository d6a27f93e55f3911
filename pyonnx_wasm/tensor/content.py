"""What is known of the elements of a value at compile time; constants and where contents come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, from_numpy, to_numpy
from ..ir import Content, Graph, Storage, Value
from ..ir.dims import Dim
from . import scalar

CONTENT_LIMIT = 64  # elements; larger tensors are never shapes
LOAD_LIMIT = 4096  # elements of a constant that may be looked at when an operator asks for its value


def constant(array: np.ndarray | Any, dtype: DType | None = None) -> Value:
    """A constant from a numpy array (or anything that makes one)."""
    array = np.asarray(array)
    if dtype is None:
        dtype = from_numpy(array.dtype)
    stored = to_numpy(dtype)
    if array.dtype.kind == "V" and from_numpy(array.dtype) is dtype:  # an ml_dtypes type: its bits
        array = array.view(stored)
    storage = Storage(dtype, int(array.size), "const", source=np.ascontiguousarray(array, stored))
    value = Value(storage, dtype, array.shape)
    if array.size <= CONTENT_LIMIT and dtype in scalar.COMPUTE:
        value._content = array.astype(object)
    return value


def content(x: Value) -> Content | None:
    """What is known of the elements at compile time: loads small constants."""
    if x.content is None and x.storage.kind == "const" and x.dtype in scalar.COMPUTE and x.dtype is x.storage.dtype:
        shape = tuple(s for s in x.shape if isinstance(s, int))
        placed = len(shape) == x.rank and all(isinstance(n, int) for n in (x.offset, *x.strides))
        if placed and isinstance(x.storage.size, int) and x.storage.size <= LOAD_LIMIT and math.prod(shape) <= LOAD_LIMIT:
            x._content = _load(x).astype(object)
    return x.content


def together(xs: Sequence[Value]) -> list[Content] | None:
    """What is known of all operands of one operation: beside those with sizes in them, those made of constants are computed."""
    found = [content(x) for x in xs]
    if any(c is not None for c in found):
        found = [Graph.current().fold(x) if c is None else c for x, c in zip(xs, found, strict=True)]
    known = [c for c in found if c is not None]
    return known if len(known) == len(found) else None


def _load(x: Value) -> np.ndarray:
    source = x.storage.source
    flat = (source if isinstance(source, np.ndarray) else source.numpy()).reshape(-1)
    shape = [int(s) for s in x.shape]
    if x.contiguous:
        return flat[int(x.offset) : int(x.offset) + math.prod(shape)].reshape(shape)
    strides = [int(s) * flat.itemsize for s in x.strides]
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    return np.lib.stride_tricks.as_strided(flat[int(x.offset) :], shape, strides)


def knowing(x: Value, change: Callable[[Content], Content]) -> Callable[[], Content | None] | None:
    def compute() -> Content | None:
        known = content(x)
        return None if known is None else change(known)

    return compute


def single(x: Value) -> Any:
    if x.dtype not in scalar.COMPUTE or any(s != 1 for s, stride in zip(x.shape, x.strides, strict=True) if stride != 0):
        return None
    first = x.view((), x.offset, (), _first(x))
    known = content(first)
    if known is None or known.item() is None:
        return None
    value = known.item()
    if isinstance(value, Dim):
        return value
    return float(value) if x.dtype.is_float else int(value)


def _first(x: Value) -> Callable[[], Content | None]:
    return lambda: None if (known := content(x)) is None or not known.size else np.array(known.flat[0], object)
