"""Calls that GPUs run in several steps; those that read weights larger than one binding may be, each over a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from ..ir import Node, Value
from . import part_of

BINDING_BYTES = 1 << 27  # what every adapter binds (WebGPU's default maxStorageBufferBindingSize)
ALIGN = 256  # of what is bound (minStorageBufferOffsetAlignment)


def is_large(value: Value) -> bool:
    """A view of a weight that no adapter has to be able to bind whole."""
    storage = value.storage
    return storage.const and isinstance(storage.size, int) and storage.size * storage.dtype.bits // 8 > BINDING_BYTES


def in_steps(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with the steps of a GPU in place of those of kernels that the core alone runs at once."""
    out: list[Node] = []
    for node in nodes:
        steps = part_of(node.kernel.name, "steps")
        out += steps(node) if steps else [node]
    return out


def split_large(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with those that can be taken apart in place of those that read too much."""
    out: list[Node] = []
    for node in nodes:
        split = part_of(node.kernel.name, "split") if any(map(is_large, node.inputs())) else None
        out += (split and split(node)) or [node]
    return out


def pieces(count: int, each_bytes: int) -> Iterator[tuple[int, int]]:
    """[0, count) in runs that begin at aligned bytes and fit a binding; nothing where that cannot be."""
    unit = ALIGN // gcd(ALIGN, each_bytes)
    most = BINDING_BYTES // each_bytes // unit * unit
    if most:
        yield from ((at, min(at + most, count)) for at in range(0, count, most))
