"""Memory for weights in this process: constants where the file is mapped, and what the init Program computes of them."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ..program import WEIGHT, Program, Weight, homes
from ..program.file import weight_bytes
from ..program.view import ProgramView
from . import UNLIMITED, Limits
from .blocks import LINE, Blocks, zeros
from .given_back import run_init

_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def load_weights(
    init: Program | None,
    weights: Sequence[Weight],
    threads: int = 1,
    library: Any = None,
    limits: Limits = UNLIMITED,
    main: Program | None = None,
) -> list[np.ndarray]:
    """The bytes of every weight, those that init computes included.

    Args:
        main: the Program that they are for: of what init computes and this does not use no byte stays.
    Raises:
        CoreError: a Program is malformed, or its run failed.
        ValueError: a weight does not fit in the memory that it takes over.
    """
    from .core import Core

    homes(weights)  # that each fits
    kept = range(len(weights)) if init is None or main is None else _kept(main, weights, library)
    memory, lasting = _memory(weights, kept)
    if init is not None:
        core = Core(init.code, memory, init.messages, init.origins, threads, library, limits)
        core.bind([], [])
        run_init(core, memory, set(range(len(weights))) - lasting)
        core.close()
    found = [w.view() if k in lasting else np.zeros(0, np.uint8) for k, w in enumerate(memory)]
    for w in found:
        w.flags.writeable = False  # only the init Program writes weights
    return found


def _kept(program: Program, weights: Sequence[Weight], library: Any) -> set[int]:
    """The weights that a Program uses: of words that the core has verified, as any may come from a damaged file."""
    from .core import Core

    anywhere = zeros(max((w.nbytes for w in weights), default=0))  # nothing is run: none of it is touched
    core = Core(program.code, [anywhere[: w.nbytes] for w in weights], program.messages, program.origins, 1, library)
    used = set(_used(core.view))
    core.close()
    return used


def _used(view: ProgramView) -> Iterator[int]:
    """The weights of a Program and of those within."""
    yield from (row.slot for row in view.storages if row.kind == WEIGHT)
    for words in view.programs:
        yield from _used(ProgramView(words))


def _memory(weights: Sequence[Weight], kept: Collection[int]) -> tuple[list[np.ndarray], set[int]]:
    """One byte array per weight: constants as they are, mapped, and memory for what init computes, in place of what it computed before.
    And the weights whose memory stays.

    What is kept lies in one block, the rest in pages of its own, which init can do without one by one.
    """
    found = [weight_bytes(w) for w in weights]
    roots: list[int] = []
    for k in range(len(weights)):
        while found[k] is None and (over := weights[k].over) is not None and found[over] is None:
            k = over
        roots.append(k)
    lasting = {roots[k] for k in kept if found[roots[k]] is None}
    brief = {k for k in roots if k not in lasting and found[k] is None}
    made: dict[int, np.ndarray] = {}
    for which, apart, make in ((lasting, LINE, zeros), (brief, mmap.PAGESIZE, _pages)):
        blocks = Blocks(sum(-(-weights[k].nbytes // apart) * apart for k in which) + apart, apart, make)
        made |= {k: blocks.take(weights[k].nbytes) for k in sorted(which)}
    memory = [made[root] if (data := found[root]) is None else data for root in roots]
    return memory, {k for k, root in enumerate(roots) if root not in brief}


def _pages(nbytes: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, nbytes, **_PRIVATE), np.uint8)
