"""Models that can only be compiled once inputs are known: their signature, and what a page is told of them."""

from __future__ import annotations

import json
import os
from typing import Any

from . import source as files
from .ir import Face, NeedsShape, NeedsSizes, face_of


def declared(source: str | os.PathLike[str] | bytes, **how: Any) -> tuple[list[Face], list[Face]]:
    """Inputs and outputs as the file declares them; ``how`` it is read."""
    graph = files.read(source, **how).graph
    return [face_of(i) for i in graph.inputs], [face_of(o) for o in graph.outputs]


def told(source: str | os.PathLike[str] | bytes, need: NeedsShape | NeedsSizes) -> bytes:
    """What stands in place of a compiled model, as JSON: the inputs whose rank, and the symbols whose size, has to be given, and the
    signature, with null for the shape of what is of any rank.

    Raises:
        IRError: an input is no tensor; a page then has to be given the model compiled.
    """
    faces = declared(source)
    if not all(face.plain for face in faces[0]):
        raise need
    sides = [
        [{"name": f.name, "dtype": f.dtype.name, "shape": None if f.shape is None else list(f.shape)} for f in side if f.plain]
        for side in faces
    ]
    inputs = need.inputs if isinstance(need, NeedsShape) else ()
    symbols = need.symbols if isinstance(need, NeedsSizes) else ()
    return json.dumps({"needs": {"inputs": inputs, "symbols": symbols, "signature": sides}}, separators=(",", ":")).encode()
