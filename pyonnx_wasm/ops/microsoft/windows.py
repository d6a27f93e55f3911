"""Windows of letters and of pictures: embeddings of words by convolution, maxima over what a mask leaves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Value, dims
from ...registry import op
from ...tensor import cast, concat, constant, fill, index, like, map_, reduce, reshape, slice_, unsqueeze
from ..conv import Conv, attributes, window
from ..gather import Gather
from . import MICROSOFT
from .attend import scalar, size_of

LOWEST = float(np.finfo(np.float32).min)


@op(domain=MICROSOFT)
def WordConvEmbedding(
    Sequence: Value, W: Value, B: Value, C: Value, *,
    char_embedding_size: int | None = None, conv_window_size: int | None = None, embedding_size: int | None = None,
) -> Value:  # fmt: skip
    """Words [words, letters] as vectors [words, filters]: the largest tanh of filters [filters, 1, width, size] over a word's letters.

    Letters are rows of C [letters, size]; 0 ends a word, and 0 as its first letter makes it no word: zeros.
    """
    for given, size, what in ((embedding_size, W.shape[0], "embedding_size"), (conv_window_size, W.shape[2], "conv_window_size"),
                              (char_embedding_size, C.shape[1], "char_embedding_size")):  # fmt: skip
        if given is not None and isinstance(size, int) and given != size:
            raise IRError(f"{what} is {given}, the weights have {size}")
    words, letters = Sequence.shape
    width = size_of(W.shape[2], "the width of the filters")
    if dims.ge(letters, width) != 1:
        Graph.current().check(dims.ge(letters, width), f"words of {letters} letters are shorter than the filters, which are {width} wide")
    zero = like(Sequence, 0)
    real = map_("lt", zero, Sequence)
    count = reduce("sum", cast(real, DType.int64), [1])
    first = reshape(slice_(real, 1, 0, 1), [words])
    y = map_("tanh", Conv(unsqueeze(Gather(C, Sequence), [1]), W, B))  # [words, filters, places, 1]
    y = reshape(y, y.shape[:3])
    last = map_("max", map_("sub", count, constant(np.int64(width))), constant(np.int64(0)))
    inside = map_("le", index(2, [1, 1, y.shape[2]]), unsqueeze(last, [1, 2]))
    y = reduce("max", map_("where", inside, y, like(y, -1)), [2])
    return map_("where", unsqueeze(map_("and", first, map_("lt", constant(np.int64(0)), count)), [1]), y, like(y, 0))


@op(domain=MICROSOFT)
def MaxpoolWithMask(
    X: Value, M: Value, *,
    auto_pad: str = "NOTSET", kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """Maxima over windows of [n, c, ...]: each line of a window ends at the first element whose mask [m, k, ...] is 0.

    What is masked, onnxruntime alone defines: the mask of a plane begins at its place among all elements, modulo m * k; the first
    element of a plane of two or three axes counts in any case; a window without any element gives the lowest number.
    """
    if kernel_shape is None:
        raise IRError("kernel_shape is missing")
    n = X.rank - 2
    steps, spread, edges = attributes(X.rank, kernel_shape, strides, None, pads)
    sized = [window(X.shape[2 + i], kernel_shape[i], steps[i], spread[i], edges[i], edges[i + n], auto_pad, False) for i in range(n)]
    keep = cast(_kept(X, M), DType.int32)
    x, keep = _framed(X, LOWEST, sized, kernel_shape, steps), _framed(keep, 1, sized, kernel_shape, steps)

    def part(v: Value, at: Sequence[int]) -> Value:
        for axis, (begin, (count, *_), step) in enumerate(zip(at, sized, steps, strict=True)):
            v = slice_(v, 2 + axis, begin, count, step)
        return v

    y = fill((), LOWEST, X.dtype)
    for line in itertools.product(*(range(k) for k in kernel_shape[:-1])):
        alive: Value | None = None
        for k in range(kernel_shape[-1]):
            seen = map_("eq", part(keep, [*line, k]), constant(np.int32(1)))
            alive = seen if alive is None else map_("and", alive, seen)
            value = part(x, [*line, k])
            y = map_("where", map_("and", alive, map_("lt", y, value)), value, y)
    return y


def _kept(x: Value, mask: Value) -> Value:
    """bool, as x: what the mask leaves."""
    place, lead = _flat_index(x), [*x.shape[:2], *[1] * (x.rank - 2)]
    plane = map_("add", map_("mul", index(0, lead), scalar(x.shape[1])), index(1, lead))
    first = map_("mul", plane, scalar(dims.product(x.shape[2:])))
    begin = map_("mod", first, scalar(mask.shape[0] * mask.shape[1]))
    keep = map_("not", map_("eq", Gather(reshape(mask, [mask.size]), map_("add", begin, place)), like(mask, 0)))
    return keep if x.rank == 3 else map_("or", keep, map_("eq", place, constant(np.int64(0))))


def _flat_index(x: Value) -> Value:
    """int64 [1, 1, ...]: where each element of a plane lies in it."""
    place = constant(np.int64(0))
    shape = [1, 1, *x.shape[2:]]
    for axis in range(2, x.rank):
        place = map_("add", map_("mul", place, scalar(x.shape[axis])), index(axis, shape))
    return place


def _framed(x: Value, value: float, sized: Sequence[tuple[dims.DimLike, ...]], kernel: Sequence[int], steps: Sequence[int]) -> Value:
    """With what windows cover beyond its edges."""
    for i, (count, begin, *_) in enumerate(sized):
        axis = 2 + i
        whole = (count - 1) * steps[i] + kernel[i]
        front = fill([*x.shape[:axis], begin, *x.shape[axis + 1 :]], value, x.dtype)
        behind = fill([*x.shape[:axis], dims.dmax(whole - x.shape[axis] - begin, 0), *x.shape[axis + 1 :]], value, x.dtype)
        x = concat([front, x, behind], axis)
    return x
