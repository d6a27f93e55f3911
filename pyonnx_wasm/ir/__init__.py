"""The IR: dims, strided values, graphs of kernel calls, and their text. It knows no operator and no kernel.

It imports ``dtypes`` and ``onnxfile``. A new kind of dim expression is added in ``dims`` and, with its code, in ``program.model.SHAPE_OPS``
and ``kernels/cpp/core``; what can be said of a graph is added in ``graph`` and in ``text``, which prints and parses it.
"""

from . import dims
from .compound import COMPOUND, ROW, Face, Form, Items, Map, Maps, Maybe, Packed, Single, face_of, form_of, members, parts, rebuilt
from .graph import (
    Content,
    Graph,
    IRError,
    NeedsShape,
    NeedsSizes,
    Node,
    Read,
    Shape,
    Storage,
    TooManyWays,
    Undecided,
    Value,
    flatten,
    range_of,
    reachable,
    row_major,
    symbols_in,
    symbols_of,
    type_text,
)
from .strings import Strings

__all__ = [
    "COMPOUND",
    "ROW",
    "Content",
    "Face",
    "Form",
    "Graph",
    "IRError",
    "Items",
    "Map",
    "Maps",
    "Maybe",
    "NeedsShape",
    "NeedsSizes",
    "Node",
    "Packed",
    "Read",
    "Shape",
    "Single",
    "Storage",
    "Strings",
    "TooManyWays",
    "Undecided",
    "Value",
    "dims",
    "face_of",
    "flatten",
    "form_of",
    "members",
    "parts",
    "range_of",
    "reachable",
    "rebuilt",
    "row_major",
    "symbols_in",
    "symbols_of",
    "type_text",
]
