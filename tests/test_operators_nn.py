"""Recurrent layers, normalisations, resampling and sampling over their attributes and dtypes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from operator_case import Array, Feed, check, model, normal, outputs_of, same, sessions, shapes

from pyonnx_wasm import InferenceSession
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.runtimes.core import CoreError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {
    "Affine": (0.7, 0.2), "Relu": None, "LeakyRelu": (0.3,), "ThresholdedRelu": (0.4,), "Tanh": None, "Sigmoid": None,
    "ScaledTanh": (0.8, 1.3), "HardSigmoid": (0.3, 0.6), "Elu": (0.9,), "Softsign": None, "Softplus": None,
}  # fmt: skip


def recurrent(op: str, names: Sequence[str], alpha: Sequence[float], beta: Sequence[float], direction: str) -> None:
    ways, g = 2 if direction == "bidirectional" else 1, GATES[op]
    constants = {"w": normal(ways, 3 * g, 4) * 0.5, "r": normal(ways, 3 * g, 3) * 0.5, "b": normal(ways, 6 * g) * 0.5}
    given: dict[str, Any] = {"activations": list(names), "hidden_size": 3, "direction": direction}
    given |= {k: list(v) for k, v in (("activation_alpha", alpha), ("activation_beta", beta)) if v}
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    check(op, [{"x": normal(5, n, 4)} for n in (2, 1)], constants=constants, outputs=outputs, **given)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("op", GATES)
def test_recurrent_activations_take_their_parameters(op: str, name: str) -> None:
    count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
    parameters = ACTIVATIONS[name] or ()
    recurrent(
        op, [name] * count, [parameters[0]] * count if parameters else [], [parameters[1]] * count if len(parameters) > 1 else [], "forward"
    )


@pytest.mark.parametrize("op", GATES)
def test_both_directions_have_parameters_of_their_own(op: str) -> None:
    names = {"RNN": ["Affine", "LeakyRelu"], "GRU": ["HardSigmoid", "LeakyRelu", "Affine", "ScaledTanh"],
             "LSTM": ["Sigmoid", "Affine", "LeakyRelu", "HardSigmoid", "ScaledTanh", "Tanh"]}[op]  # fmt: skip
    alpha = [0.7, 0.2, 0.5, 0.9][: sum(ACTIVATIONS[n] is not None for n in names)]
    beta = [0.1, 0.6, 1.2][: sum(len(ACTIVATIONS[n] or ()) > 1 for n in names)]
    recurrent(op, names, alpha, beta, "bidirectional")


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_recurrence_of_any_length_in_one_session(op: str, direction: str, lengths: bool) -> None:
    ways, g = 2 if direction == "bidirectional" else 1, GATES[op]
    constants = {"w": normal(ways, 3 * g, 4) * 0.5, "r": normal(ways, 3 * g, 3) * 0.5}
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    names = ["x", "w", "r", "b", "lens" if lengths else "", "h0"]
    feeds: list[dict[str, Any]] = [
        {"x": normal(t, n, 4), "b": normal(ways, 6 * g), "h0": normal(ways, n, 3)} for t, n in ((5, 2), (1, 3), (40, 1), (2000, 2))
    ]
    for feed in feeds if lengths else []:
        t, n, _ = feed["x"].shape
        feed["lens"] = np.array([t, max(1, t // 2), 1][:n], np.int32)
    check(op, feeds, constants=constants, outputs=outputs, inputs=names, hidden_size=3, direction=direction)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_of_any_length_in_one_session(rule: str) -> None:
    """Against the recurrence as the standard writes it, in float64; a length of 0 leaves the state."""
    feeds: list[Any] = []
    for t, n in ((3, 2), (0, 1), (1, 2), (300, 1)):
        q, k, v = (normal(n, t, 2 * d, seed=i) * 0.3 for i, d in enumerate((3, 3, 2)))
        feed = {"q": q, "k": k, "v": v, "s": normal(n, 2, 3, 2)}
        feeds.append(feed | {"decay": -np.abs(normal(n, t, 2 * 3)), "beta": np.abs(normal(n, t, 2))})

    def expected(feed: Feed) -> list[Array]:
        q, k, v, s, decay, beta = (feed.get(name, np.ones(1)).astype(np.float64) for name in ("q", "k", "v", "s", "decay", "beta"))
        n, t, _ = q.shape
        q, k, v = (x.reshape(n, t, 2, x.shape[2] // 2) for x in (q, k, v))
        rows = np.zeros((n, t, 2, 2))
        for i in range(t):
            s = s * np.exp(decay[:, i].reshape(n, 2, 3, 1)) if "gated" in rule else s
            new = v[:, i]
            if "delta" in rule:
                new = (new - np.einsum("nhk,nhkv->nhv", k[:, i], s)) * beta[:, i, :, None]
            s = s + k[:, i, :, :, None] * new[:, :, None]
            rows[:, i] = np.einsum("nhk,nhkv->nhv", q[:, i], s) / np.sqrt(3)
        return [rows.reshape(n, t, 4).astype(np.float32), s.astype(np.float32)]

    names = ["q", "k", "v", "s", "decay" if "gated" in rule else "", "beta" if "delta" in rule else ""]
    used = [{n: f[n] for n in names if n} for f in feeds]
    named: dict[str, Any] = {"outputs": ["y", "last"], "inputs": names, "opset": 27, "oracle": expected}
    check("LinearAttention", used, q_num_heads=2, kv_num_heads=2, update_rule=rule, **named)


def layer_norm(x: Array, axis: int, scale: Array, bias: Array | None, rms: bool = False) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    centred = wide if rms else wide - wide.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + np.float64(np.float32(1e-5)))
    return np.asarray((y * scale + (0 if bias is None else bias)).astype(x.dtype))


TOLERANCE = {"float16": (2e-3, 2e-3), "float32": (1e-5, 1e-5), "float64": (1e-12, 1e-12)}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("scale", [(5,), (1,), (), (4, 5), (1, 1, 5), (2, 4, 5), (2, 1, 1), (1, 4, 1)])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_scales_of_any_rank(op: str, scale: Sequence[int], dtype: str) -> None:
    rtol, atol = TOLERANCE[dtype]
    for axis in (-1, 1, 2):
        s, b = normal(*scale).astype(dtype), normal(*scale, seed=1).astype(dtype)
        batch = (2,) if len(scale) == 3 and scale[0] == 2 else (2, 1, 0)
        feeds = [{"x": normal(n, 4, 5).astype(dtype)} for n in batch]
        constants = {"s": s, "b": b} if op[0] == "L" else {"s": s}

        def expected(feed: Feed, axis: int = axis, s: Array = s, b: Array = b) -> list[Array]:
            return [layer_norm(feed["x"], axis, s.astype(np.float64), b.astype(np.float64) if op[0] == "L" else None, op[0] == "R")]

        check(op, feeds, constants=constants, opset=23, axis=axis, oracle=expected, rtol=rtol, atol=atol)


def test_statistics_of_float64_and_of_wider_stages() -> None:
    x = np.random.default_rng(0).standard_normal((3, 6))
    s = np.random.default_rng(1).standard_normal(6)
    outputs = ["y", "mean", "inv"]
    mean, inv = x.mean(1, keepdims=True), 1 / np.sqrt(x.var(1, keepdims=True) + np.float64(np.float32(1e-5)))
    for kind, dtype in ((1, np.float32), (11, np.float64)):
        want = [layer_norm(x, -1, s, None), mean.astype(dtype), inv.astype(dtype)]
        tolerance = 1e-12 if dtype is np.float64 else 1e-6
        check(
            "LayerNormalization",
            [{"x": x}],
            constants={"s": s},
            outputs=outputs,
            opset=17,
            stash_type=kind,
            oracle=lambda _, w=want: w,
            rtol=tolerance,
            atol=tolerance,
        )
    with pytest.raises(IRError, match="stash_type 16"):
        InferenceSession(model("LayerNormalization", [{"x": x}], constants={"s": s}, opset=17, stash_type=16))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_norms_of_channels(dtype: str) -> None:
    rtol, atol = TOLERANCE[dtype]
    s, b = normal(6).astype(dtype), normal(6, seed=1).astype(dtype)
    feeds = [{"x": normal(n, 6, 4, w).astype(dtype)} for n, w in ((2, 3), (1, 1), (3, 5))]

    def grouped(feed: Feed, groups: int) -> list[Array]:
        x = feed["x"].astype(np.float64)
        rows = x.reshape(x.shape[0] * groups, -1)
        y = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + np.float64(np.float32(1e-5)))
        y = y.reshape(x.shape) * s.astype(np.float64)[:, None, None] + b.astype(np.float64)[:, None, None]
        return [y.astype(dtype)]

    constants = {"s": s, "b": b}
    check("InstanceNormalization", feeds, constants=constants, oracle=lambda f: grouped(f, 6), rtol=rtol, atol=atol)
    check("GroupNormalization", feeds, constants=constants, num_groups=3, oracle=lambda f: grouped(f, 3), rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_skips_and_their_default_epsilon(dtype: str) -> None:
    """Rows so small that the default epsilon decides."""
    x = (normal(2, 3, 8) * (1e-3 if dtype == "float16" else 1e-6)).astype(dtype)
    s = np.ones(8, dtype)
    total = x.astype(np.float64) * 2
    for op, centred in (("SkipLayerNormalization", total - total.mean(-1, keepdims=True)), ("SkipSimplifiedLayerNormalization", total)):
        want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-12)))
        rtol, atol = TOLERANCE[dtype]
        check(
            op,
            [{"x": x, "k": x}],
            constants={"s": s},
            domain="com.microsoft",
            oracle=lambda _, w=want: [w.astype(dtype)],
            rtol=rtol * 20,
            atol=atol * 20,
        )


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("perm", [(0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_normalisation_of_strided_halves(perm: Sequence[int], backend: str) -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=perm), helper.make_node("LayerNormalization", ["t", "s", "b"], ["y"])]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["a", "b_", "c"])
    s, b = normal(6).astype(np.float16), normal(6, seed=1).astype(np.float16)
    held = [onnx.numpy_helper.from_array(v, n) for n, v in (("s", s), ("b", b))]
    graph = helper.make_graph(nodes, "g", [info], [helper.make_empty_tensor_value_info("y")], held)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    session = InferenceSession(data, providers=[backend])
    for n, m in ((3, 5), (1, 1), (2, 9)):
        t = normal(n, m, 6).astype(np.float16)
        x = np.ascontiguousarray(t.transpose(np.argsort(perm)))
        same(session.run(None, {"x": x})[0], layer_norm(t, -1, s.astype(np.float64), b.astype(np.float64)), 4e-3, 4e-3)


def test_training_forms_are_refused_by_name() -> None:
    parts = {n: np.ones(3, np.float32) for n in "sbmv"}
    feeds = [{"x": normal(2, 3, 4)}]
    InferenceSession(model("BatchNormalization", feeds, constants=parts, opset=6, is_test=1))
    with pytest.raises(IRError, match="is_test=0"):
        InferenceSession(model("BatchNormalization", feeds, constants=parts, opset=6))
    with pytest.raises(IRError, match="training"):
        InferenceSession(model("BatchNormalization", feeds, constants=parts, opset=9, outputs=["y", "mean", "var"]))


def test_dropout_trains_where_opset_6_says_so() -> None:
    x = np.ones((40, 50), np.float32)
    np.testing.assert_array_equal(InferenceSession(model("Dropout", [{"x": x}], opset=6, is_test=1)).run(None, {"x": x})[0], x)
    y = InferenceSession(model("Dropout", [{"x": x}], opset=6)).run(None, {"x": x})[0]
    assert set(np.unique(y)) == {0, 2}
    assert 0.4 < (y == 0).mean() < 0.6


@pytest.mark.parametrize("scale", [1.3, 0.6, 2.7, 1.1, 3.3, 0.7, 0.35, 2.0, 0.5, 1.0])
def test_resized_sizes_are_one_rule(scale: float) -> None:
    """A symbolic size gives what a number gives: the product in float32, rounded down."""
    constants = {"scales": np.float32([1, 1, 1, scale])}
    given: dict[str, Any] = {"inputs": ["x", "", "scales"], "constants": constants, "mode": "nearest"}
    feeds = shapes("x", *((1, 1, 1, n) for n in (90, 50, 120, 190, 3, 7, 333, 1000)))
    for some in (feeds, *([feed] for feed in feeds)):
        data = model("Resize", some, **given)
        for _, session in sessions(data):
            for feed in some:
                assert session.run(None, feed)[0].shape == outputs_of(data, feed, "onnxruntime")[0].shape


def test_crops_have_the_size_of_their_region() -> None:
    constants = {"roi": np.float32([0, 0, 0.2, 0.1, 1, 1, 0.7, 0.9]), "scales": np.float32([1, 1, 1.5, 0.8])}
    data = [{"x": normal(1, 2, h, w)} for h, w in ((8, 10), (5, 20))]
    given: dict[str, Any] = {"constants": constants, "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    for feeds in (data, data[:1]):
        for _, session in sessions(model("Resize", feeds, **given)):
            for feed in feeds:
                h, w = (np.float32(np.float32(e) - np.float32(s)) * np.float32(k) for s, e, k in ((0.2, 0.7, 1.5), (0.1, 0.9, 0.8)))
                want = (1, 2, int(feed["x"].shape[2] * h), int(feed["x"].shape[3] * w))
                assert session.run(None, feed)[0].shape == want


def cropped(dtype: Any, **given: Any) -> list[Array]:
    """Twelve places from 0.1 to 1.2 of four elements 1, 2, 3, 4: the tenth lies on the last of them, the two behind it outside."""
    constants = {"roi": np.float32([0.1, 1.2]), "scales": np.float32([]), "sizes": np.array([12])}
    feed = {"x": np.arange(1, 5).astype(dtype)}
    data = model("Resize", [feed], constants=constants, coordinate_transformation_mode="tf_crop_and_resize", **given)
    return [session.run(None, feed)[0] for _, session in sessions(data)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_bound_that_is_no_float32_is_met(dtype: str) -> None:
    for y in cropped(dtype, mode="linear", extrapolation_value=-9.0):
        np.testing.assert_allclose(y, [*(1.3 + 0.3 * np.arange(10)), -9, -9], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("value", [-1.0, -1e30, 1e30, 2.6])
def test_what_lies_outside_is_limited_to_the_dtype(dtype: str, value: float) -> None:
    limits = np.iinfo(dtype)
    for y in cropped(dtype, mode="nearest", extrapolation_value=value):
        assert y[:10].tolist() == [1, 2, 2, 2, 2, 3, 3, 3, 4, 4]
        outside = float(y[-1])
        np.testing.assert_allclose(outside, min(max(round(value), limits.min), limits.max), rtol=1e-6)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grids_far_outside(mode: str, padding: str, align: int) -> None:
    feeds = [{"x": normal(1, 2, h, 6), "g": normal(1, 7, w, 2) * 1.5} for h, w in ((5, 9), (1, 3), (2, 8))]
    check("GridSample", feeds, mode=mode, padding_mode=padding, align_corners=align, opset=20, rtol=1e-4, atol=1e-4)


def test_affine_grids_of_one_pixel() -> None:
    for align, size in itertools.product((0, 1), ((1, 1), (1, 4), (3, 1), (2, 3))):
        feeds = [{"theta": normal(2, 2, 3), "size": np.array([2, 3, *size])}]
        check(
            "AffineGrid",
            feeds,
            align_corners=align,
            opset=20,
            oracle=lambda f, align=align: [affine_grid(f["theta"], f["size"][2:], align)],
        )


def affine_grid(theta: Array, size: Sequence[int], align: int) -> Array:
    axes = [np.linspace(-1, 1, n) if align else (np.arange(n) * 2 + 1) / n - 1 for n in size]
    y, x = np.meshgrid(*axes, indexing="ij")
    return np.asarray(np.einsum("nij,hwj->nhwi", theta, np.stack([x, y, np.ones_like(x)], -1)).astype(np.float32))


def test_windows_in_float64_keep_float64() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 12, 12))
    image, block = np.array([5, 4]), np.array([2, 2])

    def folded(feed: Feed) -> list[Array]:
        columns = feed["x"].reshape(-1, 3, 2, 2, 4, 3)
        y = np.zeros((columns.shape[0], 3, 5, 4))
        for i, j in itertools.product(range(2), range(2)):
            y[:, :, i : i + 4, j : j + 3] += columns[:, :, i, j]
        return [y]

    check("Col2Im", [{"x": x}, {"x": x[:1]}], constants={"image": image, "block": block}, oracle=folded, rtol=1e-14, atol=1e-14)
    pixels, at = rng.standard_normal((2, 3, 9, 8)), np.array([0, 1, 1, 0])
    rois = np.abs(rng.standard_normal((4, 4))) + np.array([0, 0, 4, 4])
    given: dict[str, Any] = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5, "opset": 16}
    check("RoiAlign", [{"x": pixels, "rois": rois, "at": at}], rtol=1e-12, atol=1e-12, **given)


@pytest.mark.parametrize("dtype", ["float16", "float64", "float32"])
def test_transposed_convolutions(dtype: str) -> None:
    w, b = normal(4, 2, 3, 3).astype(dtype), normal(4).astype(dtype)
    feeds = [{"x": normal(n, 4, h, 3).astype(dtype)} for n, h in ((1, 3), (1, 1), (1, 5))]
    rtol = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
    given: dict[str, Any] = {"strides": [2, 1], "pads": [1, 0, 1, 1], "group": 2, "output_padding": [1, 0]}

    def spread(feed: Feed) -> list[Array]:
        x, taps = feed["x"].astype(np.float64), w.astype(np.float64)
        n, _, high, across = x.shape
        y = np.zeros((n, 4, high * 2 + 2, across + 2))
        for c, o, i, j in itertools.product(range(4), range(2), range(3), range(3)):
            y[:, c // 2 * 2 + o, i : i + 2 * high : 2, j : j + across] += x[:, c] * taps[c, o, i, j]
        return [(y[:, :, 1:-1, :-1] + b.astype(np.float64)[:, None, None]).astype(dtype)]

    check("ConvTranspose", feeds, constants={"w": w, "b": b}, oracle=spread, rtol=rtol, atol=rtol, **given)


def test_hardmax_of_empty_axes() -> None:
    for opset in (11, 13):
        for axis in (1, 2):
            feeds = [{"x": normal(*s)} for s in ((2, 3, 4), (2, 0, 4), (0, 3, 0), (2, 3, 0), (1, 1, 1))]

            def hard(feed: Feed, axis: int = axis, opset: int = opset) -> list[Array]:
                x = feed["x"]
                flat = x if opset >= 13 else x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
                at = axis if opset >= 13 else 1
                y = np.zeros(flat.shape, np.float32)
                if flat.size:
                    np.put_along_axis(y, np.expand_dims(flat.argmax(at), at), 1, at)
                return [y.reshape(x.shape)]

            check("Hardmax", feeds, axis=axis, opset=opset, oracle=hard)
    for op in ("ArgMax", "ArgMin"):
        feeds = [{"x": normal(2, n, 3)} for n in (4, 1)]
        check(op, feeds, axis=1)
        for _, session in sessions(model(op, feeds, axis=1)):
            assert session.run(None, {"x": normal(2, 1, 3)})[0].shape == (2, 1, 3)
            with pytest.raises((ValueError, CoreError), match="empty"):
                session.run(None, {"x": normal(2, 0, 3)})


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 7])
def test_pads_hold_any_integer(value: int) -> None:
    constants = {"p": np.array([1, 0, 0, 2]), "v": np.array(value)}
    feeds = [{"x": np.arange(n * 3).reshape(n, 3)} for n in (2, 1, 0)]
    check("Pad", feeds, constants=constants, oracle=lambda f: [np.pad(f["x"], ((1, 0), (0, 2)), constant_values=value)])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_lp_normalization_of_what_powers_and_sums_leave_their_dtype_for(dtype: Any, p: int) -> None:
    """The largest numbers and the least, zeros, infinity and NaN, of sizes none as well: as exact as of ordinary numbers."""
    big, least = np.finfo(dtype).max, np.finfo(dtype).tiny
    rows = [[big, -big, big / 4], [least, -least, 2 * least], [0, 0, 0], [np.inf, 1, -2], [np.nan, 1, 2], [1e-3, -2, 3]]
    x = np.array(rows, dtype)
    feeds = [{"x": x}, {"x": np.zeros((0, 3), dtype)}, {"x": np.zeros((3, 0), dtype)}]
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        length = (np.abs(wide) ** p).sum(-1, keepdims=True) ** (np.longdouble(1) / p)
        want = np.where(length == 0, 0, wide / length)
    session = InferenceSession(model("LpNormalization", feeds, opset=22, axis=-1, p=p))
    np.testing.assert_allclose(session.run(None, feeds[0])[0].astype(np.longdouble), want, rtol=4 * np.finfo(dtype).eps)
    for feed in feeds[1:]:
        assert session.run(None, feed)[0].shape == feed["x"].shape
