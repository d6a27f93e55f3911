"""Weights of mapped files that the init Program reads: their pages are given back once the last of its steps has read them."""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..program.model import WEIGHT
from ..program.view import CONTROL

if TYPE_CHECKING:
    from .core import Core


def run_init(core: Core, memory: Sequence[np.ndarray]) -> None:
    """Runs a bound init Program, so that what it read and what it wrote do not lie in memory both."""
    view = core.view
    if view.programs or len(view.stages) > 1 or any(step.kernel in CONTROL for step in view.steps):
        return core.run([], [])
    last: dict[int, int] = {}
    for i, step in enumerate(view.steps):
        for b in step.present:
            storage = view.storages[view.buffers[b].storage]
            if storage.kind == WEIGHT:
                last[storage.slot] = i
    ends = defaultdict(list)
    for weight, i in last.items():
        ends[i].append(weight)
    for i in range(len(view.steps)):
        core.run_steps([], [], i, i + 1)
        for weight in ends[i]:
            give_back(memory[weight])


def give_back(array: np.ndarray) -> int:
    """Takes the whole pages of an array that looks into a mapped file out of memory; they come again where they are read again.

    Returns the bytes; 0 for an array of other memory, or of a map that can be written, whose contents would be lost.
    """
    owner: object = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED") or not memoryview(owner).readonly:
        return 0
    start = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end <= first:
        return 0
    owner.madvise(mmap.MADV_DONTNEED, first, end - first)
    return end - first
