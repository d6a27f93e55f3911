"""Where the random numbers of sessions begin."""

from __future__ import annotations

import os

_MASK = (1 << 64) - 1
_next: int | None = None


def set_seed(seed: int) -> None:
    """The k-th session that is created from now on, counted from 0, draws the random numbers of the seed ``seed + k``."""
    global _next
    _next = int(seed) & _MASK


def fresh() -> int:
    """The seed of a new session, as a signed 64-bit integer: what ``set_seed`` says, else one that nobody knows."""
    global _next
    seed = int.from_bytes(os.urandom(8), "little") if _next is None else _next
    if _next is not None:
        _next = (_next + 1) & _MASK
    return seed - (1 << 64) if seed >> 63 else seed
