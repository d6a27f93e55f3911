"""Losses."""

from __future__ import annotations

from ..dtypes import DType
from ..ir import IRError, Value
from ..registry import op
from ..tensor import broadcast_to, cast, like, map_, reduce, squeeze, unsqueeze
from .gather import Gather, GatherElements
from .normalization import softmax


@op()
def NegativeLogLikelihoodLoss(
    input: Value, target: Value, weight: Value | None = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Value:
    """Minus the input at each target's class, weighted by class; a mean divides by the weights of the targets that count."""
    if reduction not in ("none", "sum", "mean"):
        raise IRError(f"reduction {reduction!r} is not one of none, sum, mean")
    classes = cast(target, DType.int64)
    ignored = None if ignore_index is None else map_("eq", classes, like(classes, ignore_index))
    if ignored is not None:
        classes = map_("where", ignored, like(classes, 0), classes)
    loss = map_("neg", squeeze(GatherElements(input, unsqueeze(classes, [1]), axis=1), [1]))
    weights = None
    if weight is not None:
        weights = Gather(weight, classes)
    elif ignored is not None:
        weights = broadcast_to(like(input, 1), classes.shape)
    if weights is not None:
        if ignored is not None:
            weights = map_("where", ignored, like(input, 0), weights)
        loss = map_("mul", loss, weights)
    axes = list(range(loss.rank))
    if reduction == "none":
        return loss
    if reduction == "sum" or weights is not None:
        total = _reduced("sum", loss, axes)
        return total if reduction == "sum" or weights is None else map_("div", total, _reduced("sum", weights, axes))
    return _reduced("mean", loss, axes)


def _reduced(name: str, x: Value, axes: list[int]) -> Value:
    if x.dtype in (DType.float16, DType.bfloat16):
        return cast(reduce(name, cast(x, DType.float32), axes), x.dtype)
    return reduce(name, x, axes)


@op()
def SoftmaxCrossEntropyLoss(
    scores: Value, labels: Value, weights: Value | None = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> tuple[Value, Value]:
    log_prob = softmax(scores, 1, log=True)
    return NegativeLogLikelihoodLoss(log_prob, labels, weights, ignore_index=ignore_index, reduction=reduction), log_prob
