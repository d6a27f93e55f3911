"""Where the arrays of a run lie, for a core in this process, once they have been held against what is bound."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Sequence
from ctypes import c_void_p

import numpy as np


def demand(what: str, arrays: Sequence[np.ndarray | None], sizes: Sequence[int]) -> None:
    """Raises ValueError unless arrays are contiguous and of these bytes; ``what`` names one of them."""
    _count(what, arrays, sizes)
    for i, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        if array is not None and (array.nbytes != size or not array.flags.c_contiguous):
            raise _unfit(what, i, array, size)


def pointers(arrays: Sequence[np.ndarray | None]) -> ctypes.Array[c_void_p]:
    return (c_void_p * len(arrays))(*(None if a is None else a.__array_interface__["data"][0] for a in arrays))


_Seen = tuple[weakref.ref[np.ndarray] | None, int, int]
_NOTHING: _Seen = None, 0, 0


class Addresses:
    """Of the inputs, or of the outputs, of one core.

    A decoder's caches are the same arrays from token to token, and asking numpy for an address takes longer than all that is checked here:
    those are asked once.

    Args:
        what: names one of them.
        written: they must not be read-only.
    """

    def __init__(self, what: str, written: bool = False) -> None:
        self.what, self.written = what, written
        self._known: dict[int, _Seen] = {}  # an array, its bytes, its address

    def of(self, arrays: Sequence[np.ndarray | None], sizes: Sequence[int], held: Collection[int]) -> list[int | None]:
        """The addresses of contiguous arrays of these bytes; those that are ``held`` lie in a room, of which a run may read the beginning.

        Raises:
            ValueError: an array does not fit.
        """
        _count(self.what, arrays, sizes)
        found: list[int | None] = []
        known = self._known
        for i, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
            if array is None:
                found.append(None)
                continue
            in_room = i in held
            seen, nbytes, address = known[i] if in_room and i in known else _NOTHING
            if seen is None or seen() is not array:
                _, nbytes, address = self._looked_at(i, array, size, in_room)
            if nbytes != size and (nbytes < size or not in_room or self.written):
                raise _unfit(self.what, i, array, size)
            found.append(address)
        return found

    def _looked_at(self, i: int, array: np.ndarray, size: int, in_room: bool) -> _Seen:
        if not array.flags.c_contiguous:
            raise _unfit(self.what, i, array, size)
        if self.written and not array.flags.writeable:
            raise ValueError(f"{self.what} {i} is read-only")
        seen = weakref.ref(array), array.nbytes, array.__array_interface__["data"][0]
        if in_room:
            self._known[i] = seen
        return seen


def _count(what: str, arrays: Sequence[np.ndarray | None], sizes: Sequence[int]) -> None:
    if len(arrays) != len(sizes):
        raise ValueError(f"{len(arrays)} {what}s were given, {len(sizes)} are bound")


def _unfit(what: str, i: int, array: np.ndarray, size: int) -> ValueError:
    return ValueError(f"{what} {i} must be contiguous and of {size} bytes, not {array.nbytes}")
