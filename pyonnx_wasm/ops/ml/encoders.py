"""Categories: looked up among the ones that a model knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType, to_numpy
from ...ir import Graph, IRError, Value
from ...op import Context, Kernel, op
from ...tensor import cast, constant, contiguous, index, map_, unsqueeze
from ..gather import Gather
from .scores import ML

LOOKUP = Kernel("lookup", ">y x keys", "n count demand")
KEYED = (DType.float32, DType.float64, DType.int16, DType.int32, DType.int64)


def places(x: Value, keys: np.ndarray, demand: bool = False) -> tuple[Value, np.ndarray]:
    """Where each element is among the different keys, their number for none of them (an error with ``demand``), and which those are:
    of keys that occur twice the first.
    """
    if x.dtype not in KEYED:
        raise IRError(f"keys of {x.dtype.name} are not supported")
    _, first = np.unique(keys, return_index=True)
    found: Value = LOOKUP(
        {"y": (DType.int64, x.shape)},
        {"x": contiguous(x), "keys": constant(np.asarray(keys[first], to_numpy(x.dtype)), x.dtype)},
        n=x.size,
        count=len(first),
        demand=int(demand),
    )
    return found, first


def mapped(x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Value:
    """The value of each element's key, else the default."""
    found, first = places(x, keys)
    return Gather(constant(np.append(values[first], np.asarray([default], values.dtype))), found)  # type: ignore[no-any-return]


@op(domain=ML)
def OneHotEncoder(
    X: Value, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None, zeros: int = 1
) -> Value:
    """1 along a new last axis at the category of each element, which floats name by their whole part."""
    if cats_strings is not None:
        raise IRError("categories that are strings are not supported")
    keys = np.asarray(cats_int64s or (), np.int64)
    found, first = places(cast(X, DType.int64), keys, demand=not zeros)
    at = Gather(constant(np.append(first, -1).astype(np.int64)), found)
    return cast(map_("eq", unsqueeze(at, [at.rank]), index(0, [len(keys)])), DType.float32)


@op("LabelEncoder", domain=ML, since=2)
def LabelEncoder(
    X: Value, *, ctx: Context,
    default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused", default_tensor: Value | None = None,
    keys_floats: Sequence[float] | None = None, keys_int64s: Sequence[int] | None = None, keys_strings: Sequence[str] | None = None,
    keys_tensor: Value | None = None, values_floats: Sequence[float] | None = None, values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None, values_tensor: Value | None = None,
) -> Value:  # fmt: skip
    keys = _listed(keys_floats, keys_int64s, keys_strings, keys_tensor, "keys")
    values = _listed(values_floats, values_int64s, values_strings, values_tensor, "values")
    default: Any = {"f": default_float, "i": default_int64, "O": default_string}[values.dtype.kind]
    if default_tensor is not None:
        default = _array(default_tensor).reshape(-1)[0]
    if len(keys) != len(values):
        raise IRError(f"{len(keys)} keys, {len(values)} values")
    if ctx.opset < 4 and keys.dtype.kind == "f":  # NaN equals nothing there
        keys, values = keys[keys == keys], values[keys == keys]
    return mapped(X, keys, values, default)


def _listed(
    floats: Sequence[float] | None, ints: Sequence[int] | None, strings: Sequence[str] | None, tensor: Value | None, what: str
) -> np.ndarray:
    given = [v for v in (floats, ints, strings, tensor) if v is not None]
    if len(given) != 1:
        raise IRError(f"one of {what}_floats, {what}_int64s, {what}_strings and {what}_tensor must be given, not {len(given)}")
    if tensor is not None:
        return _array(tensor).reshape(-1)
    if strings is not None:
        raise IRError(f"{what} that are strings are not supported")
    return np.asarray(floats, np.float32) if floats is not None else np.asarray(ints, np.int64)


def _array(tensor: Value) -> np.ndarray:
    found = Graph.current().fold(tensor)
    if found is None:
        raise IRError("a tensor attribute is no constant")
    return np.asarray(found, to_numpy(tensor.dtype))
