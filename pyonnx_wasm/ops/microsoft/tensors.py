"""Tensor operators of com.microsoft that the standard has under another name, later, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...registry import Context, op
from ...tensor import (
    HALVES,
    axis_of,
    broadcast_to,
    cast,
    concat,
    constant,
    contiguous,
    dims_of,
    fill,
    index,
    like,
    map_,
    reduce,
    reshape,
    slice_,
    split,
    transpose,
    unsqueeze,
)
from ...tensor.packed import bitcast
from ..gather import Gather, GatherElements, GatherND, ScatterElements
from ..loops import run_steps
from ..matmul import matmul
from ..reduction import ArgMax
from ..select import Unique, positions
from ..shape import Pad, Range, Trilu
from ..signal import dft
from ..vision import GridSample
from . import MICROSOFT
from .attend import scalar


@op(domain=MICROSOFT)
def CDist(A: Value, B: Value, *, metric: str = "sqeuclidean") -> Value:
    """Distances of the rows of A [m, n] from those of B [k, n]."""
    if metric not in ("euclidean", "sqeuclidean"):
        raise IRError(f"metric {metric!r} is not supported (euclidean and sqeuclidean are)")
    apart = map_("sub", unsqueeze(A, [1]), unsqueeze(B, [0]))
    square = reduce("sum", map_("mul", apart, apart), [2])
    return map_("sqrt", square) if metric == "euclidean" else square


@op(domain=MICROSOFT)
def Inverse(X: Value, *, ctx: Context) -> Value:
    """Inverses of matrices [..., n, n] by Gauss-Jordan elimination with partial pivots, a column per step."""
    if X.dtype in HALVES:
        return cast(Inverse(cast(X, DType.float32), ctx=ctx), X.dtype)
    batch, n = dims.product(X.shape[:-2]), X.shape[-1]
    row = index(1, [1, n, 1])
    unit = cast(map_("eq", index(0, [n, n]), index(1, [n, n])), X.dtype)
    both = concat([reshape(X, [batch, n, n]), broadcast_to(unit, [batch, n, n])], 2)

    def cell(state: Sequence[Value], parts: Sequence[Value], fixed: Sequence[Value | None]) -> tuple[list[Value], list[Value]]:
        (m,), (at,), (rows,) = state, parts, fixed
        assert rows is not None
        size = map_("abs", Gather(m, reshape(at, [1]), axis=2))
        below = map_("le", at, rows)
        pivot = cast(ArgMax(map_("where", below, size, like(size, -1)), axis=1), DType.int64)
        origin = map_("where", map_("eq", rows, at), pivot, map_("where", map_("eq", rows, pivot), at, rows))
        m = GatherElements(m, contiguous(broadcast_to(origin, m.shape)), axis=1)
        column, line = Gather(m, reshape(at, [1]), axis=2), Gather(m, reshape(at, [1]), axis=1)
        line = map_("div", line, Gather(line, reshape(at, [1]), axis=2))
        return [map_("where", map_("eq", rows, at), line, map_("sub", m, map_("mul", column, line)))], []

    (done,), _ = run_steps(ctx, n, [both], [(index(0, [n]), 0)], [row], cell)
    return reshape(slice_(done, 2, n, n), X.shape)


@op(domain=MICROSOFT)
def ExpandDims(X: Value, axis: Value) -> Value:
    """A size of 1 at an axis of the result; it must be known when the model is compiled."""
    (at,) = dims_of(axis, "axis")
    if not isinstance(at, int):
        raise IRError("axis must be known when the model is compiled; make it a constant")
    return unsqueeze(X, [at])


@op("Trilu", domain=MICROSOFT)
def Trilu_ms(X: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    return Trilu(X, k, upper=upper)  # type: ignore[no-any-return]


@op("Range", domain=MICROSOFT)
def Range_ms(start: Value, limit: Value, delta: Value | None = None) -> Value:
    return Range(start, limit, like(start, 1) if delta is None else delta)  # type: ignore[no-any-return]


@op("GatherND", domain=MICROSOFT)
def GatherND_ms(data: Value, indices: Value) -> Value:
    return GatherND(data, indices)  # type: ignore[no-any-return]


@op("Pad", domain=MICROSOFT)
def Pad_ms(data: Value, pads: Value, value: Value | None = None, *, mode: str = "constant") -> Value:
    """The standard's, with pads that may be a matrix of one row."""
    return Pad(data, reshape(pads, [pads.size]), None if value is None else reshape(value, ()), mode=mode)  # type: ignore[no-any-return]


@op("Unique", domain=MICROSOFT)
def Unique_ms(x: Value) -> tuple[Value, Value, Value]:
    """What differs in a vector, as it is first met."""
    values, _, inverse, counts = Unique(x, sorted=0)
    return values, inverse, counts


