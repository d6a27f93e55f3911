"""What the init Program needs for a while: its pages are given back once the last of its steps has read them."""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..program.model import WEIGHT
from ..program.view import CONTROL

if TYPE_CHECKING:
    from .core import Core


def run_init(core: Core, memory: Sequence[np.ndarray], brief: Collection[int] = ()) -> None:
    """Runs a bound init Program, so that what it read and what it wrote do not lie in memory both.

    Args:
        memory: of every weight.
        brief: weights in anonymous maps that nothing else reads.
    """
    view = core.view
    if view.programs or len(view.stages) > 1 or any(step.kernel in CONTROL for step in view.steps):
        return core.run([], [])
    last: dict[int, tuple[int, int]] = {}  # by address, as one weight may follow another there: step and weight
    for i, step in enumerate(view.steps):
        for b in step.present:
            storage = view.storages[view.buffers[b].storage]
            if storage.kind == WEIGHT:
                array = memory[storage.slot]
                last[array.__array_interface__["data"][0]] = i, storage.slot
    ends = defaultdict(list)
    for i, weight in last.values():
        ends[i].append(weight)
    for i in range(len(view.steps)):
        core.run_steps([], [], i, i + 1)
        for weight in ends[i]:
            give_back(memory[weight], weight in brief)


def give_back(array: np.ndarray, lost: bool = False) -> int:
    """Takes the whole pages of an array that looks into a map out of memory; those of a file come again where they are read again.

    Args:
        lost: the contents of a map of no file, too.
    Returns:
        The bytes; 0 for an array of other memory, or of a map whose contents would be lost.
    """
    owner: object = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED") or not (lost or memoryview(owner).readonly):
        return 0
    start = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end <= first:
        return 0
    owner.madvise(mmap.MADV_DONTNEED, first, end - first)
    return end - first
