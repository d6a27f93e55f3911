"""Every estimator that skl2onnx knows, pipelines over columns of text, and vectorised text."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from case import Case, main
from skl2onnx import convert_sklearn, supported_converters, to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import all_estimators

GIVEN: dict[str, dict[str, Any]] = {
    "LogisticRegression": {"max_iter": 50}, "SVC": {"probability": True}, "NuSVC": {"probability": True, "nu": 0.1},
    "SGDClassifier": {"loss": "log_loss"},
    "MLPClassifier": {"max_iter": 20}, "MLPRegressor": {"max_iter": 20}, "GaussianProcessClassifier": {"max_iter_predict": 10},
    "KBinsDiscretizer": {"encode": "ordinal"}, "SelectKBest": {"k": 2}, "GenericUnivariateSelect": {"mode": "k_best", "param": 2},
}  # fmt: skip
SMALL = {"n_estimators": 7, "random_state": 0, "n_components": 3, "n_clusters": 3}


def made(name: str, kind: Any) -> Any:
    takes = inspect.signature(kind.__init__).parameters
    given = {k: v for k, v in SMALL.items() if k in takes} | GIVEN.get(name, {})
    inner = RandomForestClassifier(3, random_state=0) if "Classifier" in name else LogisticRegression()
    if "estimator" in takes and takes["estimator"].default is inspect.Parameter.empty:
        given["estimator"] = inner
    if "estimators" in takes and takes["estimators"].default is inspect.Parameter.empty:
        given["estimators"] = [("a", clone(inner)), ("b", LogisticRegression())] if "Classifier" in name else None
    if given.get("estimators", 0) is None:
        from sklearn.linear_model import Ridge

        given["estimators"] = [("a", Ridge()), ("b", Ridge(alpha=3.0))]
    return kind(**given)


def options_of(model: Any, zipmap: bool) -> dict[Any, Any] | None:
    return {id(model): {"zipmap": zipmap}} if hasattr(model, "predict_proba") else None


def estimators(rng: np.random.Generator) -> Iterator[Case]:
    known = set(supported_converters())
    x = np.abs(rng.normal(size=(60, 5))).astype(np.float32)
    for name, kind in all_estimators():
        if f"Sklearn{name}" not in known and name not in known:
            continue
        family = "classifier" if name.endswith(("Classifier", "SVC", "NB", "Analysis", "LogisticRegression", "Perceptron")) else "regressor"
        targets = [rng.integers(0, 3, 60), rng.integers(0, 2, 60)] if family == "classifier" else [rng.normal(size=60) + x[:, 0]]
        for k, y in enumerate(targets):
            for zipmap in (False, True) if family == "classifier" and not k else (False,):
                yield Case(
                    f"{name}-{k}{'-zipmap' if zipmap else ''}",
                    lambda name=name, kind=kind, y=y, zipmap=zipmap: fitted(made(name, kind), x, y, zipmap),
                    [{"X": x[:7]}, {"X": x[7:40]}], (1e-3, 1e-3),
                )  # fmt: skip


def fitted(model: Any, x: np.ndarray, y: np.ndarray, zipmap: bool) -> bytes:
    tried: Exception | None = None
    for target in (y, (np.abs(y) * 3).astype(int) % 3, np.stack([y, y], 1), None):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x, target) if target is not None else model.fit(x)
            return bytes(to_onnx(model, x[:1], options=options_of(model, zipmap)).SerializeToString())
        except (ValueError, TypeError) as error:
            tried = tried or error
    raise tried or ValueError(model)


def tables(rng: np.random.Generator) -> Iterator[Case]:
    """Numbers with gaps and names, through a ColumnTransformer."""
    n = 80
    numbers = rng.normal(size=(n, 2)).astype(np.float32)
    numbers[rng.random((n, 2)) < 0.1] = np.nan
    names = rng.choice(["red", "grün", "blue", ""], (n, 1)).astype(object)
    y = (np.nan_to_num(numbers[:, 0]) + (names[:, 0] == "red") > 0).astype(int)
    import pandas

    frame = pandas.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "c": names[:, 0]})
    kinds = [("a", FloatTensorType([None, 1])), ("b", FloatTensorType([None, 1])), ("c", StringTensorType([None, 1]))]
    for encoder in (OneHotEncoder(handle_unknown="ignore"), OrdinalEncoder()):
        for model in (LogisticRegression(), RandomForestClassifier(9, random_state=0)):
            for labels in (y, np.array(["no", "yes"])[y]):
                for zipmap in (False, True):

                    def make(encoder: Any = encoder, model: Any = model, labels: Any = labels, zipmap: bool = zipmap) -> bytes:
                        columns = ColumnTransformer([
                            ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]), ("c", clone(encoder), ["c"]),
                        ])  # fmt: skip
                        pipeline = make_pipeline(columns, clone(model)).fit(frame, labels)
                        return bytes(
                            convert_sklearn(pipeline, initial_types=kinds, options=options_of(pipeline, zipmap)).SerializeToString()
                        )

                    kind = "text" if labels is not y else "int"
                    name = f"table-{type(encoder).__name__}-{type(model).__name__}-{kind}{'-zipmap' if zipmap else ''}"
                    feeds = [{"a": numbers[r, :1], "b": numbers[r, 1:], "c": names[r]} for r in (slice(0, 5), slice(5, 45))]
                    yield Case(name, make, feeds)


def texts(rng: np.random.Generator) -> Iterator[Case]:
    """Lines of words; in a locale that every machine has."""
    words = np.array(["the", "a", "cat", "dog", "sat", "mat", "on", "ran", "fast", "slow", "big", "red"])
    lines = np.array([" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(60)], object)
    y = np.array(["cat" in line for line in lines]).astype(int)
    for kind in (TfidfVectorizer, CountVectorizer):
        for given in (
            {},
            {"ngram_range": (1, 2)},
            {"lowercase": False},
            {"binary": True},
            {"stop_words": ["the", "a"]},
            {"analyzer": "char"},
        ):
            for model in (None, LogisticRegression()):

                def make(kind: Any = kind, given: Any = given, model: Any = model) -> bytes:
                    text = kind(**given)
                    whole = text.fit(lines) if model is None else make_pipeline(text, clone(model)).fit(lines, y)
                    return bytes(
                        convert_sklearn(
                            whole,
                            initial_types=[("X", StringTensorType([None, 1]))],
                            options=(options_of(whole, False) or {}) | {id(text): {"locale": "C.UTF-8"}},
                        ).SerializeToString()
                    )

                name = f"{kind.__name__}-{'-'.join(given) or 'plain'}{'' if model is None else '-model'}"
                yield Case(name, make, [{"X": lines[:4, None]}, {"X": lines[4:30, None]}])


def models(rng: np.random.Generator) -> Iterator[Case]:
    yield from estimators(rng)
    yield from tables(rng)
    yield from texts(rng)


if __name__ == "__main__":
    main(models)
