"""How far a result may be from an oracle's: epsilons of its dtype, by operator."""

from __future__ import annotations

from collections.abc import Iterable

#: Each element is judged by its own size: these do not add up what may cancel.
ELEMENTWISE = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitCast",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Cast",
        "CastLike",
        "Ceil",
        "Celu",
        "Clip",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Cos",
        "Cosh",
        "DepthToSpace",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pad",
        "Pow",
        "Reciprocal",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Round",
        "Selu",
        "Shape",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)
USUAL = 8.0
_EPSILONS = {
    "exact": 0.0,
    "Acosh": 32.0, "Asinh": 32.0, "Atanh": 32.0, "Tan": 32.0, "Pow": 32.0, "Sinh": 16.0, "Cosh": 16.0, "Gelu": 64.0, "Mish": 32.0,
    "Softplus": 32.0, "Attention": 64.0, "FlexAttention": 64.0, "LSTM": 64.0, "GRU": 64.0, "RNN": 64.0, "Conv": 32.0, "ConvTranspose": 32.0,
    "MatMul": 32.0, "MatMulNBits": 32.0, "Gemm": 32.0, "FusedMatMul": 32.0, "FusedGemm": 32.0, "FusedConv": 32.0,
    "Einsum": 32.0, "DFT": 64.0, "STFT": 128.0,
    "LayerNormalization": 64.0, "InstanceNormalization": 64.0, "GroupNormalization": 64.0, "MeanVarianceNormalization": 64.0,
    "RMSNormalization": 32.0, "BatchNormalization": 32.0, "LogSoftmax": 32.0, "Softmax": 16.0,
    "ReduceLogSumExp": 32.0, "ReduceLogSum": 32.0,
    "LRN": 32.0, "LinearAttention": 128.0, "DeformConv": 64.0, "Resize": 64.0, "GridSample": 64.0, "Erf": 16.0,
    "Adam": 64.0, "Adagrad": 32.0, "Momentum": 32.0,
}  # fmt: skip


#: The standard has these compute in float32, or writes their constants and defaults so: float64 is not defined closer than that.
FLOAT32_CONSTANTS = frozenset(
    "Adagrad Adam Attention FlexAttention Gelu GroupNormalization HardSwish LayerNormalization Momentum RMSNormalization".split()  # noqa: SIM905
)


#: WGSL promises 2.5 units in the last place for a division, 3 and more for exponentials and logarithms, and rounds sums as it likes.
_GPU_SLACK = 16.0


def slack(backend: str) -> float:
    """Factor by which results of a backend may be further off."""
    return _GPU_SLACK if backend in ("gpu", "webgpu") else 1.0


def epsilons(operators: Iterable[str]) -> float:
    """For a model of these operators: errors of one go through the others."""
    named = sorted(operators)
    widest = max((_EPSILONS.get(o, USUAL) for o in named), default=USUAL)
    return widest * (1 if len(named) <= 2 else min(len(named), 16))
