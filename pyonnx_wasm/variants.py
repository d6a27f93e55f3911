"""What the inputs of a run decide of what a model is compiled for: ranks, sizes that ranks hang on, axes of one name that differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from . import interface
from .ir import Face
from .program import Signature
from .tensor import CONTENT_LIMIT

Named = Sequence[tuple[int, int, str]]  # input, axis, name of its size


def named_axes(inputs: Sequence[Signature]) -> list[tuple[int, int, str]]:
    return [(i, axis, d) for i, s in enumerate(inputs) for axis, d in enumerate(s.shape) if isinstance(d, str)]


def shared_axes(named: Named) -> list[list[tuple[int, int]]]:
    """The axes of each name that several have, as input and axis."""
    found: dict[str, list[tuple[int, int]]] = {}
    for i, axis, name in named:
        found.setdefault(name, []).append((i, axis))
    return [group for group in found.values() if len(group) > 1]


def shapes_of(
    faces: Sequence[Face], inputs: Sequence[Signature], unranked: Collection[str], arrays: Sequence[np.ndarray]
) -> dict[str, tuple[int | str | None, ...]]:
    """What these inputs ask for beyond what is declared: ranks, and names of their own for axes that differ from others so named."""
    found: dict[str, tuple[int | str | None, ...]] = {}
    sizes: dict[str, int] = {}
    sequences = {face.name for face in faces if face.sequence}
    for s, array in zip(inputs, arrays, strict=True):
        name, _, part = s.name.rpartition("/")
        if part == "shapes" and name in sequences and name in unranked:
            found[name] = interface.elements_shape(array)
        if s.name in sequences:
            continue
        if s.name in unranked:
            own = [f"{s.name}[{axis}]" for axis in range(array.ndim)]
            few = s.dtype.is_int and array.ndim == 1 and array.size <= CONTENT_LIMIT  # sizes and axes: how many they are decides ranks
            found[s.name] = array.shape if few else tuple(own)
            continue
        clash = [type(d) is str and sizes.setdefault(d, size) != size for d, size in zip(s.shape, array.shape, strict=True)]
        if True in clash:
            found[s.name] = tuple(f"{s.name}[{axis}]" if apart else None for axis, apart in enumerate(clash))
    return found


def sizes_of(
    inputs: Sequence[Signature], symbols: Collection[str], arrays: Sequence[np.ndarray], shapes: Mapping[str, Sequence[int | str | None]]
) -> dict[str, int]:
    """The sizes of these inputs that decide ranks, by the names of their axes."""
    found: dict[str, int] = {}
    for s, array in zip(inputs, arrays, strict=True) if symbols else ():
        for axis, size in enumerate(array.shape):
            own = shapes.get(s.name, (None,) * array.ndim)[axis]
            name = s.shape[axis] if own is None else own
            if name in symbols:
                found[str(name)] = size
    return found
