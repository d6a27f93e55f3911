"""The vocabulary that operators are written in: views, constants, element-wise maps, copies, reductions.

Everything takes and returns :class:`~pyonnx_wasm.ir.Value`; views cost nothing. Here live the kernels that most operators share, the
others in the operator family that brings them. Strings are in ``strings``. It imports ``ir``, ``registry`` and ``dtypes``. An
element-wise instruction is added as a row of ``scalar``'s table, in ``map_ops.h`` and in ``gpu/kernels/map.py``.
"""

from . import strings
from .ask import dims_of, floats_of, is_known, params_of
from .axes import around, axes_of, chosen, parted, pick, squeeze_data, summed_to, unsqueeze_data, without
from .concat import CONCAT, concat
from .content import CONTENT_LIMIT, constant, content, knowing, single
from .literal import LITERAL, literal
from .map import HALVES, MAP, cast, index, like, map_
from .reduce import REDUCE, REDUCTIONS, reduce
from .views import (
    COPY,
    MAX_RANK,
    axis_of,
    between,
    between_data,
    broadcast,
    broadcast_shapes,
    broadcast_to,
    coalesced,
    contiguous,
    expand,
    fill,
    reshape,
    same_view,
    sized,
    slice_,
    split,
    split_strides,
    squeeze,
    swap,
    transpose,
    unsqueeze,
)

__all__ = [
    "CONCAT",
    "CONTENT_LIMIT",
    "COPY",
    "HALVES",
    "LITERAL",
    "MAP",
    "MAX_RANK",
    "REDUCE",
    "REDUCTIONS",
    "around",
    "axes_of",
    "axis_of",
    "between",
    "between_data",
    "broadcast",
    "broadcast_shapes",
    "broadcast_to",
    "cast",
    "chosen",
    "coalesced",
    "concat",
    "constant",
    "content",
    "contiguous",
    "dims_of",
    "expand",
    "fill",
    "floats_of",
    "index",
    "is_known",
    "knowing",
    "like",
    "literal",
    "map_",
    "params_of",
    "parted",
    "pick",
    "reduce",
    "reshape",
    "same_view",
    "single",
    "sized",
    "slice_",
    "split",
    "split_strides",
    "squeeze",
    "squeeze_data",
    "strings",
    "summed_to",
    "swap",
    "transpose",
    "unsqueeze",
    "unsqueeze_data",
    "without",
]
