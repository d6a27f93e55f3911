"""Mixtures of experts: every expert runs over the tokens that chose it (com.microsoft).

Where the tokens of each expert begin is data, read once for all experts; an expert that nobody chose multiplies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import op
from ...tensor import cast, concat, constant, dims_of, fill, index, like, literal, map_, reduce, reshape, slice_, swap, unsqueeze
from ..blocks import unpacked
from ..gather import Gather, GatherElements, ScatterND
from ..matmul import matmul
from ..normalization import softmax
from ..reduction import TopK
from . import MICROSOFT
from .attend import size_of
from .blockwise import MatMulNBits

WIDE = DType.float32
ACTIVATIONS = {"relu": "relu", "gelu": "gelu_tanh", "silu": "silu", "identity": ""}
Linear = Callable[[Value, int], Value]  # rows [count, features] through the layer of an expert


class Routes:
    """Which experts each token takes, and in what order tokens stand for them.

    Attributes:
        tokens: int64 [slots]: the token of each slot, slots of one expert side by side.
        weights: float32 [slots, 1].
        counts: how many slots each expert has.
    """

    def __init__(self, router: Value, k: int, experts: int, normalise: bool, other: Value | None) -> None:
        count = router.shape[0]
        logits = cast(router, WIDE)
        chances = softmax(logits, 1)
        mirrored = slice_(logits, 1, experts - 1, experts, -1)  # of equal ones the last is taken
        _, order = TopK(mirrored, constant(np.array([k])), axis=1)
        chosen = map_("sub", constant(np.int64(experts - 1)), order)
        weights = GatherElements(chances if other is None else cast(other, WIDE), chosen, axis=1)
        if normalise:
            weights = map_("div", weights, reduce("sum", weights, [1], True))
        slots = count * k
        flat = reshape(chosen, [slots])
        _, by_expert = TopK(flat, literal([slots]), axis=0, largest=0)
        self.tokens = map_("div", by_expert, constant(np.int64(k)))
        self.weights = Gather(reshape(weights, [slots, 1]), by_expert)
        mine = map_("eq", unsqueeze(flat, [0]), reshape(index(0, [experts]), [experts, 1]))
        self.counts = dims_of(reduce("sum", cast(mine, DType.int64), [1]), "how many tokens each expert has")

    def run(self, x: Value, expert: Callable[[Value, int], Value]) -> Value:
        """The weighted sum over a token's experts; x: float32 [tokens, features]."""
        parts: list[Value] = []
        start: DimLike = 0
        for e, count in enumerate(self.counts):
            rows = Gather(x, slice_(self.tokens, 0, start, count))
            parts.append(expert(rows, e))
            start = start + count
        y = map_("mul", concat(parts, 0), self.weights)
        return ScatterND(fill(x.shape, 0, WIDE), unsqueeze(self.tokens, [1]), y, reduction="add")  # type: ignore[no-any-return]


def _swiglu(gate: Value, linear: Value, alpha: float, beta: float, limit: float) -> Value:
    if math.isfinite(limit):
        gate = map_("min", gate, like(gate, limit))
        linear = map_("clamp", linear, like(linear, -limit), like(linear, limit))
    opened = map_("mul", gate, map_("sigmoid", map_("mul", gate, like(gate, alpha))))
    return map_("mul", opened, map_("add", linear, like(linear, beta)))


def _activated(
    kind: str, fusion: int, alpha: float, beta: float, limit: float, third: Linear | None
) -> Callable[[Value, Value, int], Value]:
    """What lies between the first and the last layer of an expert: of the first layer's result and its input."""
    if kind != "swiglu" and kind not in ACTIVATIONS:
        raise IRError(f"activation_type {kind!r} is not one of {', '.join(ACTIVATIONS)}, swiglu")

    def between(y: Value, x: Value, e: int) -> Value:
        if kind != "swiglu":
            y = map_(ACTIVATIONS[kind], y) if ACTIVATIONS[kind] else y
            return y if third is None else map_("mul", y, third(x, e))
        if third is not None and not fusion:
            return _swiglu(y, third(x, e), alpha, beta, limit)
        half = y.shape[1] // 2
        if fusion == 2:
            return _swiglu(slice_(y, 1, 0, half), slice_(y, 1, half, half), alpha, beta, limit)
        return _swiglu(slice_(y, 1, 0, half, 2), slice_(y, 1, 1, half, 2), alpha, beta, limit)

    return between


def _mixture(input: Value, routes: Routes, first: Linear, second: Linear, between: Callable[[Value, Value, int], Value]) -> Value:
    x = reshape(cast(input, WIDE), [dims.product(input.shape[:-1]), input.shape[-1]])
    y = routes.run(x, lambda rows, e: second(between(first(rows, e), rows, e), e))
    return cast(reshape(y, input.shape), input.dtype)


def _expert(x: Value, e: int) -> Value:
    return reshape(slice_(x, 0, e, 1), x.shape[1:])


def _biased(y: Value, bias: Value | None, e: int) -> Value:
    return y if bias is None else map_("add", y, cast(_expert(bias, e), WIDE))


def _dense(weights: Value, bias: Value | None) -> Linear:
    """Layers [experts, out, in]."""
    return lambda x, e: _biased(matmul(x, swap(cast(_expert(weights, e), WIDE), 0, 1)), bias, e)


def _demand_plain(use_sparse_mixer: int) -> None:
    if use_sparse_mixer:
        raise IRError("use_sparse_mixer is not supported; export the model with routing by softmax and top k")


