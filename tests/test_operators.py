"""Operators with symbolic sizes: one compiled model, several shapes, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from operator_case import check, normal, shapes, whole

import pyonnx_wasm

IMAGES = [(1, 3, 7, 9), (2, 3, 16, 5), (1, 3, 1, 1)]
ROWS = [(3, 8), (1, 8), (17, 8)]
CASES: dict[str, Callable[[], None]] = {
    # com.microsoft
    "FusedMatMul": lambda: check(
        "FusedMatMul",
        [{"a": normal(2, n, 5), "b": normal(2, 4, n)} for n in (3, 1, 11)],
        domain="com.microsoft",
        alpha=0.5,
        transA=1,
        transB=1,
    ),
    "FusedMatMul batch": lambda: check(
        "FusedMatMul", [{"a": normal(n, 2, 5), "b": normal(2, 5, 3)} for n in (4, 1, 9)], domain="com.microsoft", transBatchA=1
    ),
    "FusedGemm": lambda: check(
        "FusedGemm", shapes("a", *ROWS), constants={"b": normal(8, 5), "c": normal(5)}, domain="com.microsoft", activation="Relu", alpha=2.0
    ),
    "FusedConv": lambda: check(
        "FusedConv",
        shapes("x", (1, 3, 7, 9), (2, 3, 16, 5)),
        constants={"w": normal(4, 3, 3, 3), "b": normal(4)},
        domain="com.microsoft",
        activation="LeakyRelu",
        activation_params=[0.2],
        pads=[1, 1, 1, 1],
        atol=1e-4,
    ),
    "FusedConv HardSwish": lambda: check(
        "FusedConv",
        shapes("x", (1, 3, 7, 9), (2, 3, 16, 5)),
        constants={"w": normal(4, 3, 3, 3), "b": normal(4)},
        domain="com.microsoft",
        activation="HardSwish",
        atol=1e-4,
    ),
    "Gelu": lambda: check("Gelu", shapes("x", *ROWS), domain="com.microsoft"),
    "BiasGelu": lambda: check("BiasGelu", shapes("x", *ROWS), constants={"b": normal(8)}, domain="com.microsoft"),
    "FastGelu": lambda: check("FastGelu", shapes("x", *ROWS), constants={"b": normal(8)}, domain="com.microsoft"),
    "QuickGelu": lambda: check("QuickGelu", shapes("x", *ROWS), domain="com.microsoft", alpha=1.5),
    "SkipLayerNormalization": lambda: check(
        "SkipLayerNormalization",
        [{"x": normal(2, n, 8), "skip": normal(2, n, 8, seed=1)} for n in (3, 1, 13)],
        constants={"gamma": normal(8), "beta": normal(8, seed=1), "bias": normal(8, seed=2)},
        outputs=["y", "", "", "sum"],
        domain="com.microsoft",
        epsilon=1e-3,
    ),
    "SkipSimplifiedLayerNormalization": lambda: check(
        "SkipSimplifiedLayerNormalization",
        [{"x": normal(2, n, 8), "skip": normal(2, n, 8, seed=1)} for n in (3, 1, 13)],
        constants={"gamma": normal(8)},
        outputs=["y", "", "", "sum"],
        domain="com.microsoft",
    ),
    "SimplifiedLayerNormalization": lambda: check("SimplifiedLayerNormalization", shapes("x", *ROWS), constants={"g": normal(8)}, opset=17),
    "MatMulIntegerToFloat": lambda: check(
        "MatMulIntegerToFloat",
        [{"a": whole(0, 256, n, 7, dtype=np.uint8)} for n in (3, 1, 10)],
        constants={
            "b": whole(-128, 128, 7, 4, dtype=np.int8),
            "sa": np.float32([0.02]),
            "sb": np.float32([0.01, 0.02, 0.03, 0.04]),
            "za": np.uint8([100]),
            "zb": np.int8([0, 1, 2, 3]),
            "bias": normal(4),
        },
        domain="com.microsoft",
    ),
    "DynamicQuantizeMatMul": lambda: check(
        "DynamicQuantizeMatMul",
        shapes("a", *ROWS),
        constants={"b": whole(-128, 128, 8, 4, dtype=np.int8), "sb": np.float32([0.01]), "zb": np.int8([1])},
        domain="com.microsoft",
    ),
    "RotaryEmbedding": lambda: check(
        "RotaryEmbedding",
        [{"x": normal(2, n, 24), "at": np.tile(np.arange(n), (2, 1))} for n in (5, 1, 9)],
        constants={"cos": normal(16, 4), "sin": normal(16, 4, seed=1)},
        domain="com.microsoft",
        num_heads=3,
    ),
    "MatMulNBits": lambda: check(
        "MatMulNBits",
        shapes("a", (3, 40), (1, 40)),
        constants={"b": whole(0, 256, 6, 3, 8, dtype=np.uint8), "s": np.abs(normal(18)), "z": whole(0, 256, 12, dtype=np.uint8)},
        domain="com.microsoft",
        K=40,
        N=6,
        bits=4,
        block_size=16,
        atol=1e-3,
    ),
    "MatMulNBits 8": lambda: check(
        "MatMulNBits",
        shapes("a", (3, 64), (1, 64)),
        constants={"b": whole(0, 256, 6, 2, 32, dtype=np.uint8), "s": np.abs(normal(12))},
        domain="com.microsoft",
        K=64,
        N=6,
        bits=8,
        block_size=32,
        atol=1e-2,
    ),
    "MultiHeadAttention": lambda: check(
        "MultiHeadAttention",
        [
            {
                "q": normal(2, n, 24),
                "k": normal(2, m, 24, seed=1),
                "v": normal(2, m, 24, seed=2),
                "pad": np.minimum(whole(0, 9, 2, m, dtype=np.int32), 1),
                "add": normal(1, 3, n, m, seed=5),
            }
            for n, m in ((5, 5), (1, 8), (4, 11))
        ],
        inputs=["q", "k", "v", "b", "pad", "add"],
        constants={"b": normal(72)},
        domain="com.microsoft",
        num_heads=3,
    ),
    "MultiHeadAttention past": lambda: check(
        "MultiHeadAttention",
        [
            {
                "q": normal(2, n, 24),
                "k": normal(2, n, 24, seed=1),
                "v": normal(2, n, 24, seed=2),
                "pk": normal(2, 3, past, 8, seed=3),
                "pv": normal(2, 3, past, 8, seed=4),
            }
            for n, past in ((5, 3), (1, 8))
        ],
        inputs=["q", "k", "v", "", "", "", "pk", "pv"],
        outputs=["y", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=3,
        unidirectional=1,
        scale=0.3,
    ),
    # the standard
    "DynamicQuantizeLinear": lambda: check("DynamicQuantizeLinear", shapes("x", *ROWS), outputs=["y", "scale", "zero"]),
    "QuantizeLinear": lambda: check(
        "QuantizeLinear", shapes("x", *ROWS), constants={"s": np.float32([0.01] * 8), "z": whole(0, 255, 8, dtype=np.uint8)}, axis=1
    ),
    "GridSample": lambda: check(
        "GridSample",
        [{"x": normal(2, 3, h, 6), "grid": normal(2, w, 4, 2)} for h, w in ((5, 3), (1, 7), (9, 1))],
        mode="linear",
        padding_mode="reflection",
    ),
    "GridSample cubic": lambda: check(
        "GridSample",
        [{"x": normal(1, 2, h, 6), "grid": normal(1, w, 4, 2)} for h, w in ((5, 3), (8, 7))],
        mode="cubic",
        padding_mode="zeros",
    ),
    "AffineGrid": lambda: check(
        "AffineGrid", [{"theta": normal(2, 2, 3), "size": np.array([2, 3, h, w])} for h, w in ((5, 4), (2, 7))], align_corners=1
    ),
    "Attention": lambda: check(
        "Attention",
        [{"q": normal(b, 4, n, 8), "k": normal(b, 2, n, 8, seed=1), "v": normal(b, 2, n, 8, seed=2)} for b, n in ((1, 5), (2, 1), (3, 17))],
        opset=23,
        is_causal=1,
    ),
    "Attention past": lambda: check(
        "Attention",
        [
            {
                "q": normal(2, n, 24),
                "k": normal(2, n, 24, seed=1),
                "v": normal(2, n, 24, seed=2),
                "mask": normal(n, past + n),
                "pk": normal(2, 3, past, 8, seed=3),
                "pv": normal(2, 3, past, 8, seed=4),
            }
            for n, past in ((5, 3), (1, 8), (4, 1))
        ],
        outputs=["y", "present_key", "present_value"],
        opset=23,
        q_num_heads=3,
        kv_num_heads=3,
        softcap=2.0,
    ),
    "Attention scores": lambda: check(
        "Attention",
        [{"q": normal(2, 2, n, 8), "k": normal(2, 2, m, 8, seed=1), "v": normal(2, 2, m, 4, seed=2)} for n, m in ((3, 5), (1, 9))],
        outputs=["y", "", "", "scores"],
        opset=23,
        qk_matmul_output_mode=3,
    ),
    "RotaryEmbedding standard": lambda: check(
        "RotaryEmbedding",
        [{"x": normal(2, 3, n, 8), "at": np.tile(np.arange(n), (2, 1))} for n in (5, 1, 9)],
        inputs=["x", "cos", "sin", "at"],
        constants={"cos": normal(16, 4), "sin": normal(16, 4, seed=1)},
        opset=23,
        interleaved=1,
    ),
    "RMSNormalization": lambda: check("RMSNormalization", shapes("x", *ROWS), constants={"s": normal(8)}, opset=23),
    "LayerNormalization": lambda: check(
        "LayerNormalization",
        shapes("x", (2, 3, 8), (1, 1, 8), (5, 7, 8)),
        constants={"s": normal(8), "b": normal(8)},
        outputs=["y", "mean", "inv"],
    ),
    "Resize": lambda: check(
        "Resize", shapes("x", *IMAGES), inputs=["x", "", "scales"], constants={"scales": np.float32([1, 1, 2, 2])}, mode="linear"
    ),
    "Resize sizes": lambda: check(
        "Resize",
        [{"x": normal(*s), "sizes": np.array([s[0], 3, 8, 11])} for s in IMAGES],
        inputs=["x", "", "", "sizes"],
        mode="nearest",
    ),
    "LSTM": lambda: check(
        "LSTM",
        [{"x": normal(5, n, 4)} for n in (2, 1, 7)],
        constants={"w": normal(2, 12, 4), "r": normal(2, 12, 3), "b": normal(2, 24)},
        outputs=["y", "h", "c"],
        direction="bidirectional",
        hidden_size=3,
    ),
    "GRU": lambda: check(
        "GRU",
        [{"x": normal(6, n, 4), "lens": whole(1, 7, n, dtype=np.int32)} for n in (2, 1, 5)],
        inputs=["x", "w", "r", "b", "lens"],
        constants={"w": normal(2, 9, 4), "r": normal(2, 9, 3), "b": normal(2, 18)},
        outputs=["y", "h"],
        direction="bidirectional",
        hidden_size=3,
        linear_before_reset=1,
    ),
    "RNN": lambda: check(
        "RNN",
        [{"x": normal(4, n, 3)} for n in (2, 1)],
        constants={"w": normal(1, 5, 3), "r": normal(1, 5, 5)},
        outputs=["y", "h"],
        direction="reverse",
        activations=["Relu"],
        hidden_size=5,
    ),
    "DeformConv": lambda: check(
        "DeformConv",
        [{"x": normal(n, 4, 6, 5), "w": normal(2, 4, 3, 3), "offset": normal(n, 18, 4, 3)} for n in (1, 3)],
        opset=19,
        atol=1e-4,
    ),
    "RoiAlign": lambda: check(
        "RoiAlign",
        [{"x": normal(2, 3, 9, 8), "rois": np.abs(normal(n, 4)) * 2 + np.float32([0, 0, 4, 4]), "at": whole(0, 2, n)} for n in (1, 5)],
        output_height=3,
        output_width=2,
        sampling_ratio=2,
        spatial_scale=0.5,
    ),
    "Col2Im": lambda: check(
        "Col2Im", shapes("x", (1, 12, 12), (3, 12, 12)), constants={"image": np.array([5, 4]), "block": np.array([2, 2])}
    ),
    "DFT-real-or-complex": lambda: check(
        "DFT", [{"x": normal(2, 6, n)} for n in (1, 2)], opset=20, inputs=["x", "", "axis"], constants={"axis": np.array(1)}, inverse=1
    ),
    "DFT": lambda: check(
        "DFT", [{"x": normal(n, 10, 1)} for n in (1, 4)], opset=20, inputs=["x", "", "axis"], constants={"axis": np.array(1)}, onesided=1
    ),
    "STFT": lambda: check(
        "STFT", [{"x": normal(n, 64, 1)} for n in (1, 3)], constants={"step": np.array(8), "w": np.float32(np.hanning(16))}
    ),
    "NegativeLogLikelihoodLoss": lambda: check(
        "NegativeLogLikelihoodLoss",
        [{"x": normal(n, 5, 4), "t": whole(0, 5, n, 4)} for n in (3, 1)],
        constants={"w": np.abs(normal(5))},
        ignore_index=2,
        opset=13,
    ),
    "MaxUnpool": lambda: check(
        "MaxUnpool", [{"x": normal(1, 1, 2, 2), "i": np.array([[[[5, 7], [13, 15]]]])}], kernel_shape=[2, 2], strides=[2, 2]
    ),
    "Trilu": lambda: check("Trilu", shapes("x", (3, 5), (1, 1), (7, 7)), constants={"k": np.array(1)}, upper=0),
    "Tile": lambda: check("Tile", shapes("x", *ROWS), constants={"r": np.array([2, 3])}),
    "Pad": lambda: check("Pad", shapes("x", (3, 8), (5, 8)), constants={"p": np.array([1, 2, 0, 3])}, mode="reflect"),
    "Slice": lambda: check(
        "Slice",
        shapes("x", *ROWS),
        constants={"s": np.array([-1, 1]), "e": np.array([-(2**62), 2**62]), "a": np.array([0, 1]), "st": np.array([-2, 3])},
    ),
    "TopK": lambda: check("TopK", shapes("x", *ROWS), constants={"k": np.array([3])}, outputs=["v", "i"]),
    "OneHot": lambda: check(
        "OneHot", [{"i": whole(-4, 4, n)} for n in (3, 1)], constants={"d": np.array(5), "v": np.float32([1, 3])}, axis=0
    ),
    "ScatterND": lambda: check(
        "ScatterND", [{"x": normal(n, 3), "i": whole(0, n, 4, 1), "u": normal(4, 3)} for n in (7, 2)], opset=18, reduction="add"
    ),
    "ReverseSequence": lambda: check(
        "ReverseSequence", [{"x": normal(6, n), "l": whole(1, 7, n)} for n in (3, 1)], time_axis=0, batch_axis=1
    ),
    "Einsum": lambda: check("Einsum", [{"a": normal(n, 3, 4), "b": normal(n, 4, 5)} for n in (2, 1)], equation="bij,bjk->bik"),
    "GroupNormalization": lambda: check(
        "GroupNormalization", shapes("x", (1, 4, 3, 5), (2, 4, 7, 1)), constants={"s": normal(4), "b": normal(4)}, num_groups=2, atol=1e-4
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_onnxruntime_at_every_shape(case: str) -> None:
    CASES[case]()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("threshold", [-0.25, 0.0, 0.75, -2.0, 3.0])
def test_binarizer_compares_with_the_threshold_itself(dtype: Any, threshold: float) -> None:
    x = np.array([-3, -2, -1, 0, 1, 2, 3, 4], dtype)
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=threshold)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), [8])
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10)
    (y,) = pyonnx_wasm.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y, (x > threshold).astype(dtype))


@pytest.mark.parametrize("tokens", [0, 1, 2, 5])
@pytest.mark.parametrize("dims", [["n"], None])
def test_n_grams_longer_than_the_text(tokens: int, dims: list[str] | None) -> None:
    x = np.array([2, 1, 2, 1, 3][:tokens], np.int64)
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=2, max_gram_length=3, max_skip_count=2, ngram_counts=[0, 1, 5],
        ngram_indexes=[0, 1, 2, 3], pool_int64s=[2, 2, 1, 1, 2, 2, 1, 2],
    )  # fmt: skip
    info = helper.make_tensor_value_info("x", TensorProto.INT64, dims or [tokens])
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    (y,) = pyonnx_wasm.InferenceSession(model).run(None, {"x": x})
    grams = [(2, 1), (1, 2), (2, 1, 2)]

    def count(gram: tuple[int, ...]) -> int:
        n = len(gram)
        spans = [[x[i + j * d] for j in range(n)] for d in (1, 2, 3) for i in range(tokens - (n - 1) * d)]
        return sum(s == list(gram) for s in spans)

    np.testing.assert_array_equal(y, [0, *(count(g) for g in grams)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint64])
@pytest.mark.parametrize("equation", ["ij->i", "ij->", "ij->ji"])
def test_einsum_sums_integers_of_any_width(dtype: Any, equation: str) -> None:
    x = np.arange(100, 136).reshape(4, 9).astype(dtype)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["a", "b"])
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    (y,) = pyonnx_wasm.InferenceSession(model).run(None, {"x": x})
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.einsum(equation, x))
