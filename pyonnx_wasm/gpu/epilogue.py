"""What ends a product: the switches and numbers of ``kernels/wgsl/lib/epilogue.wgsl``."""

from __future__ import annotations

from math import inf

from ..ops.matmul import ACTIVATIONS, AFTER_RESIDUAL
from . import Call


def epilogue(call: Call) -> tuple[set[str], dict[str, int | float]]:
    """The activation, whose number is that of :data:`ACTIVATIONS`, and its place; None and Relu have the bounds of a Clip."""
    number, a, b = call.act % AFTER_RESIDUAL, float(call.act_a), float(call.act_b)
    if ACTIVATIONS[number] in ("none", "relu"):
        a, b = 0.0 if ACTIVATIONS[number] == "relu" else -inf, inf
    return {"after"} if call.act > AFTER_RESIDUAL else set(), {"act": number, "act_a": a, "act_b": b}
