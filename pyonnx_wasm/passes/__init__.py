"""The passes over the IR, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Graph
from .attention import fuse_attention
from .concat import write_through
from .dead_code import remove_dead_code
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
    fuse_norms,
    fuse_attention,
    remove_dead_code,
    fuse_epilogues,
    remove_dead_code,
    write_through,
]
PLAIN: list[Pass] = [remove_dead_code]


def run(graph: Graph, *, optimise: bool = True, watch: Callable[[str, Graph], None] | None = None) -> None:
    """Runs the passes; the graph is verified after each, and an error names the pass.

    Args:
        watch: called with the name of each pass and the graph after it.
    """
    for each in PIPELINE if optimise else PLAIN:
        with graph:
            each(graph)
        verify(graph, each.__name__)
        if watch:
            watch(each.__name__, graph)
