"""Operators of one's own: the shader that their declaration holds."""

from __future__ import annotations

from dataclasses import replace

from ...callbacks import Shader
from ...ir import IRError, Value, dims, row_major
from ...ir.dims import DimLike
from .. import Call, Case, source
from ..elements import address, coordinates, elements


def cases(call: Call) -> list[Case]:
    shader: Shader = call.node.params["shader"]
    if shader.grid is not None:
        return [Case(shader.grid, uniforms=shader.numbers, source=shader.source)]
    y = call.values["y"]
    numbers = dict(shader.numbers)
    lines: list[str] = []
    for name, value in list(call.values.items())[1:]:
        strides = _broadcast(value, y, name)
        if strides is None:
            lines.append(f"  let {name} = {name}_get(i);")
            continue
        numbers[f"{name}_strides"] = strides
        lines.append(f"  let {name} = {name}_get({address(name + '_strides', strides)});")
    if any(name.endswith("_strides") for name in numbers):
        numbers["y_shape"] = list(y.shape)
        lines = [*coordinates(y.rank, "y_shape"), *lines]
    given = shader.source.strip()
    body = given if "return" in given else f"return {given.rstrip(';')};"
    frame = source("custom")
    assert frame is not None
    text = frame.replace("${body}", "\n".join([*lines, body]))  # not as a hole: it may hold lines of #if
    return [replace(case, source=text) for case in elements(call, numbers)]


def _broadcast(value: Value, y: Value, name: str) -> list[DimLike] | None:
    """The strides by which elements of the output find those of an input; None where both have one shape."""
    lead = y.rank - value.rank
    same = [dims.same(a, b) for a, b in zip(value.shape, y.shape[max(lead, 0) :], strict=False)]
    if lead == 0 and all(same):
        return None
    if lead < 0 or not all(fits or n == 1 for fits, n in zip(same, value.shape, strict=True)):
        raise IRError(f"WGSL of an element: {name} is {list(value.shape)}, which is not known to broadcast to the output's {list(y.shape)}")
    own = row_major(value.shape)
    return [0] * lead + [stride if fits else 0 for stride, fits in zip(own, same, strict=True)]
