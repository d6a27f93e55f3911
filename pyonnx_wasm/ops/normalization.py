"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..ir import Graph, IRError, Value, dims
from ..ir.dims import DimLike
from ..registry import Context, Kernel, Step, adjoint, op
from ..tensor import axis_of, broadcast_to, cast, contiguous, like, map_, reduce, reshape, sized, squeeze, unsqueeze

SOFTMAX = Kernel("softmax", ">y x", "outer n inner log", traits=("smooth",))
NORM = Kernel("norm", ">y >mean? >inv_std? x scale? bias?", "rows n rms row_mod row_mul inner eps:f", traits=("smooth",))


def softmax(x: Value, axis: int, log: bool = False) -> Value:
    """Over one axis; computed in float32 (float64 by way of maps)."""
    if x.dtype is not DType.float32:
        if x.dtype is DType.float64:
            return _softmax_wide(x, axis, log)
        return cast(softmax(cast(x, DType.float32), axis, log), x.dtype)
    y: Value = SOFTMAX(
        {"y": (x.dtype, x.shape)},
        {"x": contiguous(x)},
        outer=dims.product(x.shape[:axis]),
        n=x.shape[axis],
        inner=dims.product(x.shape[axis + 1 :]),
        log=int(log),
    )
    return y


def _softmax_wide(x: Value, axis: int, log: bool) -> Value:
    shifted = map_("sub", x, reduce("max", x, [axis], True))
    powers = map_("exp", shifted)
    total = reduce("sum", powers, [axis], True)
    return map_("sub", shifted, map_("log", total)) if log else map_("div", powers, total)


@op(since=13)
def Softmax(input: Value, *, axis: int = -1) -> Value:
    return softmax(input, axis_of(axis, input.rank))


@op(since=13)
def LogSoftmax(input: Value, *, axis: int = -1) -> Value:
    return softmax(input, axis_of(axis, input.rank), log=True)


def _flat(x: Value, axis: int, log: bool) -> Value:
    """Before opset 13 the axes from ``axis`` on are one."""
    at = axis_of(axis, x.rank) if axis != x.rank else axis
    return reshape(softmax(reshape(x, [dims.product(x.shape[:at]), dims.product(x.shape[at:])]), 1, log), x.shape)


@op("Softmax", since=1, until=12)
def Softmax_1(input: Value, *, axis: int = 1) -> Value:
    return _flat(input, axis, False)


@op("LogSoftmax", since=1, until=12)
def LogSoftmax_1(input: Value, *, axis: int = 1) -> Value:
    return _flat(input, axis, True)


def norm(
    x: Value,
    rows: Any,
    n: Any,
    eps: float,
    scale: Value | None,
    bias: Value | None,
    *,
    rms: bool = False,
    row_mod: Any = 1,
    row_mul: Any = 0,
    inner: Any = 1,
    stats: tuple[Any, ...] | None = None,
) -> Any:
    """Rows of ``n`` neighbours normalised; with ``stats`` (their shape) also mean and inverse deviation."""
    outs: dict[str, Any] = {"y": (x.dtype, x.shape)}
    if stats is not None:
        outs |= {"mean": (x.dtype, stats), "inv_std": (x.dtype, stats)}
    ins = {"x": contiguous(x), "scale": None if scale is None else contiguous(scale), "bias": None if bias is None else contiguous(bias)}
    return NORM(outs, ins, rows=rows, n=n, rms=int(rms), row_mod=row_mod, row_mul=row_mul, inner=inner, eps=eps)


def _stage(x: Value, stash_type: int = 1) -> DType:
    """The dtype to normalise in: ``stash_type``, which is float32 or float64, or the wider one of the data."""
    if stash_type not in (DType.float32, DType.float64):
        raise IRError(f"stash_type {stash_type} is not supported (1 and 11, float32 and float64, are)")
    return DType.float64 if x.dtype is DType.float64 else DType(stash_type)


def _wide_norm(x: Value, axes: Sequence[int], epsilon: float, rms: bool = False) -> tuple[Value, Value, Value]:
    """What :func:`norm` computes, by maps and reductions, over any axes in any dtype: also mean and inverse deviation, sizes of 1 kept."""
    mean = reduce("mean", x, axes, True)
    centred = x if rms else map_("sub", x, mean)
    variance = reduce("mean", map_("mul", centred, centred), axes, True)
    inverse = map_("recip", map_("sqrt", map_("add", variance, like(x, epsilon))))
    return map_("mul", centred, inverse), mean, inverse


