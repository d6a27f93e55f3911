"""Gradients: the calls between what is varied and what is differentiated, backwards. Each operator's own file says what it passes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import IRError, Value
from ..registry import ADJOINTS, Context, Step, op
from ..tensor import fill, map_
from .training import DOMAIN


@op(domain=DOMAIN)
def Gradient(*Inputs: Value, xs: Sequence[str], y: str, zs: Sequence[str] | None = None, ctx: Context) -> tuple[Value, ...]:
    """The derivatives of the sum of ``y`` by the tensors ``xs``, at the values given for ``xs`` and ``zs``.

    What ``y`` depends on beside those is what it is in the graph.
    """
    given = dict(zip([*xs, *(zs or ())], Inputs, strict=True))
    calls = _between(ctx.tracer.model.graph.nodes, given, y)
    values = _forward(ctx, calls, given)
    if y not in values:
        raise IRError(f"y {y!r} is computed by no node")
    varied = _varied(calls, xs)
    grads: dict[str, Value] = {y: fill(values[y].shape, 1, values[y].dtype)}
    for node in reversed([n for n in calls if varied & set(n.outputs)]):
        _back(ctx, node, values, varied, grads)
    return tuple(_whole(grads.get(x), given[x]) for x in xs)


def _whole(grad: Value | None, x: Value) -> Value:
    return fill(x.shape, 0, x.dtype) if grad is None else grad


def _between(nodes: Sequence[Any], given: dict[str, Value], y: str) -> list[Any]:
    """The calls that ``y`` is made by, in order, up to what is given."""
    wanted, found = {y} - given.keys(), []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            found.append(node)
            wanted |= {n for n in node.inputs if n} - given.keys()
    return found[::-1]


def _forward(ctx: Context, calls: Sequence[Any], given: dict[str, Value]) -> dict[str, Any]:
    """The values on the way: those of the graph, unless others are given for what they depend on."""
    values, other = dict(ctx.names), {n for n, v in given.items() if ctx.names.get(n) is not v}
    values.update(given)
    for node in calls:
        if not other & set(node.inputs) and all(o in values for o in node.outputs if o):
            continue
        results = ctx.tracer.call(node, values)
        values.update({n: v for n, v in zip(node.outputs, results, strict=False) if n})
        other |= set(node.outputs)
    return values


def _varied(calls: Sequence[Any], xs: Sequence[str]) -> set[str]:
    """The names of what depends on ``xs``."""
    found = set(xs)
    for node in calls:
        if found & set(node.inputs):
            found |= {o for o in node.outputs if o}
    return found


def _back(ctx: Context, node: Any, values: dict[str, Any], varied: set[str], grads: dict[str, Value]) -> None:
    """Adds what a call passes back to the gradients of its inputs."""
    which = f"node {node.name or node.op_type!r} ({node.op_type})"
    opset = node.opset or ctx.tracer.model.opsets.get(node.domain, 0)
    passed = [grads.get(o) for o in node.outputs]
    if not any(g is not None for g in passed):
        return
    rule = ADJOINTS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        raise IRError(f"{which} cannot be differentiated here; operators that can: {', '.join(sorted(ADJOINTS))}")
    attrs = {name: ctx.tracer.attribute(value) for name, value in node.attrs.items()}
    if "broadcast" in attrs:
        raise IRError(f"{which} cannot be differentiated: it broadcasts as before opset 7")
    inputs = [values[n] if n else None for n in node.inputs]
    if any(not isinstance(v, Value) for v in inputs if v is not None):
        raise IRError(f"{which} cannot be differentiated: an input is no tensor")
    try:
        back = rule(Step(node.op_type, passed, inputs, [values[o] if o else None for o in node.outputs], attrs, opset))
    except IRError as error:
        raise IRError(f"{which} cannot be differentiated: {error}") from error
    for name, value, grad in zip(node.inputs, inputs, back, strict=False):
        if name in varied and grad is not None and value is not None and value.dtype.is_float:
            have = grads.get(name)
            grads[name] = grad if have is None else map_("add", have, grad)