@op(domain=MICROSOFT)
def MoE(
    input: Value, router_probs: Value, fc1_experts_weights: Value, fc1_experts_bias: Value | None, fc2_experts_weights: Value,
    fc2_experts_bias: Value | None = None, fc3_experts_weights: Value | None = None, fc3_experts_bias: Value | None = None, *,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, activation_type: str = "relu", k: int = 1,
    normalize_routing_weights: int = 0, swiglu_fusion: int = 0, swiglu_limit: float = math.inf, use_sparse_mixer: int = 0,
) -> Value:  # fmt: skip
    """Tokens [..., features] through their ``k`` most likely experts [experts, out, in], weighted by softmax of the router's logits."""
    _demand_plain(use_sparse_mixer)
    experts = size_of(fc1_experts_weights.shape[0], "the number of experts")
    third = None if fc3_experts_weights is None else _dense(fc3_experts_weights, fc3_experts_bias)
    between = _activated(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, third)
    routes = Routes(router_probs, k, experts, bool(normalize_routing_weights), None)
    first, second = _dense(fc1_experts_weights, fc1_experts_bias), _dense(fc2_experts_weights, fc2_experts_bias)
    return _mixture(input, routes, first, second, between)


def _quantised(weights: Value, scales: Value | None, zero_points: Value | None, bias: Value | None, bits: int, block_size: int) -> Linear:
    """Layers of codes [experts, out, bytes], with a scale per row or per block of a row."""
    if scales is None:
        raise IRError("the scales of the experts' weights are missing")
    per = 8 // bits
    rows, width = (size_of(s, "the sizes of the experts' weights") for s in weights.shape[1:])
    size = width * per
    block = block_size
    if not block:
        block = next((b for b in (128, 64, 32, 16) if size % b == 0), 0)
        if not block:
            raise IRError(f"rows of {size} weights with one scale each are not supported (multiples of 16 are); quantise in blocks")
    blocks = size // block
    zeros = None if zero_points is None else _zero_points(zero_points, bits, rows, blocks, not block_size)

    def run(x: Value, e: int) -> Value:
        scale = cast(_expert(scales, e), WIDE)
        if not block_size:
            scale = map_("mul", reshape(scale, [rows, 1]), constant(np.ones((1, blocks), np.float32)))
        zero = None if zeros is None else _expert(zeros, e)
        codes = reshape(_expert(weights, e), [rows, blocks, block // per])
        return _biased(MatMulNBits(x, codes, scale, zero, K=size, N=rows, bits=bits, block_size=block), bias, e)

    return run


def _zero_points(packed: Value, bits: int, rows: int, blocks: int, per_row: bool) -> Value:
    """float32 [experts, rows, blocks]."""
    if not per_row:
        return cast(unpacked(packed, bits, blocks), WIDE)
    each = cast(unpacked(packed, bits, rows), WIDE)
    return map_("mul", unsqueeze(each, [2]), constant(np.ones((1, 1, blocks), np.float32)))


def _bits_of(own: Sequence[int], common: int) -> list[int]:
    found = [b or common for b in own]
    for b in found:
        if b not in (2, 4, 8):
            raise IRError(f"weights of {b} bits are not supported (2, 4 and 8 bits are)")
    return found


@op(domain=MICROSOFT)
def QMoE(
    input: Value, router_probs: Value, fc1_experts_weights: Value, fc1_scales: Value | None, fc1_experts_bias: Value | None,
    fc2_experts_weights: Value, fc2_scales: Value | None = None, fc2_experts_bias: Value | None = None,
    fc3_experts_weights: Value | None = None, fc3_scales: Value | None = None, fc3_experts_bias: Value | None = None,
    fc1_zero_points: Value | None = None, fc2_zero_points: Value | None = None, fc3_zero_points: Value | None = None,
    router_weights: Value | None = None, *,
    accuracy_level: int = 0, activation_alpha: float = 1.0, activation_beta: float = 0.0, activation_type: str = "relu",
    block_size: int = 0, expert_weight_bits: int = 4, fc1_expert_weight_bits: int = 0, fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0, k: int = 1, normalize_routing_weights: int = 0, quant_type: str = "int", swiglu_fusion: int = 0,
    swiglu_limit: float = math.inf, use_sparse_mixer: int = 0, weights_prepacked: int = -1,
) -> Value:  # fmt: skip
    """The same over weights of 2, 4 or 8 bits, which stay as they are."""
    _demand_plain(use_sparse_mixer)
    if quant_type != "int":
        raise IRError(f"quant_type {quant_type!r} is not supported; quantise the experts with quant_type 'int'")
    if weights_prepacked > 0:
        raise IRError("weights_prepacked=1 lays weights out for one machine; export the model with weights_prepacked=0")
    experts = size_of(fc1_experts_weights.shape[0], "the number of experts")
    own = _bits_of((fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits), expert_weight_bits)
    third = None
    if fc3_experts_weights is not None:
        third = _quantised(fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_experts_bias, own[2], block_size)
    between = _activated(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, third)
    normalise = bool(normalize_routing_weights) or router_weights is None  # onnxruntime does, whatever the attribute says
    routes = Routes(router_probs, k, experts, normalise, router_weights)
    first = _quantised(fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_experts_bias, own[0], block_size)
    second = _quantised(fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_experts_bias, own[1], block_size)
    return _mixture(input, routes, first, second, between)
