"""com.microsoft's operators on what is sparse or masked: against onnxruntime, at several shapes in one session."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from operator_case import Array, Feed, check, model, normal, same, sessions, whole
from test_microsoft_attention import DOMAIN

import pyonnx_wasm

PROCESSOR = onnxruntime.OrtDevice.make("cpu", 0)


def test_words_of_letters() -> None:
    """Words of all lengths; a row that begins with 0 is no word, of which onnxruntime writes nothing and nothing is compared."""
    feeds: list[Feed] = []
    for words, letters in ((3, 5), (6, 7), (1, 3)):
        x = whole(1, 9, words, letters, dtype=np.int32)
        for k in range(words):
            x[k, 1 + k % letters :] = 0
        feeds.append({"x": x})
    constants = {"w": normal(4, 1, 3, 2), "b": normal(4), "c": normal(9, 2)}
    check("WordConvEmbedding", feeds, domain=DOMAIN, constants=constants)
    data = model("WordConvEmbedding", [{"x": np.array([[0, 2, 3], [1, 2, 0]], np.int32)}], constants=constants, domain=DOMAIN)
    (y,) = pyonnx_wasm.InferenceSession(data).run(None, {"x": np.array([[0, 2, 3], [1, 2, 0]], np.int32)})
    assert not y[0].any()
    assert y[1].all()


POOLS = [
    ([3], {}),
    ([3, 2], {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ([3, 3], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ([2, 2, 2], {}),
]


@pytest.mark.parametrize(("kernel", "attributes"), POOLS)
@pytest.mark.parametrize("masks", [(1, 1), (1, 3), (2, 3)])
def test_maxima_under_a_mask(kernel: list[int], attributes: dict[str, Any], masks: tuple[int, int]) -> None:
    sizes = [[2, 3, *[n + k for k in range(len(kernel))]] for n in (7, 5, 4)]
    feeds: list[Feed] = [{"x": normal(*s), "m": whole(0, 4, *masks, *s[2:], dtype=np.int32)} for s in sizes]
    check("MaxpoolWithMask", feeds, domain=DOMAIN, kernel_shape=kernel, **attributes)


def layouts(count: int, blocks: int) -> tuple[Array, Array]:
    """Blocks in rows as compressed sparse rows have them; of the fewer ones -1 stands behind the last."""
    rng = np.random.default_rng(count)
    masks = [np.tril(rng.random((blocks, blocks)) < 0.5) | np.eye(blocks, dtype=bool) for _ in range(count)]
    columns = [np.nonzero(m)[1] for m in masks]
    most = max(map(len, columns))
    rows = np.array([np.cumsum([0, *m.sum(1)]) for m in masks], np.int32)
    return rows, np.array([[*c, *[-1] * (most - len(c))] for c in columns], np.int32)


def attended(data: bytes, feed: dict[str, Array]) -> list[Array]:
    """onnxruntime's outputs, which it writes into what it was given; a row at a time, as it errs where rows differ in length."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    rows = []
    for b in range(len(feed["q"])):
        one = {n: a[b : b + 1].copy() if n in ("q", "k", "v", "pk", "pv", "lengths") else a.copy() for n, a in feed.items()}
        one["total"] = one["lengths"]
        bound, held = session.io_binding(), {n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in one.items()}
        for n, v in held.items():
            bound.bind_ortvalue_input(n, v)
        bound.bind_output("y")
        bound.bind_ortvalue_output("ok", held["pk"])
        bound.bind_ortvalue_output("ov", held["pv"])
        session.run_with_iobinding(bound)
        rows.append([v.numpy().copy() for v in bound.get_outputs()])
    return [np.concatenate(parts) for parts in zip(*rows, strict=True)]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rotary", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}])
@pytest.mark.parametrize("count", [1, 2])
def test_sparse_attention(packed: bool, rotary: dict[str, int], count: int) -> None:
    """A prompt, one token behind pasts of several lengths, and some tokens behind a past."""
    heads, kv_heads, size, capacity = 4, 2, 16, 64
    rows, columns = layouts(count, 4)
    feeds = []
    for length, totals in ((20, [20, 20]), (1, [33, 17]), (3, [40]), (48, [48, 48])):
        batch = len(totals)
        given = {"q": normal(batch, length, (heads + 2 * kv_heads * packed) * size)}
        if not packed:
            given |= {n: normal(batch, length, kv_heads * size, seed=s) for s, n in enumerate("kv", 1)}
        for seed, name in enumerate(("pk", "pv"), 3):
            past = given[name] = normal(batch, kv_heads, capacity, size, seed=seed)
            for b, total in enumerate(totals):
                past[b, :, total - length :] = 0
        given |= {"rows": rows, "columns": columns, "total": np.array([max(totals)], np.int32), "lengths": np.array(totals, np.int32)}
        if rotary:
            given |= {"cos": np.cos(normal(capacity, 8)), "sin": np.sin(normal(capacity, 8))}
        feeds.append(given)
    names = [
        "q",
        *("kv" if not packed else ["", ""]),
        "pk",
        "pv",
        "rows",
        "columns",
        "total",
        "lengths",
        *(["cos", "sin"] if rotary else []),
    ]
    sizes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv_heads, "sparse_block_size": 16, **rotary}
    data = model("SparseAttention", feeds, ["y", "ok", "ov"], domain=DOMAIN, inputs=names, **sizes)
    expected = [attended(data, f) for f in feeds]
    for _, session in sessions(data):
        for feed, wanted in zip(feeds, expected, strict=True):
            for got, want in zip(session.run(None, feed), wanted, strict=True):
                same(got, want, 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32])
@pytest.mark.parametrize(("over", "across"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_sparse_times_dense(dtype: Any, over: int, across: int) -> None:
    """A sparse input, fed as onnxruntime's API has it, or dense."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain=DOMAIN, alpha=2.0, transA=over, transB=across)
    a = onnx.ValueInfoProto(name="a", type=helper.make_sparse_tensor_type_proto(kind, ["m", "k"]))
    b, y = (helper.make_tensor_value_info(n, kind, [None, None]) for n in "by")
    made = helper.make_model(
        helper.make_graph([node], "g", [a, b], [y]),
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)],
    )
    data = made.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    for optimise, session in sessions(data):
        for m, k, n in ((3, 5, 4), (6, 2, 3)):
            dense = whole(0, 9, m, k).astype(dtype)
            dense[whole(0, 3, m, k) > 0] = 0
            shape = ((n, m) if across else (m, n)) if over else (n, k) if across else (k, n)
            right, places = whole(0, 9, *shape).astype(dtype), np.flatnonzero(dense)
            at = np.ascontiguousarray(np.argwhere(dense))
            given = onnxruntime.SparseTensor.sparse_coo_from_numpy(dense.shape, dense.ravel()[places], at, PROCESSOR)
            held = {"a": onnxruntime.OrtValue.ort_value_from_sparse_tensor(given), "b": onnxruntime.OrtValue.ortvalue_from_numpy(right)}
            want = oracle.run_with_ort_values(None, held)[0].numpy()
            sparse = pyonnx_wasm.SparseTensor.sparse_coo_from_numpy(dense.shape, dense.ravel()[places], places)
            for given in (sparse, dense):
                (got,) = session.run(None, {"a": given, "b": right})
                same(got, want, 1e-6, 0, f"optimise={optimise}")
