"""Steps of optimisers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..dtypes import DType
from ..ir import IRError, Value
from ..registry import op
from ..tensor import cast, constant, like, map_, reshape

DOMAIN = "ai.onnx.preview.training"


def _each(inputs: tuple[Value, ...], states: int, step: Callable[..., tuple[Value, ...]]) -> tuple[Value, ...]:
    """Inputs are R, T, then all X, all G and all of each state; outputs all new X, then all of each new state."""
    rate, time, *tensors = inputs
    if len(tensors) % (2 + states):
        raise IRError(f"{len(tensors)} tensors are no whole number of groups of {2 + states}")
    n = len(tensors) // (2 + states)
    results = [step(reshape(rate, ()), reshape(time, ()), *tensors[i::n]) for i in range(n)]
    return tuple(r[k] for k in range(1 + states) for r in results)


def _regularised(x: Value, g: Value, norm: float) -> Value:
    return map_("add", g, map_("mul", x, like(x, norm))) if norm else g


@op(domain=DOMAIN)
def Adagrad(*inputs: Value, decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0) -> tuple[Value, ...]:
    """Duchi et al. (2011)."""

    def step(r: Value, t: Value, x: Value, g: Value, h: Value) -> tuple[Value, ...]:
        steps = cast(t, x.dtype)
        rate = map_("div", cast(r, x.dtype), map_("add", like(x, 1), map_("mul", steps, like(x, decay_factor))))
        g = _regularised(x, g, norm_coefficient)
        h = map_("add", h, map_("mul", g, g))
        scaled = map_("div", map_("mul", rate, g), map_("add", map_("sqrt", h), like(x, epsilon)))
        return map_("sub", x, scaled), h

    return _each(inputs, 1, step)


def _unlike(base: float, steps: Value) -> Value:
    """1 - base^steps, steps > 0; through exp(x) - 1 for a base just below 1, whose power leaves few digits of the difference."""
    if 0 < base < 1:
        return map_("neg", map_("elu", map_("mul", steps, like(steps, math.log(base))), like(steps, 1)))
    return map_("sub", like(steps, 1), map_("pow", like(steps, base), steps))


@op(domain=DOMAIN)
def Adam(
    *inputs: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Value, ...]:
    """Kingma and Ba (2015); the first step (T = 0) is not corrected for bias."""

    def step(r: Value, t: Value, x: Value, g: Value, v: Value, h: Value) -> tuple[Value, ...]:
        g = _regularised(x, g, norm_coefficient)
        v = map_("add", map_("mul", v, like(x, alpha)), map_("mul", g, like(x, 1 - alpha)))
        h = map_("add", map_("mul", h, like(x, beta)), map_("mul", map_("mul", g, g), like(x, 1 - beta)))
        powers = [_unlike(b, cast(t, x.dtype)) for b in (beta, alpha)]
        corrected = map_("div", map_("sqrt", powers[0]), powers[1])
        rate = map_("mul", cast(r, x.dtype), map_("where", map_("lt", constant(np.int64(0)), t), corrected, like(x, 1)))
        new = map_("sub", x, map_("div", map_("mul", rate, v), map_("add", map_("sqrt", h), like(x, epsilon))))
        return map_("mul", new, like(x, 1 - norm_coefficient_post)) if norm_coefficient_post else new, v, h

    return _each(inputs, 2, step)


@op(domain=DOMAIN)
def Momentum(*inputs: Value, alpha: float, beta: float, mode: str, norm_coefficient: float) -> tuple[Value, ...]:
    """Gradient descent with a velocity; ``nesterov`` looks one step ahead. The first step (T = 0) takes the whole gradient."""
    if mode not in ("standard", "nesterov"):
        raise IRError(f"mode {mode!r} is not one of standard, nesterov")

    def step(r: Value, t: Value, x: Value, g: Value, v: Value) -> tuple[Value, ...]:
        g = _regularised(x, g, norm_coefficient)
        share = map_("where", map_("lt", constant(np.int64(0)), cast(t, DType.int64)), like(x, beta), like(x, 1))
        v = map_("add", map_("mul", v, like(x, alpha)), map_("mul", share, g))
        move = map_("add", g, map_("mul", v, like(x, alpha))) if mode == "nesterov" else v
        return map_("sub", x, map_("mul", cast(r, x.dtype), move)), v

    return _each(inputs, 1, step)
