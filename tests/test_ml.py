"""Linear models, support vector machines and what is done to features, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_call import refused, run
from ml_models import BRANCHES, Array, compare, expected, one_node, random_rows, random_trees
from onnx import TensorProto, helper, numpy_helper

import pyonnx_wasm
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.program import file
from pyonnx_wasm.runtimes import core
from pyonnx_wasm.runtimes.core import CoreError

POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
SIZES = (4, 0, 1, 37)


def feeds(rng: np.random.Generator, features: int, dtype: str = "float32", special: bool = False) -> list[dict[str, Array]]:
    return [{"x": random_rows(rng, n, features, dtype, special and n > 1)} for n in SIZES]


def floats(rng: np.random.Generator, *shape: int) -> list[float]:
    return np.asarray(rng.normal(size=shape), np.float32).reshape(-1).tolist()


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_regressor(targets: int, post: str, bias: bool) -> None:
    rng = np.random.default_rng(targets)
    more = {"intercepts": floats(rng, targets)} if bias else {}
    data = one_node(
        "LinearRegressor", {"x": ("float32", 2)}, {"y": "float32"}, 1,
        coefficients=floats(rng, targets, 5), targets=targets, post_transform=post, **more,
    )  # fmt: skip
    compare(data, feeds(rng, 5), rtol=1e-3 if post == "PROBIT" else 1e-5, atol=1e-3 if post == "PROBIT" else 1e-5)


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize(("rows", "labels"), [(1, [4, 9]), (2, [4, 9]), (3, [2, 1, 0]), (4, [0, 1, 2, 3])])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_linear_classifier(dtype: str, rows: int, labels: list[int], post: str) -> None:
    rng = np.random.default_rng(rows)
    if post == "PROBIT" and rows == 1:
        return  # onnxruntime leaves one of the scores as it was in memory
    data = one_node(
        "LinearClassifier", {"x": (dtype, 2)}, {"y": "int64", "z": "float32"}, 1, classlabels_ints=labels,
        coefficients=floats(rng, rows, 5), intercepts=floats(rng, rows), post_transform=post,
    )  # fmt: skip
    compare(data, feeds(rng, 5, dtype), rtol=1e-3 if post == "PROBIT" else 1e-5, atol=1e-3 if post == "PROBIT" else 1e-5)


KERNELS = [("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.3, 0.5, 2.0]), ("POLY", [0.3, 0.5, 3.0]), ("POLY", [0.3, 2.0, 4.0]),
           ("RBF", [0.4, 0.0, 0.0]), ("SIGMOID", [0.2, 0.1, 0.0])]  # fmt: skip


@pytest.mark.parametrize(("kind", "params"), KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("supports", [0, 7])
def test_svm_regressor(kind: str, params: list[float], one_class: int, supports: int) -> None:
    rng = np.random.default_rng(supports)
    more = {"support_vectors": floats(rng, supports, 5)} if supports else {}
    data = one_node(
        "SVMRegressor", {"x": ("float32", 2)}, {"y": "float32"}, 1, coefficients=floats(rng, supports or 5), kernel_params=params,
        kernel_type=kind, n_supports=supports, one_class=one_class, rho=floats(rng, 1), **more,
    )  # fmt: skip
    compare(data, feeds(rng, 5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kind", range(len(KERNELS)))
def test_svm_classifier(kind: int, classes: int, probabilities: bool, post: str) -> None:
    rng = np.random.default_rng((kind, classes))
    name, params = KERNELS[kind]
    counts = [int(c) for c in rng.integers(1, 4, classes)]
    pairs = classes * (classes - 1) // 2
    more = {"prob_a": floats(rng, pairs), "prob_b": floats(rng, pairs)} if probabilities else {}
    data = one_node(
        "SVMClassifier", {"x": (["float32", "float64", "int64"][kind % 3], 2)}, {"y": "int64", "z": "float32"}, 1,
        classlabels_ints=list(range(10, 10 + classes)), coefficients=floats(rng, classes - 1, sum(counts)), kernel_params=params,
        kernel_type=name, post_transform=post, rho=floats(rng, pairs), support_vectors=floats(rng, sum(counts), 5),
        vectors_per_class=counts, **more,
    )  # fmt: skip
    compare(data, feeds(rng, 5, ["float32", "float64", "int64"][kind % 3]), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_svm_classifier(classes: int, positive: bool, post: str) -> None:
    rng = np.random.default_rng(classes)
    coefficients = np.abs(floats(rng, classes, 5)).tolist() if positive else floats(rng, classes, 5)
    data = one_node(
        "SVMClassifier", {"x": ("float32", 2)}, {"y": "int64", "z": "float32"}, 1, classlabels_ints=list(range(3, 3 + classes)),
        coefficients=coefficients, kernel_params=[0.0, 0.0, 0.0], kernel_type="LINEAR", post_transform=post, rho=floats(rng, 1),
    )  # fmt: skip
    compare(data, feeds(rng, 5), rtol=1e-5, atol=1e-5)


# ---- features ----


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_normalizer(dtype: str, norm: str) -> None:
    rng = np.random.default_rng(0)
    given = feeds(rng, 5, dtype)
    given[0]["x"][1] = 0
    given[0]["x"][2] = -np.abs(given[0]["x"][2])
    compare(one_node("Normalizer", {"x": (dtype, 2)}, {"y": "float32"}, 1, norm=norm), given)
    vector = np.array([3, -4, 0, 1]).astype(dtype)
    compare(one_node("Normalizer", {"x": (dtype, 1)}, {"y": "float32"}, 1, norm=norm), [{"x": vector}])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("each", [False, True])
def test_scaler(dtype: str, each: bool) -> None:
    rng = np.random.default_rng(1)
    n = 5 if each else 1
    data = one_node("Scaler", {"x": (dtype, 2)}, {"y": "float32"}, 1, offset=floats(rng, n), scale=floats(rng, n))
    compare(data, feeds(rng, 5, dtype, special=True))


@pytest.mark.parametrize("missing", [np.nan, -1.0, 0.0])
@pytest.mark.parametrize("each", [False, True])
def test_imputer(missing: float, each: bool) -> None:
    rng = np.random.default_rng(2)
    data = one_node(
        "Imputer", {"x": ("float32", 2)}, {"y": "float32"}, 1,
        imputed_value_floats=floats(rng, 5 if each else 1), replaced_value_float=missing,
    )  # fmt: skip
    given = feeds(rng, 5)
    given[0]["x"][rng.random((4, 5)) < 0.4] = missing
    given[0]["x"][0] = [0.0, -0.0, np.nan, np.inf, -1]
    compare(data, given)


@pytest.mark.parametrize("each", [False, True])
def test_imputer_of_integers(each: bool) -> None:
    rng = np.random.default_rng(3)
    values = [1 << 40, 2, 3, 4, 5] if each else [1 << 40]
    data = one_node("Imputer", {"x": ("int64", 2)}, {"y": "int64"}, 1, imputed_value_int64s=values, replaced_value_int64=1)
    compare(data, feeds(rng, 5, "int64"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_feature_vectorizer(dtype: str) -> None:
    rng = np.random.default_rng(4)
    data = one_node("FeatureVectorizer", {"a": (dtype, 2), "b": (dtype, 2)}, {"y": "float32"}, 1, inputdimensions=[2, 3])
    compare(data, [{"a": random_rows(rng, n, 2, dtype, False), "b": random_rows(rng, n, 3, dtype, False)} for n in (3, 1, 8)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_array_feature_extractor(dtype: str) -> None:
    rng = np.random.default_rng(5)
    data = one_node("ArrayFeatureExtractor", {"x": (dtype, 2), "i": ("int64", 1)}, {"y": dtype}, 1)
    compare(
        data, [{"x": random_rows(rng, n, 5, dtype, False), "i": np.array(i, np.int64)} for n, i in ((3, [4]), (2, [0, 0, 3]), (0, [1]))]
    )


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "float64"])
def test_binarizer(dtype: str) -> None:
    data = one_node("Binarizer", {"x": (dtype, 2)}, {"y": dtype}, 1, threshold=0.5)
    if dtype == "float32":
        compare(data, feeds(np.random.default_rng(6), 5, dtype))
    x = random_rows(np.random.default_rng(6), 6, 5, dtype, False)
    np.testing.assert_array_equal(pyonnx_wasm.InferenceSession(data).run(None, {"x": x})[0], (x > 0.5).astype(dtype))


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(7,), (5, 1), (2, 3), (0, 1)])
def test_one_hot_encoder(dtype: str, shape: tuple[int, ...]) -> None:
    data = one_node("OneHotEncoder", {"x": (dtype, len(shape))}, {"y": "float32"}, 1, cats_int64s=[5, -1, 3, 0], zeros=1)
    x = np.random.default_rng(7).integers(-2, 7, shape).astype(dtype)
    want = (x[..., None] == [5, -1, 3, 0]).astype(np.float32)
    np.testing.assert_array_equal(pyonnx_wasm.InferenceSession(data).run(None, {"x": x})[0], want)
    if dtype != "int32":  # onnxruntime has none
        compare(data, [{"x": x}])


def test_an_unknown_category_is_an_error_where_zeros_are_none() -> None:
    session = pyonnx_wasm.InferenceSession(one_node("OneHotEncoder", {"x": ("int64", 1)}, {"y": "float32"}, 1, cats_int64s=[5, 3], zeros=0))
    np.testing.assert_array_equal(session.run(None, {"x": np.array([3, 5])})[0], [[0, 1], [1, 0]])
    with pytest.raises(Exception, match=r"OneHotEncoder.*none of those"):
        session.run(None, {"x": np.array([3, 4])})


NUMERIC = {"int64": ("int64s", [4, -2, 7, 4]), "float32": ("floats", [0.5, np.nan, -0.0, 0.5])}


@pytest.mark.parametrize("keys", NUMERIC)
@pytest.mark.parametrize("values", NUMERIC)
@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("version", [2, 4])
def test_label_encoder_of_lists(version: int, keys: str, values: str, default: bool) -> None:
    """NaN is a key like others from version 4 on."""
    own: dict[str, Any] = {"int64": [10, 20, 30, 40], "float32": [1.5, np.inf, np.nan, 2.5]}
    more = {"default_" + {"int64": "int64", "float32": "float"}[values]: 99} if default else {}
    if "default_float" in more:
        more["default_float"] = 99.0
    attributes = {f"keys_{NUMERIC[keys][0]}": NUMERIC[keys][1], f"values_{NUMERIC[values][0]}": own[values], **more}
    data = one_node("LabelEncoder", {"x": (keys, 2)}, {"y": values}, version, **attributes)
    x = np.array([[4, -2, 7], [0, 1, 8]]) if keys == "int64" else np.array([[0.5, np.nan, 0.0], [-0.0, 3, -np.inf]], np.float32)
    compare(data, [{"x": x}, {"x": x[:0]}])


@pytest.mark.parametrize("keys", ["int64", "int16", "float32", "float64"])
@pytest.mark.parametrize("values", ["int64", "int16", "float32", "float64"])
def test_label_encoder_of_tensors(keys: str, values: str) -> None:
    data = one_node(
        "LabelEncoder", {"x": (keys, 1)}, {"y": values}, 4,
        keys_tensor=numpy_helper.from_array(np.array([4, -2, 7], keys)), values_tensor=numpy_helper.from_array(np.array([1, 2, 3], values)),
        default_tensor=numpy_helper.from_array(np.array([-5], values)),
    )  # fmt: skip
    x = np.array([7, 0, 4, 5, -2, 9, 7], keys)
    want = np.array([3, -5, 1, -5, 2, -5, 3], values)
    np.testing.assert_array_equal(pyonnx_wasm.InferenceSession(data).run(None, {"x": x})[0], want)


@pytest.mark.parametrize(
    ("op", "attributes", "told"),
    [
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}, "3 coefficients"),
        ("Normalizer", {"norm": "L3"}, "'L3'"),
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "offset has 2 numbers|do not broadcast"),
        ("Imputer", {"imputed_value_int64s": [1]}, "imputed_value_floats is missing"),
        ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "1 inputs, 2 inputdimensions"),
        ("LabelEncoder", {"keys_floats": [1.0]}, "one of values_floats"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_floats": [1.0, 2.0]}, "1 keys, 2 values"),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0], "n_supports": 2, "support_vectors": [1.0] * 5}, "not 2 support vectors"),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0], "n_supports": 1, "support_vectors": [1.0] * 3, "kernel_type": "X"}, "'X'"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(op: str, attributes: dict[str, Any], told: str) -> None:
    node = {"x": ("float32", 2)}
    data = one_node(op, node, {"y": "float32"}, 2, **attributes)
    with pytest.raises((IRError, CoreError), match=told):
        pyonnx_wasm.InferenceSession(
            data,
        ).run(None, {"x": np.zeros((2, 3), np.float32)})


# ---- strings ----

WORDS = np.array([["b", "über"], ["", "zzz"], ["a", "b"]], object)


@pytest.mark.parametrize("labels", [["no", "yes"], ["", "ü", "long label"]])
def test_labels_that_are_strings(labels: list[str]) -> None:
    rng = np.random.default_rng(0)
    n = len(labels)
    linear = one_node(
        "LinearClassifier", {"x": ("float32", 2)}, {"y": "string", "z": "float32"}, 1, classlabels_strings=labels,
        coefficients=floats(rng, n, 5), intercepts=floats(rng, n),
    )  # fmt: skip
    machine = one_node(
        "SVMClassifier", {"x": ("float32", 2)}, {"y": "string", "z": "float32"}, 1, classlabels_strings=labels,
        coefficients=floats(rng, n - 1, n), kernel_params=[0.5, 0.0, 0.0], kernel_type="RBF", rho=floats(rng, n * (n - 1) // 2),
        support_vectors=floats(rng, n, 5), vectors_per_class=[1] * n,
    )  # fmt: skip
    nodes, weights = random_trees(rng, 3, 3, 5, n, BRANCHES, n)
    trees = one_node(
        "TreeEnsembleClassifier", {"x": ("float32", 2)}, {"y": "string", "z": "float32"}, classlabels_strings=labels,
        **{f"nodes_{k}": v for k, v in nodes.items()}, **{f"class_{k}": v for k, v in weights.items()},
    )  # fmt: skip
    for data in (linear, machine, trees):
        compare(data, feeds(rng, 5), rtol=1e-4, atol=1e-4)


def test_one_hot_encoder_of_strings() -> None:
    data = one_node("OneHotEncoder", {"x": ("string", 2)}, {"y": "float32"}, 1, cats_strings=["a", "über", "", "c"])
    compare(data, [{"x": WORDS}, {"x": WORDS[:0]}, {"x": WORDS[:1]}])
    strict = one_node("OneHotEncoder", {"x": ("string", 2)}, {"y": "float32"}, 1, cats_strings=["a", "b"], zeros=0)
    with pytest.raises(CoreError, match="none of those"):
        pyonnx_wasm.InferenceSession(strict).run(None, {"x": WORDS})


STRINGS = ["über", "b", "", "über"]


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("values", ["string", *NUMERIC])
@pytest.mark.parametrize("keys", ["string", *NUMERIC])
def test_label_encoder_of_strings(keys: str, values: str, version: int) -> None:
    if "string" not in (keys, values):
        return
    lists: dict[str, tuple[str, Any]] = {"string": ("strings", STRINGS), **NUMERIC}
    attributes = {f"keys_{lists[keys][0]}": lists[keys][1]}
    attributes[f"values_{lists[values][0]}"] = ["one", "", "drei", "x"] if values == "string" else [1, 2, 3, 4]
    if values == "float32":
        attributes["values_floats"] = [1.0, 2.0, 3.0, 4.0]
    x = {"string": WORDS, "int64": np.array([[4, -2, 7], [0, 1, 8]]), "float32": np.array([[0.5, 0, 1], [-0.0, 3, np.inf]], np.float32)}[
        keys
    ]
    data = one_node("LabelEncoder", {"x": (keys, 2)}, {"y": values}, version, **attributes)
    compare(data, [{"x": x}, {"x": x[:0]}])


@pytest.mark.parametrize("values", ["int64", "float32", "string"])
def test_label_encoder_of_tensors_of_strings(values: str) -> None:
    given = np.array(["p", "q"], object) if values == "string" else np.array([5, 6], values)
    default = np.array(["?"], object) if values == "string" else np.array([9], values)
    data = one_node(
        "LabelEncoder", {"x": ("string", 2)}, {"y": values}, 4, keys_tensor=helper.make_tensor("k", TensorProto.STRING, [2], [b"b", b"a"]),
        values_tensor=_tensor(given), default_tensor=_tensor(default),
    )  # fmt: skip
    compare(data, [{"x": WORDS}])


def _tensor(array: Array) -> TensorProto:
    if array.dtype == object:
        return helper.make_tensor("v", TensorProto.STRING, array.shape, [s.encode() for s in array])
    return numpy_helper.from_array(array, "v")


def test_label_encoder_1_and_category_mapper() -> None:
    names = one_node("LabelEncoder", {"x": ("int64", 1)}, {"y": "string"}, 1, classes_strings=STRINGS[:3], default_string="?")
    compare(names, [{"x": np.array([0, 2, 5, -1])}])
    compare(one_node("LabelEncoder", {"x": ("string", 2)}, {"y": "int64"}, 1, classes_strings=STRINGS[:3]), [{"x": WORDS}])
    mapping: dict[str, Any] = {"cats_int64s": [7, 5, 3], "cats_strings": STRINGS[:3], "default_int64": -9, "default_string": "?"}
    compare(one_node("CategoryMapper", {"x": ("int64", 1)}, {"y": "string"}, 1, **mapping), [{"x": np.array([3, 5, 6])}])
    compare(one_node("CategoryMapper", {"x": ("string", 2)}, {"y": "int64"}, 1, **mapping), [{"x": WORDS}])


def test_array_feature_extractor_of_strings() -> None:
    data = one_node("ArrayFeatureExtractor", {"x": ("string", 2), "i": ("int64", 1)}, {"y": "string"}, 1)
    compare(data, [{"x": WORDS, "i": np.array([1, 1, 0])}])


def test_strings_and_numbers_do_not_mix() -> None:
    for op, more in (("LabelEncoder", {"keys_int64s": [1], "values_int64s": [2]}), ("OneHotEncoder", {"cats_int64s": [1]})):
        with pytest.raises(IRError, match="string"):
            pyonnx_wasm.InferenceSession(one_node(op, {"x": ("string", 1)}, {"y": "int64" if op[0] == "L" else "float32"}, 2, **more))


# ---- kernels ----


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int32", "int64"])
@pytest.mark.parametrize("count", [0, 1, 2, 9, 64])
def test_lookup(dtype: str, count: int) -> None:
    rng = np.random.default_rng(count)
    keys = np.unique(rng.integers(-50, 50, count)).astype(dtype)
    x = rng.integers(-60, 60, 1001).astype(dtype)
    if dtype.startswith("float") and count:
        keys[-1] = x[::7] = np.nan
    got = run("lookup", [("int64", x.shape)], [x, keys], 3, n=x.size, count=keys.size)
    same = (x[:, None] == keys) | ((x != x)[:, None] & (keys != keys))
    np.testing.assert_array_equal(got, np.where(same.any(1), same.argmax(1) if keys.size else 0, keys.size))


def test_lookup_refuses() -> None:
    x, keys = np.zeros(5, np.float32), np.zeros(3, np.float32)
    for wrong in ({"n": 6}, {"n": -1}, {"count": 4}, {"count": -1}):
        refused("lookup", [("int64", (5,))], [x, keys], **{"n": 5, "count": 3, **wrong})
    refused("lookup", [("int64", (5,))], [x, keys.astype(np.float64)], n=5, count=3)
    refused("lookup", [("int32", (5,))], [x, keys], n=5, count=3)
    refused("lookup", [("int64", (5,))], [x + 1, keys], n=5, count=3, demand=1, code=core.BAD_DATA)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(0, 3, 2), (1, 1, 1), (33, 5, 8), (64, 17, 9), (3, 0, 4), (4, 3, 0), (70, 2, 131)])
def test_distance(dtype: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a, b = (rng.normal(1000, 1, s).astype(dtype) for s in ((m, k), (n, k)))
    want = ((a[:, None].astype(np.float64) - b) ** 2).sum(-1)
    got = run("distance", [(dtype, (m, n))], [a, b], 2, m=m, n=n, k=k)
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "float32" else 1e-14)


def test_distance_refuses() -> None:
    a, b = np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32)
    for wrong in ({"m": 3}, {"n": 5}, {"k": 4}, {"k": -1}, {"m": 1 << 62}):
        refused("distance", [("float32", (2, 4))], [a, b], **{"m": 2, "n": 4, "k": 3, **wrong})
    refused("distance", [("float32", (2, 4))], [a, b.astype(np.float64)], m=2, n=4, k=3)


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_coupling_finds_the_probabilities_behind_pairs(classes: int) -> None:
    p = np.random.default_rng(classes).dirichlet(np.ones(classes), 50)
    pairs = [p[:, i] / (p[:, i] + p[:, j]) for i in range(classes) for j in range(i + 1, classes)]
    x = np.stack(pairs, 1).astype(np.float32) if pairs else np.zeros((50, 0), np.float32)
    got = run("coupling", [("float32", p.shape)], [x], 3, rows=50, classes=classes)
    np.testing.assert_allclose(got, p, atol=0.02)


def test_coupling_refuses() -> None:
    x = np.zeros((4, 3), np.float32)
    for wrong in ({"rows": 5}, {"classes": 4}, {"classes": 0}, {"classes": 1 << 40}, {"rows": -1}):
        refused("coupling", [("float32", (4, 3))], [x], **{"rows": 4, "classes": 3, **wrong})


# ---- maps ----


@pytest.mark.parametrize("labels", [[7, -(1 << 60)], ["no", "ja, ü"]])
def test_zip_map(labels: list[Any], tmp_path: Path) -> None:
    """A list of dicts, as onnxruntime gives it; from a compiled file as well."""
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **{f"classlabels_{kind}": labels})
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    key = TensorProto.STRING if kind == "strings" else TensorProto.INT64
    inner = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    y = helper.make_value_info("y", helper.make_sequence_type_proto(inner))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    data = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=9).SerializeToString()
    session = pyonnx_wasm.InferenceSession(data)
    file.save(pyonnx_wasm.compile(data), tmp_path / "model.ponnx")
    again = pyonnx_wasm.InferenceSession(tmp_path / "model.ponnx")
    for rows in (3, 1, 0):
        feed = {"x": np.random.default_rng(rows).random((rows, 2), np.float32)}
        (want,) = expected(data, feed)
        assert session.run(None, feed) == [want]
        assert again.run(None, feed) == [want]
    assert session.get_outputs()[0].type == f"seq(map({kind[:-1]},tensor(float)))"
    with pytest.raises(ValueError, match=r"takes|must be|2 labels"):
        session.run(None, {"x": np.zeros((2, 3), np.float32)})
