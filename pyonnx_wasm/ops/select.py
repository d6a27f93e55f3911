"""What is picked by its content: how many it is shows when it was counted, then it is written."""

from __future__ import annotations

from ..dtypes import DType
from ..ir import Value, dims
from ..ir.dims import DimLike
from ..registry import Kernel, Moved, op
from ..tensor import (
    HALVES,
    axis_of,
    cast,
    concat,
    contiguous,
    dims_of,
    like,
    literal,
    map_,
    params_of,
    reduce,
    reshape,
    slice_,
    transpose,
)
from .gather import Gather

NONZERO = Kernel("nonzero", ">y x", "n count")
UNIQUE = Kernel("unique", ">first >inverse >counts >n x", "rows width sorted")
NMS = Kernel("nms", ">selected >n boxes scores", "batches classes boxes most centre overlap:f least:f")


def positions(mask: Value) -> Value:
    """Where a mask of any shape is true, as positions in the flat tensor."""
    flat = contiguous(reshape(mask, [mask.size]))
    count = dims_of(reduce("sum", cast(flat, DType.int64), [0], True), "how many elements are not zero")[0]
    y: Value = NONZERO({"y": (DType.int64, [count])}, {"x": flat}, n=mask.size, count=count)
    return y


def _mask(x: Value) -> Value:
    if x.dtype in HALVES:
        x = cast(x, DType.float32)
    return x if x.dtype is DType.bool else map_("not", map_("eq", x, like(x, 0)))


@op()
def NonZero(X: Value) -> Value:
    at = positions(_mask(reshape(X, [1]) if X.rank == 0 else X))
    rows = []
    for axis in range(max(X.rank, 1)):
        behind = literal([dims.dmax(dims.product(X.shape[axis + 1 :]), 1)])
        row = map_("div", at, behind)
        if axis:
            row = map_("mod", row, literal([dims.dmax(X.shape[axis], 1)]))
        rows.append(reshape(row, [1, at.size]))
    return concat(rows, 0)


@op()
def Compress(input: Moved, condition: Value, *, axis: int | None = None) -> Moved:
    if axis is None:
        input, axis = reshape(input, [input.size]), 0
    y: Value = Gather(input, positions(condition), axis=axis_of(axis, input.rank))
    return y


@op()
def Unique(X: Value, *, axis: int | None = None, sorted: int = 1) -> tuple[Value, Value, Value, Value]:
    at = None if axis is None else axis_of(axis, X.rank)
    x = reshape(X, [X.size]) if at is None else X
    at = at or 0
    order = [at, *[a for a in range(x.rank) if a != at]]
    keys = contiguous(transpose(cast(x, DType.float32) if x.dtype in HALVES else x, order))
    rows: DimLike = x.shape[at]
    many, one = (DType.int64, (rows,)), (DType.int64, (1,))
    first, inverse, counts, n = UNIQUE(
        {"first": many, "inverse": many, "counts": many, "n": one},
        {"x": keys},
        rows=rows,
        width=dims.product([x.shape[a] for a in order[1:]]),
        sorted=sorted,
    )
    count = dims_of(n, "how many elements differ")[0]
    first, counts = (slice_(v, 0, 0, count) for v in (first, counts))
    return Gather(x, first, axis=at), first, inverse, counts


@op()
def NonMaxSuppression(
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    batches, spatial, _ = boxes.shape
    classes = scores.shape[1]
    most: DimLike = 0
    if max_output_boxes_per_class is not None:
        most = dims.dmax(dims.dmin(dims_of(max_output_boxes_per_class, "the most boxes per class")[0], spatial), 0)
    selected, n = NMS(
        {"selected": (DType.int64, [batches * classes * most, 3]), "n": (DType.int64, [1])},
        {"boxes": contiguous(boxes), "scores": contiguous(scores)},
        batches=batches,
        classes=classes,
        boxes=spatial,
        most=most,
        centre=center_point_box,
        overlap=0.0 if iou_threshold is None else params_of(iou_threshold, "iou_threshold")[0],
        least=-float("inf") if score_threshold is None else params_of(score_threshold, "score_threshold")[0],
    )
    return slice_(selected, 0, 0, dims_of(n, "how many boxes are kept")[0])
