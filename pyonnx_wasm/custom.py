"""Operators of one's own beside those that decompose (``@pyonnx_wasm.op``): callbacks, and calls of other operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .callbacks import FUNCTIONS, Callback
from .dtypes import DType
from .ir import Graph, IRError, Value
from .ops.callbacks import call
from .registry import Context, find, op
from .tensor.packed import settled

#: dtype and rank of an output: a name and a number, or None for those of the first input.
Output = tuple[str | None, int | None]
Outputs = Sequence[Output] | Callable[..., Sequence[Output]]


def callback(
    name: str | None = None,
    *,
    domain: str = "",
    outputs: Outputs = ((None, None),),
    since: int = 1,
    until: int | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function over numpy arrays as an operator that cannot be compiled.

    The Program stops at each such node, the function gets the inputs and gives the outputs, as one array or a tuple of them. Their
    sizes may depend on anything; dtypes and ranks are needed when the model is compiled. Inputs are read-only views, valid for the call.

    Args:
        outputs: ``(dtype, rank)`` per output; None: as the first input. Or a function of the inputs' :class:`~pyonnx_wasm.ir.Value`
            (``dtype``, ``rank``, ``shape``) and the attributes that returns those.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        key = domain if domain != "ai.onnx" else "", name or function.__name__.rstrip("_")
        defaults = function.__kwdefaults__ or {}

        @functools.wraps(function)
        def emit(*inputs: Value | None, ctx: Context, **given: Any) -> tuple[Value, ...]:
            attributes = {**defaults, **given}
            types = _types(outputs, inputs, attributes)
            return call(Callback(*key, Graph.current().origin, tuple(i is not None for i in inputs), plain(attributes)), inputs, types)

        FUNCTIONS[key] = function
        op(key[1], domain=domain, since=since, until=until, emit=emit)(function)
        return function

    return register


def _types(outputs: Outputs, inputs: Sequence[Value | None], attributes: dict[str, Any]) -> list[tuple[DType, int]]:
    found = outputs(*inputs, **attributes) if callable(outputs) else outputs
    first = next((i for i in inputs if i is not None), None)
    types = []
    for dtype, rank in found:
        if first is None and (dtype is None or rank is None):
            raise IRError("a callback without inputs needs the dtype and the rank of each output: outputs=[('float32', 1)]")
        if dtype is not None and dtype not in DType.__members__:
            raise IRError(f"dtype {dtype!r} of a callback's output is not known")
        types.append((first.dtype if dtype is None else DType[dtype], first.rank if rank is None else rank))  # type: ignore[union-attr]
    return types


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON can hold them; those that are None are left out."""
    for name, value in attributes.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(i, (int, float, str, type(None))) for i in items) or any(i != i or i in (_INF, -_INF) for i in items):
            raise IRError(f"attribute {name!r} of a callback must be finite numbers, texts or lists of them; give others as inputs")
    return {name: value for name, value in attributes.items() if value is not None}


_INF = float("inf")


def apply(name: str, *inputs: Value | None, domain: str = "", opset: int = 26, outputs: int = 1, **attributes: Any) -> Any:
    """Calls an operator from within one of one's own.

    Args:
        opset: version of its domain.
        outputs: how many are wanted; a tuple of more than one.
    """
    operator = find(domain, name, opset)
    if operator.takes_context:
        attributes["ctx"] = Context(opset, tuple(f"y{k}" for k in range(outputs)), name)
    result = operator.fn(*inputs, **attributes)
    results = [settled(r) for r in (result if isinstance(result, tuple) else (result,))]
    return results[0] if outputs == 1 else tuple(results[:outputs])
