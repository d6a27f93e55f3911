"""Normalisations and softmax."""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..ir import IRError, Value, dims
from ..op import Context, Kernel, op
from ..tensor import HALVES, axis_of, cast, contiguous, like, map_, reshape, unsqueeze

SOFTMAX = Kernel("softmax", ">y x", "outer n inner log")
NORM = Kernel("norm", ">y >mean? >inv_std? x scale? bias?", "rows n rms row_mod row_mul inner eps:f")


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
    from ..tensor import reduce

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


def _f32(*values: Value) -> list[Value]:
    return [cast(v, DType.float32) for v in values]


def _only_f32(x: Value) -> None:
    if x.dtype is not DType.float32 and x.dtype not in HALVES:
        raise IRError(f"{x.dtype.name} is not supported")


@op()
def LayerNormalization(
    X: Value, Scale: Value, B: Value | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, ctx: Context
) -> Any:
    _only_f32(X)
    at = axis_of(axis, X.rank)
    rows, n = dims.product(X.shape[:at]), dims.product(X.shape[at:])
    x, scale, bias = (cast(v, DType.float32) if v is not None else None for v in (X, _trailing(Scale, X, at), _trailing(B, X, at)))
    stats = (*X.shape[:at], *[1] * (X.rank - at)) if ctx.wants(1) or ctx.wants(2) else None
    got = norm(x, rows, n, epsilon, scale, bias, stats=stats)  # type: ignore[arg-type]
    return (cast(got[0], X.dtype), got[1], got[2]) if stats is not None else cast(got, X.dtype)


def _trailing(p: Value | None, x: Value, axis: int) -> Value | None:
    """A scale or bias spread over the normalised axes."""
    from ..tensor import broadcast_to

    return None if p is None else broadcast_to(p, x.shape[axis:])


@op()
def RMSNormalization(X: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    _only_f32(X)
    at = axis_of(axis, X.rank)
    y = norm(cast(X, DType.float32), dims.product(X.shape[:at]), dims.product(X.shape[at:]), epsilon, None, None, rms=True)
    return map_("mul", cast(y, X.dtype), scale)


@op("SimplifiedLayerNormalization")
def SimplifiedLayerNormalization(X: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    return RMSNormalization(X, scale, axis=axis, epsilon=epsilon)  # type: ignore[no-any-return]


@op()
def InstanceNormalization(input: Value, scale: Value, B: Value, *, epsilon: float = 1e-5, consumed_inputs: Any = None) -> Value:
    _only_f32(input)
    n, c = input.shape[:2]
    space = dims.product(input.shape[2:])
    x, s, b = _f32(input, scale, B)
    return cast(norm(x, n * c, space, epsilon, s, b, row_mod=c, row_mul=1, inner=dims.dmax(space, 1)), input.dtype)


@op(since=21)
def GroupNormalization(X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    _only_f32(X)
    n, c = X.shape[:2]
    space = dims.product(X.shape[2:])
    x, s, b = _f32(X, scale, bias)
    each = c // num_groups
    y = norm(x, n * num_groups, each * space, epsilon, s, b, row_mod=num_groups, row_mul=each, inner=dims.dmax(space, 1))
    return cast(y, X.dtype)


@op("GroupNormalization", since=18, until=20)
def GroupNormalization_18(X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5) -> Value:
    from ..tensor import broadcast_to

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
) -> Any:
    if not training_mode:
        return _batch_norm(X, scale, B, input_mean, input_var, epsilon)
    from ..tensor import reduce

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
    is_test: int = 1,
    spatial: int = 1,
    consumed_inputs: Any = None,
) -> Value:
    if not spatial:
        raise IRError("spatial=0 is not supported")
    return _batch_norm(X, scale, B, mean, var, epsilon)


@op()
def LpNormalization(input: Value, *, axis: int = -1, p: int = 2) -> Value:
    from ..tensor import reduce

    at = axis_of(axis, input.rank)
    length = map_("sqrt", reduce("sumsq", input, [at], True)) if p == 2 else reduce("sumabs", input, [at], True)
    zero = map_("eq", length, like(length, 0))
    return map_("where", zero, like(input, 0), map_("div", input, map_("where", zero, like(length, 1), length)))