@op("GridSample", domain=MICROSOFT)
def GridSample_ms(X: Value, Grid: Value, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros") -> Value:
    modes = {"bilinear": "linear", "bicubic": "cubic"}
    y: Value = GridSample(X, Grid, align_corners=align_corners, mode=modes.get(mode, mode), padding_mode=padding_mode)
    return y


@op(domain=MICROSOFT)
def SampleOp(X: Value) -> Value:
    """X as it is."""
    return X


@op(domain=MICROSOFT)
def TorchEmbedding(weight: Value, indices: Value, padding_idx: Value | None = None, scale_grad_by_freq: Value | None = None) -> Value:
    """Rows of a table; the other inputs say what training does."""
    return Gather(weight, indices)  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def UnfoldTensor(input: Value, *, dim: int = -1, size: int, step: int = 1) -> Value:
    """Windows of ``size`` elements of an axis, a step apart, along a new last axis."""
    at = axis_of(dim, input.rank, "dim")
    count = (input.shape[at] - size) // step + 1
    slice_(input, at, 0, size)
    shape, strides = list(input.shape), list(input.strides)
    shape[at], strides[at] = count, input.strides[at] * step
    return input.view([*shape, size], input.offset, [*strides, input.strides[at]])


def _complex_product(a: Value, b: Value, conjugate: bool) -> Value:
    """The last axis holds real and imaginary parts."""
    (ar, ai), (br, bi) = (split(x, x.rank - 1, [1, 1]) for x in (a, b))
    bi = map_("neg", bi) if conjugate else bi
    real = map_("sub", map_("mul", ar, br), map_("mul", ai, bi))
    imaginary = map_("add", map_("mul", ar, bi), map_("mul", ai, br))
    return concat([real, imaginary], real.rank - 1)


@op(domain=MICROSOFT)
def ComplexMul(A: Value, B: Value) -> Value:
    return _complex_product(A, B, False)


@op(domain=MICROSOFT)
def ComplexMulConj(A: Value, B: Value) -> Value:
    """A times the conjugate of B."""
    return _complex_product(A, B, True)


def _one_signal_axis(onesided: int, normalized: int, signal_ndim: int) -> None:
    if not onesided or normalized or signal_ndim != 1:
        raise IRError("onesided must be 1, normalized 0 and signal_ndim 1; export a DFT of the standard for others")


@op(domain=MICROSOFT)
def Rfft(X: Value, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> Value:
    """[..., n] as the first half of its spectrum, [..., n // 2 + 1, 2]."""
    _one_signal_axis(onesided, normalized, signal_ndim)
    return dft(unsqueeze(X, [X.rank]), X.rank - 1, onesided=True)


@op(domain=MICROSOFT)
def Irfft(X: Value, *, normalized: int = 0, onesided: int = 1, signal_ndim: int) -> Value:
    """The real signal [..., 2 (m - 1)] of half a spectrum [..., m, 2]."""
    _one_signal_axis(onesided, normalized, signal_ndim)
    y = dft(X, X.rank - 2, inverse=True, onesided=True)
    return reshape(y, y.shape[:-1])


@op(domain=MICROSOFT)
def CropAndResize(
    X: Value, rois: Value, batch_indices: Value, crop_size: Value, *, extrapolation_value: float = 0.0, mode: str = "bilinear"
) -> Value:
    """Boxes [y1, x1, y2, x2] of images, in parts of their height and width, sampled at a common size with corners on corners."""
    if mode not in ("bilinear", "nearest"):
        raise IRError(f"mode {mode!r} is not bilinear or nearest")
    wide = DType.float32 if X.dtype in HALVES else X.dtype
    crop = dims_of(crop_size, "crop_size")
    boxes, count = cast(rois, wide), rois.shape[0]
    places: list[Value] = []
    for axis in (0, 1):
        first, last = (slice_(boxes, 1, axis + k, 1) for k in (0, 2))
        reach = cast(scalar(X.shape[2 + axis] - 1), wide)
        steps, single = cast(scalar(crop[axis] - 1), wide), map_("le", scalar(crop[axis]), constant(np.int64(1)))
        pace = map_("div", map_("mul", map_("sub", last, first), reach), map_("max", steps, like(steps, 1)))
        spread = map_("add", map_("mul", first, reach), map_("mul", cast(index(1, [1, crop[axis]]), wide), pace))
        middle = map_("mul", map_("mul", map_("add", first, last), reach), like(reach, 0.5))
        places.append(map_("where", single, middle, spread))
    ys, xs = unsqueeze(places[0], [2]), unsqueeze(places[1], [1])
    shape = [count, crop[0], crop[1]]
    images = transpose(cast(X, wide), [0, 2, 3, 1])
    image = unsqueeze(cast(batch_indices, DType.int64), [1, 2])

    def inside(at: Value, axis: int) -> Value:
        return map_("and", map_("le", like(at, 0), at), map_("le", at, cast(scalar(X.shape[2 + axis] - 1), wide)))

    def pixel(y: Value, x: Value) -> Value:
        most = [scalar(s - 1) for s in X.shape[2:]]
        zero = constant(np.int64(0))
        parts = [image, *(map_("clamp", cast(p, DType.int64), zero, m) for p, m in zip((y, x), most, strict=True))]
        return GatherND(images, concat([unsqueeze(broadcast_to(p, shape), [3]) for p in parts], 3))  # type: ignore[no-any-return]

    if mode == "nearest":
        half = like(ys, 0.5)
        y = pixel(map_("floor", map_("add", ys, half)), map_("floor", map_("add", xs, half)))
    else:
        top, left = map_("floor", ys), map_("floor", xs)
        below, right = (unsqueeze(map_("sub", p, f), [3]) for p, f in ((ys, top), (xs, left)))
        one = like(ys, 1)
        rows = []
        for line in (top, map_("add", top, one)):
            a, b = pixel(line, left), pixel(line, map_("add", left, one))
            rows.append(map_("add", a, map_("mul", map_("sub", b, a), right)))
        y = map_("add", rows[0], map_("mul", map_("sub", rows[1], rows[0]), below))
    seen = unsqueeze(map_("and", inside(ys, 0), inside(xs, 1)), [3])
    return cast(transpose(map_("where", seen, y, like(y, extrapolation_value)), [0, 3, 1, 2]), X.dtype)


@op(domain=MICROSOFT)
def NGramRepeatBlock(input_ids: Value, scores: Value, *, ngram_size: int) -> Value:
    """-inf for tokens that would repeat a run of ``ngram_size`` tokens of the row."""
    return repeats(input_ids, scores, ngram_size, -np.inf)


def repeats(input_ids: Value, scores: Value, ngram_size: int, refused: float) -> Value:
    """Scores where those of tokens that would repeat a run of tokens of the row are another number."""
    batch, length = input_ids.shape
    known = ngram_size - 1
    count = dims.dmax(length - known, 0)
    ids = contiguous(input_ids)
    room = concat([ids, fill([batch, ngram_size], -1, ids.dtype)], 1)
    windows = room.view([batch, count, known], room.offset, [room.strides[0], room.strides[1], room.strides[1]])
    tail = slice_(room, 1, dims.dmax(length - known, 0), known)
    differs = cast(map_("not", map_("eq", windows, unsqueeze(tail, [1]))), DType.int32)
    again = map_("eq", reduce("sum", differs, [2]), constant(np.int32(0)))
    tokens = slice_(room, 1, known, count)
    wanted = map_("where", map_("lt", tokens, like(tokens, 0)), like(tokens, 0), tokens)
    again = map_("and", again, map_("le", like(tokens, 0), tokens))
    updates = map_("where", again, like(scores, refused), like(scores, np.inf))
    return ScatterElements(scores, wanted, contiguous(updates), axis=1, reduction="min")  # type: ignore[no-any-return]


@op(domain=MICROSOFT)
def MurmurHash3(X: Value, *, positive: int = 1, seed: int = 0) -> Value:
    """MurmurHash3_x86_32 (Appleby) of each number's bytes."""
    if X.dtype.bits not in (32, 64):
        raise IRError(f"hashes of {X.dtype.name} are not supported (32- and 64-bit numbers are)")
    bits = bitcast(contiguous(X), DType.uint32 if X.dtype.bits == 32 else DType.uint64)
    words = [bits] if X.dtype.bits == 32 else [cast(bits, DType.uint32), cast(map_("shr", bits, like(bits, 32)), DType.uint32)]

    def number(value: int) -> Value:
        return constant(np.uint32(value))

    def turned(x: Value, by: int) -> Value:
        return map_("bitor", map_("shl", x, number(by)), map_("shr", x, number(32 - by)))

    h = fill(X.shape, seed & 0xFFFFFFFF, DType.uint32)
    for word in words:
        k = map_("mul", turned(map_("mul", word, number(0xCC9E2D51)), 15), number(0x1B873593))
        h = map_("add", map_("mul", turned(map_("bitxor", h, k), 13), number(5)), number(0xE6546B64))
    h = map_("bitxor", h, number(4 * len(words)))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = map_("mul", map_("bitxor", h, map_("shr", h, number(shift))), number(factor))
    h = map_("bitxor", h, map_("shr", h, number(16)))
    return h if positive else cast(h, DType.int32)


@op(domain=MICROSOFT)
def RelativePositionBias(
    bias_table: Value, query_length: Value, key_length: Value, *, is_bidirectional: int = 0, max_distance: int
) -> Value:
    """The biases of T5, [1, heads, queries, keys], from a table that lies as [heads, buckets]."""
    buckets, heads = bias_table.shape
    if not isinstance(buckets, int):
        raise IRError(f"the number of buckets must be known when the model is compiled, it is {buckets}")
    (queries,), (keys,) = dims_of(query_length, "query_length"), dims_of(key_length, "key_length")
    ahead = map_("sub", index(1, [queries, keys]), index(0, [queries, keys]))
    zero = constant(np.int64(0))
    base, count = zero, buckets
    if is_bidirectional:
        count = buckets // 2
        base, distance = map_("mul", cast(map_("lt", zero, ahead), DType.int64), constant(np.int64(count))), map_("abs", ahead)
    else:
        distance = map_("max", map_("neg", ahead), zero)
    exact = count // 2
    far = map_("log", map_("div", cast(map_("max", distance, constant(np.int64(1))), DType.float32), constant(np.float32(exact))))
    far = map_("mul", map_("div", far, constant(np.float32(np.log(max_distance / exact)))), constant(np.float32(count - exact)))
    large = map_("min", map_("add", cast(far, DType.int64), constant(np.int64(exact))), constant(np.int64(count - 1)))
    bucket = map_("add", base, map_("where", map_("lt", distance, constant(np.int64(exact))), distance, large))
    return unsqueeze(Gather(reshape(bias_table, [heads, buckets]), bucket, axis=1), [0])


@op(domain=MICROSOFT)
def GatedRelativePositionBias(
    query_layer: Value, query_bias: Value, rel_pos: Value, weight: Value, bias: Value, eco_a: Value, token_offset: Value | None = None, *,
    num_heads: int,
) -> Value:  # fmt: skip
    """The bias of WavLM: a relative position bias, times what two gates make of the queries."""
    from ..transformer import heads_first
    from .attention import RestorePadding

    if token_offset is not None:
        query_layer = RestorePadding(query_layer, token_offset)
    q = heads_first(map_("add", query_layer, query_bias), num_heads, "query_layer")
    u = map_("add", matmul(q, weight), bias)
    half = u.shape[3] // 2
    both = map_("sigmoid", reduce("sum", reshape(u, [*u.shape[:3], 2, half]), [4]))
    gate, reset = split(both, 3, [1, 1])
    one, two = like(gate, 1), like(gate, 2)
    factor = map_("add", map_("mul", gate, map_("sub", map_("mul", reset, eco_a), one)), two)
    return map_("mul", factor, rel_pos)


@op(domain=MICROSOFT)
def RemovePadding(input: Value, sequence_token_count: Value) -> tuple[Value, ...]:
    """The tokens of [batch, length, hidden], padded to the right, without padding; offsets of tokens and then of padding."""
    batch, length, hidden = input.shape
    counts = cast(sequence_token_count, DType.int64)
    real = map_("lt", index(1, [batch, length]), unsqueeze(counts, [1]))
    tokens, rest = positions(real), positions(map_("not", real))
    output = Gather(reshape(input, [batch * length, hidden]), tokens)
    offsets = reshape(cast(concat([tokens, rest], 0), DType.int32), [batch, length])
    before = cast(map_("lt", index(1, [batch + 1, batch]), index(0, [batch + 1, batch])), DType.int64)
    sums = reduce("sum", map_("mul", before, unsqueeze(counts, [0])), [1])
    return output, offsets, cast(sums, DType.int32), cast(reduce("max", counts, [0], True), DType.int32)


@op(until=9)
def Crop(input: Value, *, border: Sequence[int], scale: Sequence[int] | None = None) -> Value:
    """Images [n, c, h, w] without a border (left, top, right, bottom), or what lies behind its corner of a height and width."""
    if len(border) != 4:
        raise IRError(f"border {list(border)} must be left, top, right and bottom")
    left, top, right, bottom = border
    height, width = list(scale) if scale else [input.shape[2] - top - bottom, input.shape[3] - left - right]
    return slice_(slice_(input, 2, top, height), 3, left, width)


@op(until=9)
def ImageScaler(input: Value, *, bias: Sequence[float] = (), scale: float = 1.0) -> Value:
    """Images [n, c, h, w] times a factor, plus a number per channel."""
    y = map_("mul", input, like(input, scale))
    return map_("add", y, constant(np.array(bias, np.float32).reshape(-1, 1, 1), DType.float32)) if bias else y
