"""com.microsoft's Tokenizer against onnxruntime: expressions of every kind, on strings of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from test_operators_strings import PATTERNS, SUBJECTS
from test_strings import Array, objects

from pyonnx_wasm import InferenceSession, SessionOptions


def model(rank: int = 1, **attributes: Any) -> bytes:
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    node = helper.make_node("Tokenizer", ["x"], ["y"], "tok", domain="com.microsoft", **given)
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", "m"][:rank])
    graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", TensorProto.STRING, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def of_onnxruntime(data: bytes, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return np.asarray(onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0])


def check(xs: list[Array], **attributes: Any) -> None:
    """Several contents in one session, optimised and not."""
    data = model(xs[0].ndim, **attributes)
    want = [of_onnxruntime(data, x) for x in xs]
    for optimise in (True, False):
        session = InferenceSession(data, SessionOptions(enable_optimisation=optimise))
        for x, expected in zip(xs, want, strict=True):
            (got,) = session.run(None, {"x": x})
            assert got.shape == expected.shape, (attributes, x)
            assert got.tolist() == expected.tolist(), (attributes, x)


LINES = objects(
    ["Hello World", "I love  computer science !", "", " ", "日本 語, と é", "a,b,,c", "\x02\x03#", "x" * 300, "line\nline two\n"]
)
ODD = objects(SUBJECTS + [a + b for a, b in zip(SUBJECTS, SUBJECTS[::-1], strict=True)])


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("least", [1, 2, 5])
@pytest.mark.parametrize("rules", [[" "], ["[ ,]"], [" ", ",", "o"], ["l+", "[aeiou]"], ["", "b"], [r"\b"], ["^.", ".$"], ["o*"]])
def test_separators(rules: list[str], least: int, mark: int) -> None:
    check([LINES, LINES[:3], LINES[2:4]], separators=rules, mincharnum=least, mark=mark, pad_value="<é>")


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("rule", [{"separators": [""]}, {"tokenexp": "."}])
def test_characters(rule: dict[str, Any], mark: int) -> None:
    check([LINES, LINES[2:3], LINES[3:5]], **rule, mark=mark)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p and p != r"\B"])  # which cuts characters of several bytes in onnxruntime
def test_patterns(pattern: str) -> None:
    """The leftmost match, of those the longest, whatever comes first in the pattern or is said to be lazy."""
    check([ODD, ODD[:7]], tokenexp=pattern)
    check([ODD], separators=[pattern])


def test_random_patterns() -> None:
    rng = np.random.default_rng(3)
    atoms = ["a", "b", "[ab]", ".", "é", "^", "$", r"\b", "(a|ab)", "(b?)", "(?:ab|b)", "c"]
    for _ in range(150):
        pieces = [str(rng.choice(atoms)) + str(rng.choice(["", "", "*", "+", "?", "*?", "{1,2}"])) for _ in range(rng.integers(1, 5))]
        pattern = "".join(p if p[0] not in "^$\\" else p[: 2 if p[0] == "\\" else 1] for p in pieces)
        if rng.random() < 0.3:
            pattern += "|" + str(rng.choice(atoms))
        x = objects(["".join(rng.choice(["a", "b", "c", "é", " ", "\n"], rng.integers(0, 12))) for _ in range(30)])
        check([x], tokenexp=pattern)
        check([x], separators=[pattern, "c"], mincharnum=int(rng.integers(1, 3)))


def test_rows_and_columns() -> None:
    check([LINES.reshape(3, 3), LINES[:4].reshape(2, 2), LINES[2:4].reshape(1, 2)], separators=[" "], mark=1)


def test_no_strings_keep_the_new_axis() -> None:
    """onnxruntime leaves it out then, so that the rank would be data."""
    for shape in ((0,), (3, 0), (0, 3)):
        for mark in (0, 1):
            session = InferenceSession(model(len(shape), separators=[" "], mark=mark))
            (got,) = session.run(None, {"x": np.empty(shape, object)})
            assert got.shape == (*shape, 0)


def test_tokens_as_features() -> None:
    """As scikit-learn's vectorizers are exported: lower case, tokens, how often each occurs; the tokens of constants are folded."""
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["low"], case_change_action="LOWER"),
        helper.make_node("Tokenizer", ["low"], ["t"], mark=0, mincharnum=1, pad_value="#", tokenexp="[a-z]+", domain="com.microsoft"),
        helper.make_node("TfIdfVectorizer", ["t"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
                         ngram_counts=[0], ngram_indexes=[0, 1], pool_strings=["cat", "dog"]),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    lines = objects(["A cat, a dog and a CAT.", "no", "dog dog dog"])
    for backend in ("cpu", "wasmtime"):
        (got,) = InferenceSession(data, providers=[backend]).run(None, {"x": lines})
        np.testing.assert_array_equal(got, [[2, 1], [0, 0], [0, 3]])


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({}, "one of separators and tokenexp must be given"),
        ({"separators": [" "], "mincharnum": 0}, "mincharnum is 0, it must be positive"),
        ({"separators": [""], "mincharnum": 2}, "tokens are single characters"),
        ({"separators": ["(b"]}, r"pattern '\(b': a \( without its \) at 2"),
        ({"tokenexp": "a**"}, "a repetition of a repetition"),
        ({"separators": ["a"] * 257}, "257 separators; at most 256"),
    ],
)
def test_what_is_wrong_names_the_node(attributes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=rf"node 'tok' \(Tokenizer\): .*{told}"):
        InferenceSession(model(**attributes))


def test_long_strings_take_time_in_proportion() -> None:
    """A pattern that looks ahead to the end of a long string at each match is refused while it runs."""
    session = InferenceSession(model(tokenexp="(a*)*(a|aa)+b|c"))
    assert session.run(None, {"x": objects(["a" * 50_000, "a" * 50_000 + "b", "c"])})[0].shape == (3, 1)
    ahead = InferenceSession(model(tokenexp="a|a.*b"))
    assert ahead.run(None, {"x": objects(["a" * 200])})[0].shape == (1, 200)
    with pytest.raises(RuntimeError, match=r"tok: .*looks too far ahead"):
        ahead.run(None, {"x": objects(["a" * 20_000])})
    assert ahead.run(None, {"x": objects(["ab"])})[0].tolist() == [["ab"]]
