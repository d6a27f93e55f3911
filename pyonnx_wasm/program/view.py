"""The reader of a Program's words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StepRow:
    """A step of a Program's words: its kernel's name, its origin's index, its buffers (-1: absent)."""

    kernel: str
    origin: int
    buffers: list[int]


def step_rows(words: np.ndarray) -> list[StepRow]:
    """The steps of a Program that the core has verified."""
    names, at = [], int(words[4])
    for _ in range(int(words[3])):
        length = int(words[at + 1])
        names.append(words[at + 2 : at + 2 + (length + 3) // 4].tobytes()[:length].decode())
        at += 2 + (length + 3) // 4
    rows, at = [], int(words[16])
    for _ in range(int(words[15])):
        kernel, n_bufs, n_params, origin = (int(w) for w in words[at : at + 4])
        rows.append(StepRow(names[kernel if kernel >= 0 else ~kernel], origin, [int(b) for b in words[at + 4 : at + 4 + n_bufs]]))
        at += 4 + n_bufs + n_params
    return rows


def step_bytes(words: np.ndarray, registers: np.ndarray) -> list[int]:
    """Bytes of each step's buffers, each storage once."""
    rows = words[words[14] : words[14] + 4 * words[13]].reshape(-1, 4)
    found = []
    for step in step_rows(words):
        sizes = {int(rows[b][0]): int(registers[rows[b][2]]) for b in step.buffers if b >= 0}
        found.append(sum(sizes.values()))
    return found
