"""Updates of slices named by index tuples, of any type; those out of range are passed over."""

from __future__ import annotations

from .. import Call, Case, nested
from ..elements import scattered


def cases(call: Call) -> list[Case]:
    return scattered(call, {"depth": call.depth, "dims": call.xdims, "inner": call.inner, "count": call.count}, nested(call.count))
