"""The passes over the IR, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Graph
from .attention import fuse_attention
from .concat import write_through
from .dead_code import remove_dead_code
from .dequantize import scale_products
from .epilogue import fuse_epilogues
from .fuse_maps import fuse_maps
from .norm import fuse_norms
from .simplify import simplify
from .verify import verify

Pass = Callable[[Graph], None]

PIPELINE: list[Pass] = [
    remove_dead_code,
    fuse_maps,
    simplify,
    scale_products,
    fuse_norms,
    fuse_attention,
    remove_dead_code,
    fuse_epilogues,
    remove_dead_code,
]
CORE: list[Pass] = [write_through]  # GPUs bind whole buffers: what is read and what is written must be different ones
PLAIN: list[Pass] = [remove_dead_code]


def run(
    graph: Graph, *, optimise: bool = True, watch: Callable[[str, Graph], None] | None = None, passes: Sequence[Pass] | None = None
) -> None:
    """Runs the passes; the graph is verified after each, and an error names the pass.

    Args:
        watch: called with the name of each pass and the graph after it.
        passes: the ones to run; default: all that lead to the core, or the few without which nothing is lowered.
    """
    for each in passes if passes is not None else PIPELINE + CORE if optimise else PLAIN:
        with graph:
            each(graph)
        verify(graph, each.__name__)
        if watch:
            watch(each.__name__, graph)
