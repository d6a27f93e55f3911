"""What ends a product: the switches and numbers of ``kernels/wgsl/lib/epilogue.wgsl``."""

from __future__ import annotations

from math import inf

from ..ops.matmul import ACTIVATIONS, AFTER_RESIDUAL
from . import Call


def epilogue(call: Call) -> tuple[set[str], dict[str, float]]:
    """The activation and its place. None and Relu are Clips, so that products differ in numbers and not in text."""
    name, a, b = ACTIVATIONS[call.act % AFTER_RESIDUAL], float(call.act_a), float(call.act_b)
    if name in ("none", "relu"):
        name, a, b = "clip", -inf if name == "none" else 0.0, inf
    return {f"act_{name}"} | ({"after"} if call.act > AFTER_RESIDUAL else set()), {"act_a": a, "act_b": b}
