"""What ends a product: the switches and numbers of ``kernels/wgsl/lib/epilogue.wgsl``."""

from __future__ import annotations

from math import inf

from ..ops.matmul import ACTIVATIONS, AFTER_RESIDUAL
from . import Call

NUMBERED = ("clip", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "leaky_relu", "hardsigmoid", "hardswish", "elu")


def epilogue(call: Call) -> tuple[set[str], dict[str, int | float]]:
    """The activation, with None and Relu as Clips, and its place."""
    name, a, b = ACTIVATIONS[call.act % AFTER_RESIDUAL], float(call.act_a), float(call.act_b)
    if name in ("none", "relu"):
        name, a, b = "clip", -inf if name == "none" else 0.0, inf
    numbers = {"act": NUMBERED.index(name), "act_a": a, "act_b": b}
    return {"after"} if call.act > AFTER_RESIDUAL else set(), numbers
