"""How far a result may be from what is expected: epsilons of its dtype, by operator. One table for the ONNX suite and the fuzzer.

Integers, bool, strings, floats of 8 bits and fewer, and whatever only moves, selects or compares elements are exact. The error of an
element is divided by the epsilon of its dtype and by the size that matters: its own for what computes element by element, the
largest of the output for what sums, where terms may cancel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .differential.values import Array, epsilon, finfo, is_float

DEFAULT = 4.0
GPUS = ("gpu", "webgpu")

#: They round nothing.
EXACT = frozenset(
    """
    Abs And ArgMax ArgMin ArrayFeatureExtractor Binarizer BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil
    CenterCropPad Clip Compress Concat Constant ConstantOfShape DepthToSpace Equal Expand EyeLike Flatten Floor Gather GatherElements
    GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity If IsInf IsNaN LabelEncoder Less LessOrEqual Loop Max MaxPool MaxUnpool
    Min Mod Neg NonMaxSuppression NonZero Not OneHot Optional OptionalGetElement OptionalHasElement Or Pad ReduceMax ReduceMin Relu Reshape
    ReverseSequence Round Scan Scatter SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap
    Shape Sign Size Slice SpaceToDepth Split SplitToSequence Squeeze TensorScatter ThresholdedRelu Tile TopK Transpose Trilu Unique
    Unsqueeze Where Xor
    """.split()  # noqa: SIM905
)
#: Each element is judged by its own size: these do not add up what may cancel.
ELEMENTWISE = EXACT | frozenset(
    """
    Acos Acosh Add Asin Asinh Atan Atanh Celu Cos Cosh Div Elu Erf Exp HardSigmoid HardSwish LeakyRelu Log Mul PRelu Pow Reciprocal Selu
    Shrink Sigmoid Sin Sinh Sqrt Sub Tan Tanh
    """.split()  # noqa: SIM905
)
#: The standard has these compute in float32, or writes their constants and defaults so: float64 is not defined closer than that.
FLOAT32_CONSTANTS = frozenset(
    "Adagrad Adam Attention FlexAttention Gelu GroupNormalization HardSwish LayerNormalization Momentum RMSNormalization".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Row:
    """What operators need beyond :data:`DEFAULT`, on the core and on GPUs, and the numerical reason."""

    operators: str
    core: float
    gpu: float
    why: str


TABLE = (
    Row("Elu", DEFAULT, 64, "as a function of the standard it subtracts 1 from an exponential, which cancels near 0"),
    Row("Selu", 16, 64, "as a function of the standard it subtracts gamma from gamma * exp(x), which cancels near 0"),
    Row("Resize", DEFAULT, 8, "places in x are computed in float32, and cubic weights multiply the error of a place"),
    Row("RoiAlign", 8, 8, "what the suite expects of the largest sample are the numbers of another runtime"),
)
_ROWS = {operator: row for row in TABLE for operator in row.operators.split()}

#: Cases whose expected numbers are written out with so many decimals, of another runtime's results: one of the last place is no error.
DECIMALS = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad": 4,
    "test_gridsample_bicubic": 4,
    "test_roialign_aligned_false": 4,
    "test_roialign_aligned_true": 4,
}


def epsilons(operators: Iterable[str], backend: str = "cpu") -> float:
    """For a model of these operators, each as often as it counts: the errors of one go through the others."""
    needed = [(r.gpu if backend in GPUS else r.core) if (r := _ROWS.get(o)) else DEFAULT for o in operators if o not in EXACT]
    return max(needed, default=0.0) * (1 if len(needed) <= 2 else min(len(needed), 16))


def largest(array: Array) -> float:
    """The largest finite number."""
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    with np.errstate(all="ignore"):
        sizes = np.abs(array.astype(np.float64))
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


def off(got: Array, want: Array, size: float = 0.0, flush: bool = False) -> Array:
    """How many epsilons each element is off; infinity where it may not be off at all, or where one alone is not finite.

    Args:
        got, want: of one dtype and shape; complex ones count as pairs along the last axis.
        size: of the numbers that an element came from, at least its own.
        flush: numbers below the smallest normal one may be 0.
    """
    if want.dtype.kind == "c":
        got, want = got.view(got.real.dtype), want.view(want.real.dtype)
    if not is_float(want.dtype) or want.dtype.itemsize == 1:
        same = got == want
        if is_float(want.dtype):
            same |= np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
        return np.where(same, 0.0, np.inf)
    limits, eps = finfo(want.dtype), epsilon(want.dtype)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        free = 4 * float(limits.tiny) if flush else float(limits.smallest_subnormal)
        error = np.maximum(np.abs(a - b) - free, 0) / (eps * np.maximum(np.maximum(np.abs(b), size), float(limits.tiny)))
        return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), error, np.inf))
