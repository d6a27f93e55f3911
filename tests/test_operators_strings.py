"""Operators on strings against onnxruntime, Python's own strings and numpy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from test_strings import HOSTILE, Array, model, objects, same, sample, sessions, strings

import pyonnx_wasm as ort


def of_onnxruntime(data: bytes, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed))


@pytest.mark.parametrize("delimiter", [None, "", ",", "ab", "é", " "])
@pytest.mark.parametrize("maxsplit", [None, 0, 1, 2, 50])
def test_split(delimiter: str | None, maxsplit: int | None) -> None:
    rng = np.random.default_rng(len(str(delimiter)))
    attributes = {k: v for k, v in (("delimiter", delimiter), ("maxsplit", maxsplit)) if v is not None}
    pieces = ["a", "b", ",", "ab", "é", " ", "  ", "\t\n", "\u2003", "日本", "\0", "x" * 300]
    for session in sessions(model([helper.make_node("StringSplit", ["x"], ["y", "n"], **attributes)], {"x": ["n", "m"]}, ["y", "n"])):
        for shape in ((2, 3), (1, 1), (0, 3), (4, 0), (3, 9)):
            x = objects(["".join(rng.choice(pieces, rng.integers(0, 9))) for _ in range(shape[0] * shape[1])]).reshape(shape)
            want = [s.split(delimiter or None, -1 if maxsplit is None else maxsplit) for s in x.reshape(-1).tolist()]
            width = max(map(len, want), default=0)
            y, n = session.run(None, {"x": x})
            same(n, np.array([len(w) for w in want], np.int64).reshape(shape))
            same(y, objects([w + [""] * (width - len(w)) for w in want]).reshape(*shape, width))


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
def test_normalizer(action: str, sensitive: int) -> None:
    words = ["Monday", "monday", "MONDAY", "", "É", "é", "ß", "ΑΣ", "K", "İ", "ı", "ᾳ", "ɐ" * 9, "日本", "a\0B", "ǅ", "𐐀"]
    simple = {"ß": "ß", "ᾳ": "ᾼ", "İ": "i"}

    def cased(s: str, upper: bool) -> str:
        found = ""
        for c in s:
            other = c.upper() if upper else c.lower()
            found += other if len(other) == 1 else simple[c]
        return found

    stop = ["monday", "é", "日本"]
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action=action, is_case_sensitive=sensitive, stopwords=stop)
    for shape in ((-1,), (1, -1)):
        for session in sessions(model([node], {"x": ["n", "m"][: len(shape)]}, ["y"])):
            for x in (words, words[::-1] * 3, ["monday", "é"], []):
                kept = [
                    w
                    for w in x
                    if (w not in stop if sensitive else cased(w, action == "UPPER") not in [cased(s, action == "UPPER") for s in stop])
                ] or [""]
                want = kept if action == "NONE" else [cased(w, action == "UPPER") for w in kept]
                same(session.run(None, {"x": objects(x).reshape(shape)})[0], objects(want).reshape(shape))


PATTERNS = [
    "a.c", "(?i)é+", "a{2,3}", r"\d+", r"\pL+", r"\p{Lu}*", r"\PL", r"\p{^L}", "[[:alpha:]_]+", "^a$", "a|b|", "", "(a*)*",
    r"\w+\b", "(?s).*",
    "[^a]", r"\x{1F600}", r"\Qa.c\E", r"\Qa.c", "(?P<n>a)c?", r"\Aa\z", "(a|ab)(c|bcd)", "[[:^alpha:]]", "(?<n>a)", "a$b",
    "(?m)a$\nb", "(?m)^a\n^b$",
    "(?i)[k-m]+", "(?i:K)", r"[\d\-a]+", r"[\]a-]+", "[]a]", r"[^\s]+", "a{,2}", "a{2}", "a{0}b", "x*?y??", r"\101\x62\n?",
    "(?i)straße", "(?-s).", "[a-z0-9._]+@[a-z]+\\.(com|org)",
    r"(\w+\s)*\w+", "(?:(?:a|b)*c){2,}", r"\B", r"\ba\b", "[^[:space:]]*", "日.*", ".", "(|a)+", "((a{0,2}){0,2}){0,2}",
    r"[\pN\x{4E00}-\x{9FFF}]+", "a\\.c", r"\t", "(?U)a+", "a{2}b{1,}c?",
]  # fmt: skip
SUBJECTS = [
    "abc", "a\nc", "É", "éÉé", "aa", "aaaa", "12", "日本", "αβγ", "a_", "", "b", "😀", "a.c", "ac", "abcd", "xxxxxx", "a\nb", "K",
    "k", "K", "ss", "STRASSE", "STRAßE",
    "foo.bar@mail.com", "foo bar baz", "ababcbac", " ", "\t", "A", "Ab", "Ab\n", "٣", "xy", "\0", "]", "-", "a{,2}", "ſ", "aab",
    "abbbc", "日本語 text",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regex(pattern: str) -> None:
    data = model([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], {"x": ["n"]}, ["y"])
    (want,) = of_onnxruntime(data, {"x": objects(SUBJECTS)})
    for session in sessions(data)[:2]:
        (got,) = session.run(None, {"x": objects(SUBJECTS)})
        assert [s for s, a, b in zip(SUBJECTS, got, want, strict=True) if a != b] == []


@pytest.mark.parametrize(
    "pattern",
    ["a**", "(?=a)", "a{1001}", "[a", "\\", "x{2}{3}", "(", ")", "(a", "*", "a|*", "[b-a]", "(?P<>a)", "(?z)a", r"\1", r"\8",
    "[[:x:]]", r"\x{110000}", r"\p{Nope}", r"\xg1", "(?i-)", "[a-\\d]", r"\Z", "a{2,1}", "(?P=n)", "(?<!a)", "(?<=a)"],
)  # fmt: skip
def test_what_is_no_pattern_is_told(pattern: str) -> None:
    data = model([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern, name="n")], {"x": ["n"]}, ["y"])
    with pytest.raises(Exception, match="onnxruntime"):
        of_onnxruntime(data, {"x": objects(["a"])})
    with pytest.raises(ValueError, match=r"node 'n' \(RegexFullMatch\): pattern .* at \d+"):
        ort.InferenceSession(data)


def test_a_pattern_takes_no_more_time_for_hard_strings() -> None:
    data = model([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(a*)*(a|aa)+b")], {"x": ["n"]}, ["y"])
    session = ort.InferenceSession(data)
    assert session.run(None, {"x": ["a" * 20_000, "a" * 20_000 + "b"]})[0].tolist() == [False, True]


def cast(x: Array, to: int) -> Array:
    kind = TensorProto.STRING if x.dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(x.dtype)
    infos = [helper.make_tensor_value_info("x", kind, ["n"])]
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=to, name="c")], "g", infos, [helper.make_empty_tensor_value_info("y")]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]


def floats(dtype: Any) -> Array:
    """Random bits, neighbours of powers of two and ten, the ends of the range, zeros, infinities and NaN."""
    rng = np.random.default_rng(5)
    word = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    every = [np.frombuffer(rng.bytes(np.dtype(dtype).itemsize * 3000), word)]
    with np.errstate(all="ignore"):
        special = [
            0.0,
            -0.0,
            1,
            np.inf,
            -np.inf,
            np.nan,
            np.finfo(dtype).max,
            np.finfo(dtype).tiny,
            np.finfo(dtype).smallest_subnormal,
            0.1,
            1e-5,
            1e-4,
            123456.0,
        ]
        special += [10.0**k for k in range(-30, 31)] + [2.0**k for k in range(-30, 31)]
        near = np.array(special, dtype).view(word)
    return np.concatenate([*every, near, near + 1, near - 1]).view(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_as_strings_are_the_shortest_that_give_them_back(dtype: Any) -> None:
    x = floats(dtype)
    y = cast(x, TensorProto.STRING)
    most = 16 if dtype is np.float64 else 8
    for v, s in zip(x, y, strict=True):
        if not np.isfinite(v):
            assert s == ("NaN" if np.isnan(v) else "INF" if v > 0 else "-INF")
            continue
        want = np.format_float_scientific(v, unique=True, trim="-")
        digits, power = want.lstrip("-").split("e")
        assert s.startswith("-") == bool(np.signbit(v))
        assert ("e" in s) == (v != 0 and not -4 <= int(power) < most)
        assert s.lstrip("-").split("e")[0].replace(".", "").strip("0") == digits.replace(".", "").strip("0"), (v, s)
        assert float(s) == float(want)
    assert cast(np.array([0.1, 100, -0.0, 1e-5, 0.0001, 1.5e10, 12345678], np.float32), TensorProto.STRING).tolist() == [
        "0.1", "100", "-0", "1e-05", "0.0001", "1.5e+10", "12345678",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_strings_as_floats_are_the_nearest(dtype: Any) -> None:
    x = floats(dtype)
    x = x[np.isfinite(x)]
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    back = cast(objects([f" {s}\n" for s in cast(x, TensorProto.STRING)]), to)
    assert back.tobytes() == x.tobytes()
    texts = ["1e400", "-1e400", "1e-400", "1e99999999999", "0e99999999999", "9007199254740993",
    "9007199254740992.9999999999999999999999", "+.5", "5.", "1E2", "-0",
             "2.4703282292062327208e-324", "2.4703282292062328e-324", "1.7976931348623158e308", "1.7976931348623159e308",
             "3.4028235677973366e38", "3.4028235677973365e38",
             "1" + "0" * 900 + "e-900", "0." + "0" * 500 + "1e501", "179769313486231580793" + "0" * 288, "8.5899345928589934593e9",
             "0.000244140625" + "0" * 900 + "1", "16777217", "16777217.0000000001"]  # fmt: skip
    rng = np.random.default_rng(7)
    for _ in range(2000):
        texts.append(f"{rng.integers(0, 10**18)}{rng.integers(0, 10**18)}e{rng.integers(-345, 280)}")
    if dtype is not np.float16:  # which is cast from float32
        got = cast(objects(texts), to)
        want = np.array([float(t) for t in texts]) if dtype is np.float64 else np.array([single(t) for t in texts], np.float32)
        assert [t for t, a, b in zip(texts, got, want, strict=True) if a.tobytes() != b.tobytes()] == []
    words = cast(objects(["INF", "-inf", "+Inf", "NaN", "nan", "Infinity", "-INFINITY"]), to)
    np.testing.assert_array_equal(words, np.array([np.inf, -np.inf, np.inf, np.nan, np.nan, np.inf, -np.inf], dtype))


def single(text: str) -> np.float32:
    """The float32 nearest to a decimal, by exact arithmetic."""
    from fractions import Fraction

    mantissa, _, power = text.lower().partition("e")
    if abs(int(power or 0)) > 1000 and "000" not in mantissa:
        return np.float32(float(text))
    exact = Fraction(mantissa) * Fraction(10) ** int(power or 0)
    with np.errstate(over="ignore"):
        near = np.float32(float(text))
    bits = struct.unpack("<I", struct.pack("<f", abs(near)))[0]
    options = [struct.unpack("<f", struct.pack("<I", b))[0] for b in (max(bits - 1, 0), bits, bits + 1) if b <= 0x7F800000]
    top = Fraction(2) ** 128

    def distance(v: float) -> tuple[Fraction, int]:
        value = top if v == np.inf else Fraction(v)
        return abs(abs(exact) - value), struct.unpack("<I", struct.pack("<f", v))[0] & 1

    best = np.float32(min(options, key=distance))
    return np.float32(-best) if text.startswith("-") else best


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_integers(dtype: str) -> None:
    kind = np.dtype(dtype)
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    x = np.array([low, high, 0, 1, high // 3, low // 3], kind)
    texts = cast(x, TensorProto.STRING)
    assert texts.tolist() == [str(int(v)) for v in x]
    assert cast(texts, helper.np_dtype_to_tensor_dtype(kind)).tolist() == x.tolist()
    others = cast(objects([" +1 ", "1.9", "1e0", "007e-2"]), helper.np_dtype_to_tensor_dtype(kind)).tolist()
    assert others == ([True] * 4 if dtype == "bool" else [1, 1, 1, 0])


@pytest.mark.parametrize("bad", ["", " ", "a", "1a", "0x10", "1e", "e5", ".", "--1", "1_0", "١", "1 2", "+"])
@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL])
def test_what_is_no_number_names_the_node(bad: str, to: int) -> None:
    with pytest.raises(RuntimeError, match=r"^c: .*: a string is no number"):
        cast(objects(["1", bad]), to)


def test_integers_that_do_not_fit() -> None:
    for bad in ("9223372036854775808", "-9223372036854775809", "1e30", "inf", "nan"):
        with pytest.raises(RuntimeError, match=r"^c: .*: a string is no number that an integer of 64 bits holds"):
            cast(objects([bad]), TensorProto.INT64)


def test_cast_like_both_ways() -> None:
    nodes = [helper.make_node("CastLike", ["x", "i"], ["y"]), helper.make_node("CastLike", ["i", "x"], ["z"])]
    for session in sessions(model(nodes, {"x": ["n"], "i": ["n"]}, ["y", "z"])):
        y, z = session.run(None, {"x": ["1", "-20"], "i": np.array([3, -400])})
        same(y, np.array([1, -20]))
        same(z, objects(["3", "-400"]))


@pytest.mark.parametrize("keep_order", [0, 1])
def test_unique(keep_order: int) -> None:
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=keep_order)
    for session in sessions(model([node], {"x": ["n", "m"]}, ["y", "first", "inverse", "counts"])):
        for shape in ((3, 9), (1, 1), (0, 3), (20, 20)):
            x = sample(*shape)
            seen = list(dict.fromkeys(x.reshape(-1).tolist()))
            want = sorted(seen) if keep_order else seen
            y, first, inverse, counts = session.run(None, {"x": x})
            same(y, objects(want).reshape(-1))
            flat = x.reshape(-1).tolist()
            assert first.tolist() == [flat.index(w) for w in want]
            assert [want[i] for i in inverse] == flat
            assert counts.tolist() == [flat.count(w) for w in want]


def test_unique_rows() -> None:
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], axis=0)
    x = objects([["b", "é"], ["a", ""], ["b", "é"], ["a", "z"]])
    for session in sessions(model([node], {"x": ["n", 2]}, ["y", "first", "inverse", "counts"])):
        y, first, inverse, counts = session.run(None, {"x": x})
        same(y, objects([["a", ""], ["a", "z"], ["b", "é"]]))
        assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 3, 0], [2, 0, 2, 1], [1, 1, 2])


@pytest.mark.parametrize(
    ("mode", "places"),
    [(mode, places) for mode in ("TF", "IDF", "TFIDF") for places in ([2, 0, 1, 4, 3], [0, 1, 2, 3, 4], [7, 0, 3, 1, 5])]
    + [(mode, [1, 0, 1, 3, 3]) for mode in ("TF", "IDF", "TFIDF")],
)
def test_tfidf(mode: str, places: list[int]) -> None:
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=[0, 3],
        ngram_indexes=places, pool_strings=["a", "é", "", "a", "é", "é", "日本"], weights=[1.0, 2.0, 3.0, 4.0, 5.0],
    )  # fmt: skip
    data = model([node], {"x": ["n", "m"]}, ["y"])
    for shape in ((3, 7), (1, 1), (2, 40)):
        x = objects(["a", "é", "", "日本", "unknown", "aé"])[np.random.default_rng(shape).integers(0, 6, shape)]
        (want,) = of_onnxruntime(data, {"x": x})
        for session in sessions(data):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-6)


@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_idf_of_one_place_is_that_of_the_latest(seed: int, skip: int) -> None:
    """N-grams of one to three numbers that share places."""
    rng = np.random.default_rng(seed)
    grams = [sorted({tuple(map(int, g)) for g in rng.integers(0, 3, (4, n))}) for n in (1, 2, 3)]
    lengths = [len(g) * n for n, g in enumerate(grams, 1)]
    count = sum(map(len, grams))
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="IDF", min_gram_length=1 + seed % 2, max_gram_length=3, max_skip_count=skip,
        ngram_counts=[0, lengths[0], lengths[0] + lengths[1]], pool_int64s=[k for part in grams for g in part for k in g],
        ngram_indexes=rng.integers(0, 5, count).tolist(), weights=[float(w) for w in rng.permutation(count) + 1],
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", 7, ["n", "m"])
    graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", 1, None)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    for shape in ((2, 6), (1, 1), (3, 15)):
        given = {"x": rng.integers(0, 3, shape)}
        (want,) = of_onnxruntime(data, given)
        for session in sessions(data):
            np.testing.assert_array_equal(session.run(None, given)[0], want)


def test_large_vocabulary_stays_small() -> None:
    words = [f"w{i}" for i in range(3000)]
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
        ngram_indexes=list(range(3000)), pool_strings=words,
    )  # fmt: skip
    compiled = ort.compile(model([node], {"x": ["n", "m"]}, ["y"]))
    assert sum(weight.nbytes for weight in compiled.weights) < 100 * len(words)


def test_constants_fold(tmp_path: Any) -> None:
    """What depends on constants alone runs once, at load."""
    nodes = [
        helper.make_node("StringNormalizer", ["t"], ["u"], case_change_action="UPPER"),
        helper.make_node("StringSplit", ["u"], ["v", "n"], delimiter=" "),
        helper.make_node("Equal", ["v", "x"], ["y"]),
    ]
    for session in sessions(model(nodes, {"x": ["n"]}, ["y", "v"], [strings("t", objects(["a b", "ß é"]))])):
        y, v = session.run(None, {"x": ["A", "É"]})
        same(v, objects([["A", "B"], ["ß", "É"]]))
        assert y.tolist() == [[True, False], [False, True]]


def test_many_kinds_of_nothing() -> None:
    nodes: Sequence[Any] = [
        helper.make_node("StringConcat", ["x", "x"], ["a"]),
        helper.make_node("RegexFullMatch", ["a"], ["b"], pattern=".*"),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.STRING),
        helper.make_node("Unique", ["c"], ["d"]),
        helper.make_node("StringSplit", ["a"], ["e", "n"], delimiter="-"),
    ]
    for session in sessions(model(nodes, {"x": ["n", "m"]}, ["a", "c", "d", "e", "n"])):
        for shape in ((0, 0), (0, 7), (7, 0)):
            a, c, d, e, n = session.run(None, {"x": np.empty(shape, object)})
            assert [v.shape for v in (a, c, d, e, n)] == [shape, shape, (0,), (*shape, 0), shape]
        assert session.run(["d"], {"x": objects([HOSTILE])})[0].tolist() == ["1"]