@op()
def LayerNormalization(
    X: Value, Scale: Value, B: Value | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, ctx: Context
) -> Any:
    wide, at = _stage(X, stash_type), axis_of(axis, X.rank)
    shape = X.shape[at:]
    scale, bias = (None if p is None else cast(_within(p, len(shape)), wide) for p in (Scale, B))
    x = cast(X, wide)
    stats = (*X.shape[:at], *[1] * (X.rank - at)) if ctx.wants(1) or ctx.wants(2) else None
    if wide is DType.float32 and all(p is None or p.rank <= len(shape) for p in (scale, bias)):
        spread = [None if p is None else broadcast_to(p, shape) for p in (scale, bias)]
        got = norm(x, dims.product(X.shape[:at]), dims.product(shape), epsilon, *spread, stats=stats)
        y, *rest = got if stats is not None else (got,)
    else:
        y, *rest = _wide_norm(x, range(at, X.rank), epsilon)
        y = map_("mul", y, broadcast_to(scale, X.shape))  # type: ignore[arg-type]
        y = y if bias is None else map_("add", y, broadcast_to(bias, X.shape))
    return (cast(y, X.dtype), *(cast(r, DType(stash_type)) for r in rest)) if stats is not None else cast(y, X.dtype)


def _within(p: Value, rank: int) -> Value:
    """A scale or bias without the leading sizes of 1 that lie outside the normalised axes."""
    outside = range(p.rank - rank)
    return squeeze(p, outside) if all(p.shape[a] == 1 for a in outside) else p


def rms_norm(x: Value, axis: int, epsilon: float, scale: Value) -> Value:
    """Rows over the axes from ``axis`` on divided by their root mean square, then scaled; all of one dtype, float32 or float64."""
    shape = x.shape[axis:]
    scale = _within(scale, len(shape))
    if x.dtype is DType.float32 and scale.rank <= len(shape):
        y: Value = norm(x, dims.product(x.shape[:axis]), dims.product(shape), epsilon, broadcast_to(scale, shape), None, rms=True)
        return y
    return map_("mul", _wide_norm(x, range(axis, x.rank), epsilon, rms=True)[0], broadcast_to(scale, x.shape))


