"""Calls of what the host does, and of what a shader of one's own does in its place."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..callbacks import Callback, Shader
from ..dtypes import DType
from ..ir import IRError, Value
from ..ir.dims import DimLike
from ..registry import Kernel, Notation
from ..tensor import contiguous, literal
from .bodies import emit

#: What a shader of one's own runs: ``params`` hold it as ``shader``.
CUSTOM = Kernel("custom", ">y >y1? >y2? >y3? x*", "", finish=lambda node: {}, traits=("shader",))
#: Without the contents of modules, and what a shader knows of its call.
NOTATION: dict[str, Notation] = {
    "callback": (lambda callback, _: json.dumps(callback.json()), lambda text, _: Callback.read(json.loads(text), [b""])),
    "shader": (lambda shader, _: json.dumps(shader.source), lambda text, _: Shader(json.loads(text), None, (), {})),
}


def call(
    callback: Callback,
    inputs: Sequence[Value | None],
    outputs: Sequence[tuple[DType, Sequence[DimLike | None]]],
    shader: Shader | None = None,
) -> tuple[Value, ...]:
    """A step that the host does; sizes of what it gives that are None are known behind it. ``shader``: what a GPU does instead."""
    present = [contiguous(i) for i in inputs if i is not None]
    for dtype in [*(i.dtype for i in present), *(d for d, _ in outputs)]:
        if dtype.bits < 8:
            raise IRError(f"a callback takes and gives elements of 8 bits and more, not {dtype.name}; insert a Cast")
    if callback.outputs:
        present.append(literal([-1 if size is None else size for _, shape in outputs for size in shape]))
    steer = {} if shader is None else {"shader": shader}
    return tuple(emit("host", [], present, outputs, NOTATION, callback=callback, **steer))
