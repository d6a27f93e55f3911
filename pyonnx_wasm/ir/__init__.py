"""The IR: dims, strided values, graphs of kernel calls, and their text. It knows no operator and no kernel."""

from . import dims
from .graph import (
    Content,
    Graph,
    IRError,
    Items,
    NeedsContent,
    NeedsShape,
    Node,
    Read,
    Shape,
    Storage,
    Value,
    flatten,
    reachable,
    row_major,
    symbols_in,
    symbols_of,
    type_text,
)

__all__ = [
    "Content",
    "Graph",
    "IRError",
    "Items",
    "NeedsContent",
    "NeedsShape",
    "Node",
    "Read",
    "Shape",
    "Storage",
    "Value",
    "dims",
    "flatten",
    "reachable",
    "row_major",
    "symbols_in",
    "symbols_of",
    "type_text",
]
