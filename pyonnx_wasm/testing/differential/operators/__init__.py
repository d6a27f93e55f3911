"""Generators of single operators: one function per operator or family, driven by the schemas of ``onnx.defs``.

Adding one: ``@generates("Name")`` on a function that takes a :class:`~..sketch.Sketch` and the schema of the opset in use, adds
inputs and nodes. An operator of the registry that has none must be in :data:`NOT_GENERATED` with the reason.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx.defs

from ....ops import load_all
from ....registry import OPERATORS
from ..sketch import NEWEST, Case, Impossible, Sketch, draw
from ..values import dtype_of

Schema = Any  # onnx.defs.OpSchema; None for operators that onnx does not define
Generator = Callable[[Sketch, Schema], None]
GENERATORS: dict[tuple[str, str], Generator] = {}
NOT_GENERATED: dict[tuple[str, str], str] = {
    ("", "Scatter"): "ScatterElements under the name that it had before opset 11",
    ("", "SimplifiedLayerNormalization"): "RMSNormalization under the name that onnxruntime writes",
    ("ai.onnx.preview.training", "Gradient"): "it names tensors of the graph around it: tests compare it with differences",
    ("", "ImageDecoder"): "files of pictures, which the suite has",
    **dict.fromkeys(
        (
            *(("", name) for name in ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")),
            ("ai.onnx.ml", "CategoryMapper"),
            ("com.microsoft", "Tokenizer"),
        ),
        "strings: tests of theirs compare with onnxruntime",
    ),
    **{("ai.onnx.ml", name): "maps, which models are tested with" for name in ("CastMap", "DictVectorizer", "ZipMap")},
    ("ai.onnx.ml", "TreeEnsemble"): "of version 5 of its domain, whose tests draw forests; models here are of version 3",
    **{
        ("", name): "random numbers: no two implementations draw the same"
        for name in ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
    },
}
OLDEST = 7


def generates(*names: str, domain: str = "") -> Callable[[Generator], Generator]:
    """Registers a generator for operators."""

    def register(make: Generator) -> Generator:
        for name in names:
            if (domain, name) in GENERATORS:
                raise ValueError(f"{name} has two generators")
            GENERATORS[domain, name] = make
        return make

    return register


def dtypes(schema: Schema, parameter: str) -> list[np.dtype[Any]]:
    """What a type parameter of a schema allows, of what numpy arrays can hold."""
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter:
            found = [dtype_of(t) for t in constraint.allowed_type_strs]
            return [d for d in found if d is not None]
    made = dtype_of(parameter)
    return [made] if made is not None else []


def picked(m: Sketch, schema: Schema, parameter: str = "T", favourite: float = 0.35) -> np.dtype[Any]:
    """One of the dtypes that a schema allows."""
    found = dtypes(schema, parameter)
    if not found:
        raise Impossible(f"{schema.name} has no numbers for {parameter}")
    return m.dtype(found, favourite)


@cache
def history(domain: str, name: str) -> tuple[Any, ...]:
    """The schemas of an operator, oldest first."""
    return tuple(_histories().get((domain, name), ()))


@cache
def _histories() -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


@cache
def names() -> tuple[tuple[str, str], ...]:
    """The operators that are generated, in a fixed order."""
    load_all()
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(key for key in sorted(OPERATORS) if key in GENERATORS)


def label(domain: str, name: str) -> str:
    return f"{domain}.{name}" if domain else name


def single(domain: str, name: str, seed: list[int]) -> Case:
    """A case of one operator at a random opset that the registry and the schemas know."""
    make = GENERATORS[domain, name]
    rng = np.random.default_rng([*seed, 7])
    opset, schema = 21, None
    if not domain:
        versions = history(domain, name)
        spans = [(s.since_version, n.since_version - 1) for s, n in itertools.pairwise(versions)]
        spans.append((versions[-1].since_version, NEWEST))
        spans = [(max(low, OLDEST), high) for low, high in spans if high >= OLDEST]
        known = OPERATORS[domain, name]
        spans = [s for s in spans if not onnx.defs.get_schema(name, s[0], domain).deprecated]
        usable = [s for s in spans if any(v.since <= s[1] and (v.until is None or v.until >= s[0]) for v in known)]
        low, high = usable[int(rng.integers(len(usable)))]
        opset = int(rng.integers(low, high, endpoint=True)) if rng.random() < 0.7 else high if high < NEWEST else max(low, min(high, 24))
        schema = onnx.defs.get_schema(name, opset, domain)
    elif history(domain, name):
        schema = history(domain, name)[-1]
    return draw(label(domain, name), lambda m: make(m, schema), [*seed, 8], opset)
