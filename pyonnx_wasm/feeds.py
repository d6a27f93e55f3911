"""Between what a user gives and takes and what a Program does: an array is one tensor, one of strings two."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from .dtypes import DType, to_numpy
from .onnxfile.strings import decode, encode
from .onnxfile.tensor import pack, unpack
from .program import Signature
from .runtimes import Runtime, call
from .runtimes.state import Held


def fed(arrays: Sequence[Any], inputs: Sequence[Signature]) -> tuple[list[tuple[int, ...]], list[Any]]:
    """The shapes and the contents of a Program's inputs: arrays, or what is held.

    Raises:
        ValueError: an element of an input of strings is none; names the input.
    """
    shapes: list[tuple[int, ...]] = []
    feeds: list[Any] = []
    for array, s in zip(arrays, inputs, strict=True):
        if isinstance(array, Held):
            shapes.append(array.shape)
            feeds.append(array)
            continue
        for part in encode(array, f"input {s.name!r}") if s.dtype is DType.string else (np.ascontiguousarray(array).reshape(array.shape),):
            shapes.append(part.shape)
            feeds.append(packed(part, s.dtype) if s.dtype is not DType.string else part)
    return shapes, feeds


class Slots(list[Signature]):
    """The signatures of a model's outputs, and which of a Program's outputs they are: one each, two where they are strings."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        super().__init__(signatures)
        self.dtypes = [d for s in self for d in ((DType.int64, DType.uint8) if s.dtype is DType.string else (s.dtype,))]
        self.single: dict[str, int] = {}
        self.strings: set[int] = set()
        k = 0
        for s in self:
            if s.parts == 1:
                self.single[s.name] = k
            else:
                self.strings.update(range(k, k + s.parts))
            k += s.parts
        self.as_they_are = not self.strings and all(d.bits >= 8 for d in self.dtypes)

    def places(self, names: Collection[str]) -> set[int]:
        """Which of the Program's outputs the tensors of these names are."""
        return {self.single[name] for name in names if name in self.single}

    def wanted(self, names: Collection[str]) -> set[int]:
        """Those and strings, which are put together whether they are asked for or not."""
        return self.places(names) | self.strings


class Outputs:
    """The arrays of a Program's outputs, made when their shapes are known."""

    def __init__(self, outputs: Sequence[Signature]) -> None:
        self.slots = outputs if isinstance(outputs, Slots) else Slots(outputs)
        self.shapes: dict[int, tuple[int, ...]] = {}

    def empty(self, i: int, shape: tuple[int, ...]) -> np.ndarray:
        """The array for an output of the Program."""
        self.shapes[i] = shape
        return empty(shape, self.slots.dtypes[i])

    def bound(self, shapes: Sequence[tuple[int, ...] | None]) -> list[Any]:
        """Those for the shapes that are known; None for the others."""
        return [None if shape is None else self.empty(i, shape) for i, shape in enumerate(shapes)]

    def results(self, found: Sequence[Any]) -> list[Any]:
        """What the user takes.

        Raises:
            ValueError: a string is no UTF-8; names the output.
        """
        if self.slots.as_they_are:
            return list(found)
        results, k = [], 0
        for s in self.slots:
            if s.dtype is DType.string:
                results.append(decode(found[k], found[k + 1], f"output {s.name!r}"))
                k += 2
            else:
                have = found[k] is not None and k in self.shapes
                results.append(unpacked(found[k], self.shapes[k], s.dtype) if have else found[k])
                k += 1
        return results


def execute(
    runtime: Runtime,
    arrays: Sequence[Any],
    inputs: Sequence[Signature],
    outputs: Sequence[Signature],
    wanted: Collection[str] = (),
    keep: Collection[str] = (),
    away: Collection[str] = (),
) -> list[Any]:
    """Runs arrays of the inputs' dtypes; elements of less than 8 bits are one per byte in the arrays.

    Args:
        wanted: the tensors that are asked for; of others there may be None.
        keep: outputs that are to stay with the runtime where it holds them: they come as ``Held``.
        away: outputs that are to stay where reading them costs, whether or not a run goes on from them.
    """
    made = Outputs(outputs)
    run_held: Any = getattr(runtime, "run_held", None)
    slots = made.slots
    asked = slots.wanted(wanted)
    few = getattr(runtime, "reads", False) and len(asked) < len(slots.dtypes)
    if run_held is None or not (keep or few or any(isinstance(array, Held) for array in arrays)):
        shapes, feeds = fed([array.array() if isinstance(array, Held) else array for array in arrays], inputs)
        return made.results(call(runtime, shapes, feeds, made.empty))
    shapes, feeds = fed(arrays, inputs)
    return made.results(run_held(shapes, feeds, slots.places(keep), asked, made.empty, *([slots.places(away)] if away else [])))


async def execute_async(
    runtime: Any,
    arrays: Sequence[Any],
    inputs: Sequence[Signature],
    outputs: Sequence[Signature],
    wanted: Collection[str],
    keep: Collection[str],
) -> list[Any]:
    """As :func:`execute`, of a runtime that is awaited."""
    made = Outputs(outputs)
    shapes, feeds = fed(arrays, inputs)
    return made.results(await runtime.run_held_async(shapes, feeds, made.slots.places(keep), made.slots.wanted(wanted), made.empty))


def packed(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array as the core takes it: elements of less than 8 bits, one per byte in the array, side by side."""
    return pack(array.reshape(-1).view(np.uint8), dtype.bits) if dtype.bits < 8 else array


def unpacked(array: np.ndarray, shape: Sequence[int], dtype: DType) -> np.ndarray:
    """What the core gave, one element of less than 8 bits per byte."""
    return unpack(array, dtype.bits, math.prod(shape)).reshape(shape) if dtype.bits < 8 else array


def empty(shape: Sequence[int], dtype: DType) -> np.ndarray:
    """An array for what the core gives."""
    return np.empty(shape if dtype.bits >= 8 else dtype.nbytes(math.prod(shape)), to_numpy(dtype))
