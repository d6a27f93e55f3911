"""Sequences, optionals and maps at a session's border: lists of arrays, None and dicts here, tensors behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .dtypes import DType, from_numpy, to_numpy
from .ir import ROW, Face
from .program import Signature
from .values import type_name

WASM = sys.platform == "emscripten"
Faces = Sequence[Face]


def plain_faces(signatures: Sequence[Signature]) -> list[Face]:
    """Those of a model that takes and gives tensors alone."""
    return [Face(s.name, False, False, s.dtype, s.shape) for s in signatures]


def signatures(faces: Faces) -> list[Signature]:
    """The tensors that inputs or outputs are made of."""
    return [Signature(*tensor) for face in faces for tensor in face.tensors()]


def type_of(face: Face) -> str:
    """A type as onnxruntime spells it: ``seq(tensor(float))``."""
    text = type_name(face.dtype)
    if face.keys is not None:
        return f"seq(map({'string' if isinstance(face.keys[0], str) else 'int64'},{text}))"
    if face.key is not None:
        return f"map({face.key.name},{text})"
    text = f"seq({text})" if face.sequence else text
    return f"optional({text})" if face.optional else text


def typed(given: Any, dtype: DType, what: str) -> np.ndarray:
    """An array of a dtype, in the machine's byte order; ``what`` names it where it is none."""
    text = dtype is DType.string
    array = np.asarray(given, object) if text and not isinstance(given, np.ndarray) else np.asarray(given)
    if array.dtype.kind not in "USOT":
        native = np.int64 if WASM and dtype is DType.int64 and array.dtype == np.int_ else array.dtype.newbyteorder("=")
        array = np.ascontiguousarray(array, native).reshape(array.shape)  # Python's integers become int32 in Pyodide
    try:
        have = from_numpy(array.dtype)
    except TypeError:
        have = None
    if array.dtype.kind not in "USOT" if text else have is not dtype and array.dtype != to_numpy(dtype):
        raise ValueError(f"{what} takes {dtype.name}, got {array.dtype}")
    return array


def to_tensors(faces: Faces, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds by the names of the tensors that they are made of.

    Raises:
        ValueError: an input is no list or dict, or holds something of another dtype; the text names it.
    """
    found: dict[str, Any] = {}
    for face in faces:
        if face.name not in feed:
            continue
        given = feed[face.name]
        if face.plain:
            found[face.name] = given
            continue
        if face.key is not None:
            found[f"{face.name}/keys"], found[face.name] = _mapped(face, given)
            continue
        if face.optional:
            found[f"{face.name}/present"] = np.array(given is not None)
        if face.sequence:
            rows, run = _packed(face, () if given is None and face.optional else given)
            found |= {face.name: run, f"{face.name}/shapes": rows}
        elif given is None:
            blank = ("", object) if face.dtype is DType.string else (0, to_numpy(face.dtype))
            found[face.name] = np.full([d if isinstance(d, int) else 0 for d in face.shape or ()], *blank)
        else:
            found[face.name] = given
    return found


def _mapped(face: Face, given: Any) -> tuple[np.ndarray, np.ndarray]:
    """The keys and the values of a map: numbers as the map's, where that loses nothing but digits."""
    what = f"input {face.name!r}"
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} takes a dict, got {type(given).__name__}")
    return _column(list(given), face.key or DType.int64, f"{what}: a key"), _column([*given.values()], face.dtype, f"{what}: a value")


def _column(items: list[Any], dtype: DType, what: str) -> np.ndarray:
    kinds = (str,) if dtype is DType.string else (int, np.integer) if dtype.is_int else (int, float, np.number)
    for item in items:
        if not isinstance(item, kinds) or isinstance(item, (bool, np.complexfloating)):
            raise ValueError(f"{what} is of {type(item).__name__}, it must be {dtype.name}")
    try:
        return np.array(items, object if dtype is DType.string else to_numpy(dtype))
    except OverflowError as error:
        raise ValueError(f"{what} is beyond {dtype.name}: {error}") from None


def _packed(face: Face, given: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"input {face.name!r} takes a list of arrays{' or None' if face.optional else ''}, got {type(given).__name__}")
    arrays = [typed(a, face.dtype, f"input {face.name!r}, element {i},") for i, a in enumerate(given)]
    rows = np.ones((len(arrays), ROW), np.int64)
    for i, (row, array) in enumerate(zip(rows, arrays, strict=True)):
        if array.ndim >= ROW:
            raise ValueError(f"input {face.name!r}, element {i}, has rank {array.ndim}; at most {ROW - 1} are supported")
        row[0], row[1 : 1 + array.ndim] = array.ndim, array.shape
    kind = np.dtype(object) if face.dtype is DType.string else to_numpy(face.dtype)
    run = np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.empty(0, kind)
    return rows, run.astype(kind, copy=False) if run.dtype.kind != "V" else run


def to_values(faces: Faces, arrays: Sequence[np.ndarray]) -> dict[str, Any]:
    """Outputs by name: arrays, lists of them, None, and lists of dicts from labels to numbers."""
    left = iter(arrays)
    return {face.name: _value(face, left) for face in faces}


def _value(face: Face, left: Iterator[np.ndarray]) -> Any:
    present = not face.optional or bool(next(left))
    run = next(left)
    if face.keys is not None:
        return [dict(zip(face.keys, row, strict=True)) for row in run.tolist()]
    if not face.sequence:
        return run if present else None
    rows, found, start = next(left), [], 0
    for rank, *sizes in rows.tolist():
        count = int(np.prod(sizes, dtype=np.int64))
        found.append(run[start : start + count].reshape(sizes[:rank]))
        start += count
    return found if present else None


def elements_shape(array: np.ndarray) -> tuple[None, ...]:
    """What a run's sequence says of the rank of its elements: that of the first."""
    return (None,) * (int(array[0, 0]) if len(array) else 0)
