"""What is known to be refused or to differ, and why. Strict: each entry has an example, and a test holds it to its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sketch import Case


@dataclass(frozen=True)
class Known:
    """A finding that is expected.

    Attributes:
        operator: some node of the model has this type; empty: any.
        status: ``refused``, ``failed`` or ``wrong``.
        text: regular expression of the error or of the difference.
        why: the reason that it stays.
        example: a model in onnx's text form that shows it.
    """

    operator: str
    status: str
    text: str
    why: str
    example: str


def example(entry: Known) -> Case:
    """The case of an entry's example, fed ones; symbols are 2, but ``one`` is 1 and ``none`` is 0."""
    import numpy as np
    from onnx import helper, parser

    from .sketch import Case

    model = parser.parse_model(entry.example)
    stored = {t.name for t in model.graph.initializer}

    def sizes(info: Any) -> list[int]:
        return [d.dim_value or {"none": 0, "one": 1}.get(d.dim_param, 2) for d in info.type.tensor_type.shape.dim]

    feeds = {
        i.name: np.ones(sizes(i), helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type))
        for i in model.graph.input
        if i.name not in stored
    }
    return Case(entry.operator, model, (feeds,))


KNOWN: tuple[Known, ...] = (
    Known(
        "",
        "refused",
        r"dtype complex\d+ is not supported",
        "complex numbers have no kernels",
        '<ir_version: 10, opset_import: ["" : 20]> g (complex64[2] x) => (y) { y = Identity(x) }',
    ),
    Known(
        "",
        "refused",
        r"\bfloat6e\dm\d",
        "floats of six bits have no kernels",
        '<ir_version: 13, opset_import: ["" : 28]> g (float[2] x) => (y) { y = Cast<to = 28>(x) }',
    ),
    Known(
        "",
        "refused",
        r"\w+ of (float4|u?int[24])\w* is not supported; insert a Cast",
        "elements narrower than a byte are moved, cast and quantised, nothing else",
        '<ir_version: 13, opset_import: ["" : 26]> g (float4e2m1[2,3] x, float4e2m1[2,1] u) => (y) { y = TensorScatter<axis = 1>(x, u) }',
    ),
    Known(
        "",
        "refused",
        r"the number of heads must be known",
        "how queries share keys is decided when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 23]> g '
        "(float[1,h,2,4] q, float[1,2,2,4] k, float[1,2,2,4] v) => (y) { y = Attention(q, k, v) }",
    ),
    Known(
        "",
        "refused",
        r"the head size must be known",
        "the scale of attention and the halves of a rotation are decided when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 23]> g '
        "(float[1,1,2,d] q, float[1,1,2,2] k, float[1,1,2,2] v) => (y) { y = Attention(q, k, v) }",
    ),
    Known(
        "CausalConvWithState",
        "refused",
        r"must be known when the model is compiled",
        "the weights of a depthwise convolution are laid out when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 27]> g (float[1,c,4] x, float[2,1,2] w) => (y, s) { y, s = CausalConvWithState(x, w) }',
    ),
    Known(
        "",
        "refused",
        r"how many numbers it holds must be known",
        "the rank of what it names is decided when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x, int64[n] s) => (y) { y = Expand(x, s) }',
    ),
    Known(
        "",
        "refused",
        r"how many axes are given must be known",
        "the rank of what it gives is decided when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x, int64[one] a) => (y) { y = Unsqueeze(x, a) }',
    ),
    Known(
        "Squeeze",
        "failed",
        r"axis \d+ has size 1 in this run and would vanish",
        "the rank of what it gives is decided when the model is compiled; the error says what to give",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,one] x) => (y) { y = Squeeze(x) }',
    ),
    Known(
        "Scan",
        "refused",
        r"the length of the scanned axis must be known",
        "before opset 9 each element of the batch is a scan of its own; they are laid out when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 8]> g (float[b,2] s, float[b,3,2] x) => (t, y) { '
        "t, y = Scan<num_scan_inputs = 1, body = step (float[2] c, float[2] i) => (float[2] d, float[2] e) { d = Add(c, i) e = Neg(d) }>"
        '("", s, x) }',
    ),
    Known(
        "",
        "refused",
        r"the last size of indices .* must be known",
        "how many axes are indexed is decided when the model is compiled",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x, int64[1,k] i) => (y) { y = GatherND(x, i) }',
    ),
    Known(
        "",
        "refused",
        r"the kernel's sizes must be known",
        "windows and paddings are decided when the model is compiled; the error says what to give",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[1,1,4,4] x, float[1,1,k,k] w) => (y) { y = Conv(x, w) }',
    ),
    Known(
        "Det",
        "refused",
        r"determinants of",
        "determinants are written out, for matrices up to 3 by 3",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[4,4] x) => (y) { y = Det(x) }',
    ),
    Known(
        "RoiAlign",
        "refused",
        r"sampling_ratio=0",
        "as many samples as a region is large",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[1,1,4,4] x, float[1,4] r, int64[1] b) => (y) { y = RoiAlign(x, r, b) }',
    ),
    Known(
        "BitCast",
        "refused",
        r"bit casts of",
        "bits of elements that are narrower than a byte, and of truth values",
        '<ir_version: 10, opset_import: ["" : 26]> g (int4[2] x) => (y) { y = BitCast<to = 21>(x) }',
    ),
    Known(
        "Reshape",
        "wrong",
        r"\[[^\]]*\b0\b[^\]]*\], should be \w+\[[^\]]*\b0\b",
        "a target that is computed from sizes and comes out as 0 stays 0 in an empty tensor, where the standard takes it for a mark",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[1,none] x) => (y) <int64[1] rest = {-1}> { '
        "s = Shape<start = 1>(x) t = Concat<axis = 0>(s, rest) y = Reshape(x, t) }",
    ),
    Known(
        "GridSample",
        "failed",
        r"gather_nd\): index out of range",
        "a picture without pixels has none to take, an error as in onnxruntime",
        '<ir_version: 10, opset_import: ["" : 20]> g (float[1,1,none,2] x, float[1,1,1,2] g) => (y) { y = GridSample(x, g) }',
    ),
)


def reason(case: Case, status: str, detail: str) -> str | None:
    """Why a finding is expected, None if it is not."""
    operators = case.operators()
    for entry in KNOWN:
        if entry.status == status and (not entry.operator or entry.operator in operators) and re.search(entry.text, detail):
            return entry.why
    return None