@op()
def RMSNormalization(X: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    wide = _stage(X, stash_type)
    return cast(rms_norm(cast(X, wide), axis_of(axis, X.rank), epsilon, cast(scale, wide)), X.dtype)


@op("SimplifiedLayerNormalization")
def SimplifiedLayerNormalization(X: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    return RMSNormalization(X, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)  # type: ignore[no-any-return]


@op()
def InstanceNormalization(input: Value, scale: Value, B: Value, *, epsilon: float = 1e-5, consumed_inputs: Any = None) -> Value:
    n, c = input.shape[:2]
    return _grouped(input, n * c, sized(scale, [c], "scale"), sized(B, [c], "B"), c, 1, epsilon, _stage(input))


@op(since=21)
def GroupNormalization(X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    n, c = X.shape[:2]
    if num_groups < 1:
        raise IRError(f"num_groups {num_groups} must be positive")
    each = c // num_groups
    Graph.current().check(dims.eq(each * num_groups, c), f"{c} channels do not divide into {num_groups} groups")
    return _grouped(
        X, n * num_groups, sized(scale, [c], "scale"), sized(bias, [c], "bias"), num_groups, each, epsilon, _stage(X, stash_type)
    )


def _grouped(x: Value, rows: DimLike, scale: Value, bias: Value, row_mod: DimLike, each: DimLike, epsilon: float, wide: DType) -> Value:
    """Groups of ``each`` neighbouring channels of [n, c, ...] normalised, with a scale and a bias per channel."""
    space = dims.product(x.shape[2:])
    wanted, s, b = (cast(v, wide) for v in (x, scale, bias))
    if wide is DType.float32:
        y = norm(wanted, rows, each * space, epsilon, s, b, row_mod=row_mod, row_mul=each, inner=dims.dmax(space, 1))
    else:
        y = reshape(_wide_norm(reshape(wanted, [rows, each * space]), [1], epsilon)[0], x.shape)
        after = range(1, x.rank - 1)
        y = map_("add", map_("mul", y, unsqueeze(s, after)), unsqueeze(b, after))
    return cast(y, x.dtype)


@op("GroupNormalization", since=18, until=20)
def GroupNormalization_18(X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5) -> Value:
    each = X.shape[1] // num_groups
    per_channel = [reshape(broadcast_to(unsqueeze(p, [1]), [num_groups, each]), [X.shape[1]]) for p in (scale, bias)]
    return GroupNormalization(X, *per_channel, num_groups=num_groups, epsilon=epsilon)  # type: ignore[no-any-return]


def _batch_norm(X: Value, scale: Value, B: Value, mean: Value, var: Value, epsilon: float) -> Value:
    """As one factor and one term per channel, so that constants fold into a convolution before it."""
    wide = DType.float64 if X.dtype is DType.float64 else DType.float32
    x, s, b, m, v = (cast(t, wide) for t in (X, scale, B, mean, var))
    factor = map_("div", s, map_("sqrt", map_("add", v, like(v, epsilon))))
    term = map_("sub", b, map_("mul", m, factor))
    after = list(range(1, X.rank - 1)) if X.rank > 1 else []
    return cast(map_("add", map_("mul", x, unsqueeze(factor, after)), unsqueeze(term, after)), X.dtype)


@op(since=9)
def BatchNormalization(
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    ctx: Context,
) -> Any:
    if ctx.opset < 14 and any(ctx.wants(k) for k in range(1, 5)):
        raise IRError("the outputs of training are not supported before opset 14; export the model for inference")
    if not training_mode:
        return _batch_norm(X, scale, B, input_mean, input_var, epsilon)
    axes = [a for a in range(X.rank) if a != 1]
    mean = reduce("mean", X, axes)
    centred = map_("sub", X, unsqueeze(mean, list(range(1, X.rank - 1))))
    var = reduce("mean", map_("mul", centred, centred), axes)
    y = _batch_norm(X, scale, B, mean, var, epsilon)

    def running(old: Value, new: Value) -> Value:
        return map_("add", map_("mul", old, like(old, momentum)), map_("mul", new, like(new, 1 - momentum)))

    return y, running(input_mean, mean), running(input_var, var)


@op("BatchNormalization", since=1, until=8)
def BatchNormalization_1(
    X: Value,
    scale: Value,
    B: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_test: int = 0,
    spatial: int = 1,
    consumed_inputs: Any = None,
    ctx: Context,
) -> Value:
    """The form for inference: what says so is ``is_test`` before opset 7, from then on that Y alone is wanted."""
    if not spatial:
        raise IRError("spatial=0 is not supported")
    if any(ctx.wants(k) for k in range(1, 5)) or (ctx.opset < 7 and not is_test):
        raise IRError("training mode (is_test=0) is not supported; export the model for inference")
    return _batch_norm(X, scale, B, mean, var, epsilon)


@op()
def LpNormalization(input: Value, *, axis: int = -1, p: int = 2) -> Value:
    """Of what is divided by its largest element first: the squares and sums of any numbers then stay in their dtype."""
    at = axis_of(axis, input.rank)
    largest = reduce("max", map_("abs", input), [at], True)
    zero = map_("eq", largest, like(largest, 0))
    plain = map_("or", zero, map_("eq", largest, like(largest, float("inf"))))
    scaled = map_("div", input, map_("where", plain, like(largest, 1), largest))
    length = map_("sqrt", reduce("sumsq", scaled, [at], True)) if p == 2 else reduce("sumabs", scaled, [at], True)
    return map_("where", zero, like(input, 0), map_("div", scaled, map_("where", zero, like(length, 1), length)))


@adjoint("Softmax", "LogSoftmax")
def _back_softmax(step: Step) -> list[Value | None]:
    if step.opset < 13:
        raise IRError("before opset 13 its axes from one on are one")
    y, axes = step.outputs[0], [axis_of(step.attrs.get("axis", -1), step.grad.rank)]
    if step.name == "Softmax":
        total = reduce("sum", map_("mul", step.grad, y), axes, True)
        return [map_("mul", y, map_("sub", step.grad, total))]
    return [map_("sub", step.grad, map_("mul", map_("exp", y), reduce("sum", step.grad, axes, True)))]
