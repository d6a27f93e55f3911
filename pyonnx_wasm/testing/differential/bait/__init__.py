"""Patterns that invite a fusion, slightly perturbed: some must be fused rightly, others must not be fused.

Adding one: ``@bait`` on a function that takes a :class:`~..sketch.Sketch` and adds nodes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from ..sketch import Sketch

Bait = Callable[[Sketch], None]
BAITS: dict[str, Bait] = {}


def bait(make: Bait) -> Bait:
    """Registers a pattern under the function's name."""
    BAITS[make.__name__.rstrip("_")] = make
    return make


@cache
def names() -> tuple[str, ...]:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(sorted(BAITS))
