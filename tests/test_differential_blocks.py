"""The judge of products with weights in blocks: what the weights mean, and that it is strict beyond what rounding allows."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from gguf_models import blocks as drawn
from onnx import numpy_helper

from pyonnx_wasm.testing.differential import backends, blocks, cases, judge, oracles
from pyonnx_wasm.testing.differential.sketch import Case

ONLY = r"^com.microsoft.MatMulNBits$|^org.ggml"


@pytest.mark.parametrize("kind", blocks.TYPES)
def test_blocks_mean_what_ggml_makes_of_them(kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    per, size = blocks.TYPES[kind]
    assert gguf.GGML_QUANT_SIZES[number] == (per, size)
    data = drawn(kind, 7, 512, np.random.default_rng(3))
    found = blocks.ggml(kind, data.reshape(7, 512 // per, size)).weights
    np.testing.assert_array_equal(found.astype(np.float32), gguf.quants.dequantize(data, number))


def test_products_are_those_of_the_reference() -> None:
    compared = 0
    for index in range(60):
        case = cases.case(5, index, r"^com.microsoft.MatMulNBits$")
        wide = [a for a in map(numpy_helper.to_array, case.model.graph.initializer) if a.dtype.kind in "fV"]  # V: bfloat16
        if not all(np.isfinite(a.astype(np.float64)).all() for a in (*wide, *(a for feeds in case.runs for a in feeds.values()))):
            continue
        try:
            theirs = oracles.wide(case)
        except oracles.Refused:
            continue
        ours = blocks.wanted(case)
        assert ours is not None
        for made, (want, *_) in zip(theirs, ours, strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                y = made[0].astype(want.low.dtype)
                inside = (want.low <= y) & (y <= want.high)
            assert (inside | want.free).all(), index
            compared += y.size
    assert compared > 5000


def test_every_case_is_judged_and_of_many_kinds() -> None:
    made: list[Case] = [cases.case(6, index, ONLY) for index in range(400)]
    assert all(blocks.wanted(case) is not None for case in made)
    nodes = [(case.model.graph.node[0], case) for case in made]
    types = {a.s.decode() for node, _ in nodes for a in node.attribute if a.name == "type"}
    assert types == set(blocks.TYPES)
    given: dict[str, set[Any]] = {name: set() for name in ("bits", "block_size", "accuracy_level", "K", "N")}
    for node, _ in nodes:
        for a in node.attribute:
            if a.name in given:
                given[a.name].add(a.i)
    assert given["bits"] == {2, 4, 8}
    assert given["block_size"] == {16, 32, 64, 128, 256, 512}
    assert {0, 1, 2, 4} <= given["accuracy_level"]
    assert 0 in given["K"]
    assert 0 in given["N"]
    rows = {int(np.prod(feeds[node.input[0]].shape[:-1])) for node, case in nodes if "MatMul" in case.name for feeds in case.runs}
    assert {0, 1, 2, 3, 4} <= rows
    assert max(rows) > 150


@pytest.mark.parametrize("kind", ["com.microsoft.MatMulNBits", "org.ggml.MatMul"])
def test_what_is_beyond_the_bound_is_wrong(kind: str) -> None:
    tried = 0
    for index in range(40):
        case = cases.case(7, index, f"^{kind}$")
        (answer,) = backends.native("cpu", plain=False)(case)
        want = blocks.wanted(case)
        assert answer.runs is not None
        assert want is not None
        assert judge.judge(case, [answer]).status == "agrees"
        (bound, *_), (y, *rest) = want[0], answer.runs[0]
        with np.errstate(all="ignore"):
            plain = ~bound.free & ~bound.broken & (np.abs(bound.high.astype(np.float64)) < 1e30)
        for at in np.argwhere(plain)[:3]:
            off = y.copy()
            off[tuple(at)] = np.nextafter(bound.high[tuple(at)], np.asarray(np.inf, y.dtype))
            assert judge.judge(case, [judge.Answer([[off, *rest], *answer.runs[1:]])]).status == "wrong"
            off[tuple(at)] = np.nan
            assert judge.judge(case, [judge.Answer([[off, *rest], *answer.runs[1:]])]).status == "wrong"
            tried += 1
    assert tried > 40
