"""Kernels of strings on spans, pools, tables and automata that no compiler would write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call import refused, run

from pyonnx_wasm.onnxfile.strings import encode
from pyonnx_wasm.runtimes.core import BAD_DATA

Array = np.ndarray[Any, Any]
WORDS = ["a", "", "\0", "日本", "a" * 300, "é", "a", "𝄞x"]
OUTSIDE = [-1, -(1 << 63), 1 << 62, (1 << 32) - 1, 500 << 32 | 1, 0x7FFFFFFF << 32 | 0xFFFFFFFF]


def spans(*items: tuple[int, int]) -> Array:
    return np.array([start << 32 | size for start, size in items], np.int64)


def calls(x: Array, pool: Array) -> dict[str, tuple[list[Any], list[Array | None], dict[str, int]]]:
    """Each kernel on strings x: outputs, inputs, parameters."""
    n = len(x)
    good, bytes_ = encode(["a", "b"], "")
    total = sum(int(s) & 0xFFFFFFFF for s in x)
    table = np.array([[97, 65]], np.int32)
    states = np.array([[1, 1, 3], [2, 0, 1], [1, 0, 0], [0, 0, 0]], np.int32)  # .*
    ranges = np.array([[0, 0x10FFFF]], np.int32)
    return {
        "string_equal": ([("bool", (n,))], [x, pool, x, pool], {"n": n}),
        "string_find": ([("int64", (n,))], [x, pool, good, bytes_, np.array([0, 1])], {"n": n, "count": 2}),
        "string_order": ([("int64", (n,)), ("int64", (n,))], [x, pool], {"n": n}),
        "string_join": ([("int64", (n,)), ("uint8", (total,))], [x, pool, None, None], {"n": n, "total": total}),
        "string_split": ([None, ("int64", (n,))], [x, pool, np.frombuffer(b"a", np.uint8)], {"n": n, "most": -1}),
        "string_case": ([("int64", (n,)), ("uint8", (2 * total,))], [x, pool, table], {"n": n, "rows": 1, "room": 2 * total}),
        "string_match": ([("bool", (n,))], [x, pool, states, ranges], {"n": n, "size": 4, "count": 1}),
        "string_tokens": (
            [None, ("int64", (n,))],
            [x, pool, states, ranges, np.zeros(1, np.int32)],
            {"n": n, "rules": 1, "size": 4, "count": 1, "least": 1, "between": 0},
        ),
        "string_parse": ([("float64", (n,))], [x, pool], {"n": n}),
    }


KERNELS = list(calls(*encode(["1"], "")))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_spans_outside_the_pool(name: str, threads: int) -> None:
    words = WORDS if name != "string_parse" else ["1", "2.5", "inf"]
    x, pool = encode(words, "")
    outs, ins, params = calls(x, pool)[name]
    run(name, outs, ins, threads, **dict(params))
    for bad in OUTSIDE:
        for place in (0, len(x) - 1):
            wrong = x.copy()
            wrong[place] = bad
            refused(name, outs, [wrong if v is x else v for v in ins], threads, code=BAD_DATA, **dict(params))
    refused(name, outs, [np.empty(0, np.uint8) if v is pool else v for v in ins], threads, code=BAD_DATA, **dict(params))


@pytest.mark.parametrize("name", KERNELS)
def test_sizes_that_do_not_fit(name: str) -> None:
    outs, ins, params = calls(*encode(["1", "22"], ""))[name]
    for key in params:
        for bad in (params[key] + 1 if key != "most" else None, 1 << 62, -(1 << 62)):
            if bad is not None and key not in ("most", "total", "room", "least", "between"):
                refused(name, outs, ins, **{**params, key: bad})
    if "total" in params:
        refused(name, outs, ins, **{**params, "total": 4})
        refused(name, outs, ins, code=BAD_DATA, **{**params, "total": 2})


def test_spans_may_overlap_and_repeat() -> None:
    pool = np.frombuffer("日本 a b".encode(), np.uint8)
    x = spans((0, 10), (7, 1), (0, 0), (10, 0), (0, 10), (6, 4))
    y = run("string_equal", [("bool", (6,))], [x, pool, x[::-1].copy(), pool], n=6)
    assert y.tolist() == [False, False, True, True, False, False]
    order, rank = run("string_order", [("int64", (6,)), ("int64", (6,))], [x, pool], n=6)
    assert order.tolist() == [2, 3, 5, 1, 0, 4]
    assert rank.tolist() == [3, 2, 0, 0, 3, 1]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    """Code points that are none, cut sequences, surrogates, what is longer than need be: U+FFFD for each byte, in the pool's bounds."""
    for raw in (b"\xff", b"\xc3", b"a\xe6\x97", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80\x80", b"\xf0\x9d\x84"):
        pool = np.frombuffer(raw, np.uint8)
        x = spans((0, len(raw)))
        y, cased = run("string_case", [("int64", (1,)), ("uint8", (40,))], [x, pool, np.array([[97, 65]], np.int32)], n=1, rows=1, room=40)
        size = int(y[0]) & 0xFFFFFFFF
        assert cased[:size].tobytes().decode() == "".join("A" if b == 97 else "\ufffd" for b in raw)
        assert not cased[size:].any()


def test_orders_that_are_none() -> None:
    table, pool = encode(["a", "b", "c"], "")
    for place in (3, -1, 1 << 62):
        order = np.full(3, place)
        refused("string_find", [("int64", (3,))], [table, pool, table, pool, order], n=3, count=3, code=BAD_DATA)
    y = run("string_find", [("int64", (3,))], [table, pool, table, pool, np.array([2, 1, 0])], n=3, count=3)
    assert set(y.tolist()) <= {-1, 0, 1, 2}  # not sorted: nothing is found, or what is there


@pytest.mark.parametrize(
    "states",
    [
        [[1, 1, 4], [0, 0, 0]],
        [[1, -1, 1], [0, 0, 0]],
        [[9, 0, 0], [0, 0, 0]],
        [[-1, 0, 0], [0, 0, 0]],
        [[2, 0, 2], [0, 0, 0]],
        [[2, -1, 1], [0, 0, 0]],
        [[2, 0, -1], [0, 0, 0]],
        [[2, 0x7FFFFFFF, 0x7FFFFFFF], [0, 0, 0]],
        [[3, 0, 0]],
        [[2, 0, 1]],
    ],
)
def test_damaged_automata(states: list[list[int]]) -> None:
    x, pool = encode(["a"], "")
    ins = [x, pool, np.array(states, np.int32), np.array([[0, 0x10FFFF]], np.int32)]
    sizes = {"n": 1, "size": len(states), "count": 1}
    refused("string_match", [("bool", (1,))], ins, **sizes, code=BAD_DATA)
    starts = np.zeros(1, np.int32)
    refused("string_tokens", [None, ("int64", (1,))], [*ins, starts], **sizes, rules=1, least=1, between=1, code=BAD_DATA)


@pytest.mark.parametrize("start", [-1, 2, 0x7FFFFFFF])
def test_expressions_that_begin_nowhere(start: int) -> None:
    x, pool = encode(["a"], "")
    ins = [x, pool, np.array([[2, 0, 1], [0, 0, 0]], np.int32), np.array([[0, 0x10FFFF]], np.int32), np.array([0, start], np.int32)]
    sizes = {"n": 1, "rules": 2, "size": 2, "count": 1, "least": 0, "between": 0}
    refused("string_tokens", [None, ("int64", (1,))], ins, **sizes, code=BAD_DATA)
    refused("string_tokens", [None, ("int64", (1,))], ins, **{**sizes, "rules": 3})


def test_more_pieces_than_were_counted() -> None:
    x, pool = encode(["ab"], "")
    ins = [x, pool, np.array([[2, 0, 1], [0, 0, 0]], np.int32), np.array([[0, 0x10FFFF]], np.int32), np.zeros(1, np.int32)]
    sizes = {"n": 1, "rules": 1, "size": 2, "count": 1, "least": 1, "between": 0}
    refused("string_tokens", [("int64", (1, 1)), None], ins, **sizes, width=1, code=BAD_DATA)
    assert run("string_tokens", [("int64", (1, 3)), None], ins, **sizes, width=3).tolist() == [[1, 1 << 32 | 1, 0]]


def test_automata_that_turn_in_circles_end() -> None:
    x, pool = encode(["a" * 5000, ""], "")
    circle = np.array([[1, 0, 1], [1, 2, 0], [1, 1, 1]], np.int32)
    y = run("string_match", [("bool", (2,))], [x, pool, circle, np.zeros((0, 2), np.int32)], n=2, size=3, count=0)
    assert y.tolist() == [False, False]


def test_tables_that_hold_no_code_points() -> None:
    x, pool = encode(["a"], "")
    for to in (0x110000, -1):
        ins = [x, pool, np.array([[97, to]], np.int32)]
        refused("string_case", [("int64", (1,)), ("uint8", (8,))], ins, n=1, rows=1, room=8, code=BAD_DATA)
    refused("string_case", [("int64", (1,)), ("uint8", (0,))], [x, pool, np.zeros((0, 2), np.int32)], n=1, rows=0, room=0, code=BAD_DATA)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
def test_numbers_keep_to_their_pieces(dtype: str) -> None:
    kind = np.dtype(dtype)
    x = np.array([0, 1], kind) if kind.kind == "b" else np.array(
        [-np.finfo(kind).max, np.finfo(kind).smallest_subnormal] if kind.kind == "f" else [np.iinfo(kind).min, np.iinfo(kind).max], kind
    )  # fmt: skip
    y, pool = run("string_format", [("int64", (2,)), ("uint8", (64,))], [x], n=2)
    assert [int(s) >> 32 for s in y] == [0, 32]
    assert all(int(s) & 0xFFFFFFFF <= 32 for s in y)
    assert kind.type(float(pool[: int(y[0]) & 31].tobytes())) == x[0]
    refused("string_format", [("int64", (2,)), ("uint8", (63,))], [x], n=2)
