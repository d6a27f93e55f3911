"""Strings as Programs hold them: spans in a pool of UTF-8. What they are in Python: numpy arrays of ``str``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MAX_BYTES = (1 << 31) - 1  # of a pool
LENGTH = (1 << 32) - 1  # the bits of a span that hold the length


def encode(strings: Any, what: str) -> tuple[Array, Array]:
    """Spans (int64, of the array's shape) and pool (uint8) of an array of ``str`` or of UTF-8 ``bytes``, or of nested lists of them.

    Args:
        what: names them in errors.
    Raises:
        ValueError: an element is neither, is no UTF-8 or holds a lone surrogate, or they take 2 GB and more.
    """
    array = strings if isinstance(strings, np.ndarray) else np.asarray(strings, object)
    items = array.reshape(-1).tolist()
    try:
        parts = [item.encode() for item in items]
    except (AttributeError, UnicodeEncodeError):
        parts = [_encoded(item, k, what) for k, item in enumerate(items)]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    data = b"".join(parts)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{what}: its strings take {len(data)} bytes; at most {MAX_BYTES} are possible")
    starts = np.cumsum(lengths) - lengths
    return (starts << 32 | lengths).reshape(array.shape), np.frombuffer(data, np.uint8)


def _encoded(item: Any, k: int, what: str) -> bytes:
    if isinstance(item, bytes):
        try:
            item.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{what}: element {k} is no UTF-8: {error.reason} at byte {error.start}") from None
        return item
    if not isinstance(item, str):
        raise ValueError(f"{what} takes strings, element {k} is {item!r:.40} ({type(item).__name__})")
    try:
        return item.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what}: element {k} holds a lone surrogate at character {error.start}") from None


def decode(spans: Array, pool: Array, what: str) -> Array:
    """An array of ``str``, of the shape of ``spans``.

    Raises:
        ValueError: a span is outside the pool, or its bytes are no UTF-8.
    """
    starts, lengths = spans.reshape(-1) >> 32, spans.reshape(-1) & LENGTH
    if len(starts) and (int(starts.min()) < 0 or int((starts + lengths).max()) > pool.size):
        raise ValueError(f"{what}: a string lies outside its bytes")
    data = pool.tobytes()
    found = np.empty(len(starts), object)
    try:
        found[:] = [data[start : start + length].decode() for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
    except UnicodeDecodeError as error:
        raise ValueError(f"{what}: a string is no UTF-8: {error.reason}") from None
    return found.reshape(spans.shape)
