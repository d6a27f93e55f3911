"""The passes over the IR, in the order they run in. They import ``ir``, ``registry``, ``tensor`` and the kernels that ``ops`` declares.

A pass takes a graph and rewrites it; :func:`run` verifies the graph after each. The graph that they leave is what every target
lowers (``program.partition``). What is said of nodes when they are lowered takes them and gives others, and leaves the graph alone:
``keep_state`` for all targets; what suits one alone, for the core
``channels_last``, ``pack_products``, ``pack_blocks``, ``pack_weights``, ``combine_bytes``, ``write_through`` and ``together``, for GPUs
``gpu.halves.read_halves`` and ``gpu.split.split_large``.

A new pass is a function of a graph, in a file of its own, that replaces nodes through :class:`~.rewrite.Rewriter` and gives the same
results for every operand, NaN and infinities included; it goes into ``PIPELINE``, and texts before and after it into ``tests/passes``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Graph, Node
from .attention import fuse_attention
from .bands import pack_products
from .byte_chains import read_bytes
from .byte_moves import move_bytes
from .bytes import combine_bytes
from .channels_last import channels_last
from .concat import write_through
from .copies import drop_copies
from .dead_code import remove_dead_code
from .dequantize import scale_products
from .epilogue import fuse_epilogues
from .equals import merge_equals
from .fuse_maps import fuse_maps
from .groups import pack_blocks
from .integers import multiply_bytes
from .norm import fuse_norms
from .pack import pack_weights
from .simplify import simplify
from .state import Kept, Pair, keep_state
from .together import together
from .verify import verify
from .wide import keep_wide

__all__ = [
    "PIPELINE",
    "PLAIN",
    "Kept",
    "Pair",
    "Pass",
    "channels_last",
    "combine_bytes",
    "keep_state",
    "pack_blocks",
    "pack_products",
    "pack_weights",
    "run",
    "together",
    "verify",
    "write_through",
]

Pass = Callable[[Graph], None]

PIPELINE: list[Pass] = [
    remove_dead_code,
    keep_wide,
    fuse_maps,
    simplify,
    scale_products,
    fuse_norms,
    fuse_attention,
    drop_copies,
    remove_dead_code,
    fuse_epilogues,
    multiply_bytes,
    remove_dead_code,
    fuse_maps,  # of dequantised bytes that products no longer read
    move_bytes,
    read_bytes,
    remove_dead_code,
    merge_equals,
]
PLAIN: list[Pass] = [remove_dead_code]  # without which nothing is lowered


def run(graph: Graph, passes: Sequence[Pass] = PIPELINE, watch: Callable[[str, Graph], None] | None = None) -> None:
    """Runs passes; the graph is verified after each, and an error names the pass.

    Args:
        watch: called with the name of each pass and the graph after it.
    """
    known: set[Node] = set()
    for each in passes:
        with graph:
            each(graph)
        verify(graph, each.__name__, known)
        if watch:
            watch(each.__name__, graph)
    for body in graph.bodies():
        run(body, passes)
