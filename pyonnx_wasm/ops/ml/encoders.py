"""Categories: looked up among the ones that a model knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType, to_numpy
from ...ir import Graph, IRError, Strings, Value
from ...onnxfile.strings import decode
from ...registry import Context, Kernel, op
from ...tensor import cast, constant, contiguous, index, map_, strings, unsqueeze
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


def mapped(x: Value | Strings, keys: np.ndarray, values: np.ndarray, default: Any) -> Value | Strings:
    """The value of each element's key, else the default."""
    if (keys.dtype == object) != isinstance(x, Strings):
        raise IRError(f"the keys are {'strings' if keys.dtype == object else keys.dtype}, X is {x.dtype.name}")
    if isinstance(x, Strings):  # -1, of what is no key, is the last one
        found, first = strings.find(x, strings.text(list(keys), "the keys")), np.arange(len(keys))
    else:
        found, first = places(x, keys)
    every = np.append(values[first], np.asarray([default], values.dtype))
    if values.dtype != object:
        return Gather(constant(every), found)  # type: ignore[no-any-return]
    table = strings.text(list(every), "the values")
    return Strings(Gather(table.spans, found), table.pool)


@op(domain=ML)
def OneHotEncoder(
    X: Value | Strings, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None, zeros: int = 1
) -> Value:
    """1 along a new last axis at the category of each element, which floats name by their whole part."""
    if isinstance(X, Strings) != (cats_strings is not None):
        raise IRError(f"X is {X.dtype.name}: its categories are cats_{'strings' if isinstance(X, Strings) else 'int64s'}")
    keys = np.asarray(cats_int64s or (), np.int64)
    at = cast(X, DType.int64) if isinstance(X, Value) else strings.find(X, strings.text(list(cats_strings or ()), "the categories"))
    if isinstance(X, Strings):
        keys = np.arange(len(cats_strings or ()))
    found, first = places(at, keys, demand=not zeros)
    at = Gather(constant(np.append(first, -1).astype(np.int64)), found)
    return cast(map_("eq", unsqueeze(at, [at.rank]), index(0, [len(keys)])), DType.float32)


@op(domain=ML)
def CategoryMapper(
    X: Value | Strings, *,
    cats_int64s: Sequence[int], cats_strings: Sequence[str], default_int64: int = -1, default_string: str = "_Unused",
) -> Value | Strings:  # fmt: skip
    """Strings to integers, and integers to strings."""
    if len(cats_int64s) != len(cats_strings):
        raise IRError(f"{len(cats_int64s)} cats_int64s, {len(cats_strings)} cats_strings")
    ints, names = np.asarray(cats_int64s, np.int64), np.asarray(cats_strings, object)
    return mapped(X, names, ints, default_int64) if isinstance(X, Strings) else mapped(X, ints, names, default_string)


@op("LabelEncoder", domain=ML, until=1)
def LabelEncoder_1(
    X: Value | Strings, *, classes_strings: Sequence[str], default_int64: int = -1, default_string: str = "_Unused"
) -> Value | Strings:
    """Strings to their places in a list, and back."""
    at, names = np.arange(len(classes_strings)), np.asarray(classes_strings, object)
    return mapped(X, names, at, default_int64) if isinstance(X, Strings) else mapped(X, at, names, default_string)


@op("LabelEncoder", domain=ML, since=2)
def LabelEncoder(
    X: Value | Strings, *, ctx: Context,
    default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused", default_tensor: Value | Strings | None = None,
    keys_floats: Sequence[float] | None = None, keys_int64s: Sequence[int] | None = None, keys_strings: Sequence[str] | None = None,
    keys_tensor: Value | Strings | None = None, values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None, values_strings: Sequence[str] | None = None,
    values_tensor: Value | Strings | None = None,
) -> Value | Strings:  # fmt: skip
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
    floats: Sequence[float] | None, ints: Sequence[int] | None, names: Sequence[str] | None, tensor: Value | Strings | None, what: str
) -> np.ndarray:
    given = [v for v in (floats, ints, names, tensor) if v is not None]
    if len(given) != 1:
        raise IRError(f"one of {what}_floats, {what}_int64s, {what}_strings and {what}_tensor must be given, not {len(given)}")
    if tensor is not None:
        return _array(tensor).reshape(-1)
    if names is not None:
        return np.asarray(names, object)
    return np.asarray(floats, np.float32) if floats is not None else np.asarray(ints, np.int64)


def _array(tensor: Value | Strings) -> np.ndarray:
    """The contents of a tensor attribute."""
    if isinstance(tensor, Strings):
        spans, pool = (_array(v) for v in (tensor.spans, tensor.pool))
        return decode(spans, pool, "a tensor attribute")
    found = Graph.current().fold(tensor)
    if found is None:
        raise IRError("a tensor attribute is no constant")
    return np.asarray(found, to_numpy(tensor.dtype))
