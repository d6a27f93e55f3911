"""Reductions, softmaxes and scans along axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, INT64, Impossible, Sketch
from ..values import is_float
from . import Schema, dtypes, generates, picked
from .movement import listed


@generates(*(f"Reduce{k}" for k in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]))
def reduce_(m: Sketch, schema: Schema) -> None:
    dims = m.shape()
    since = 13 if schema.name == "ReduceSum" else 18
    axes = m.axes(len(dims), 1) if m.chance(0.8) and dims else None
    if axes is not None and m.opset < 11:
        axes = [a % len(dims) for a in axes]
    kind = "any" if schema.name in ("ReduceMax", "ReduceMin") else "mild"
    dtype = picked(m, schema)
    if schema.name == "ReduceMean" and not is_float(dtype) and 0 in dims:
        raise Impossible("a mean of nothing is no number")
    if "Log" in schema.name:
        dtype = dtype if is_float(dtype) else FLOAT  # between whole logarithms rounding decides
        kind = "positive" if m.chance(0.7) else kind
    x = m.array(dtype, dims, kind)
    if schema.name == "ReduceProd" and not is_float(dtype):
        x = np.clip(x, 0 if dtype.kind == "u" else -3, 3)
    attributes: dict[str, Any] = {"keepdims": m.choice((None, 0, 1))}
    more: list[str] = []
    if axes is not None:
        more, extra = listed(m, "axes", axes, since)
        attributes |= extra
    elif m.opset >= since and m.chance(0.5):
        attributes["noop_with_empty_axes"] = m.integer(0, 1)
        more = [m.ints([], INT64)] if m.chance(0.5) else []
    m.result(m.node(schema.name, m.input(x), *more, **attributes))


@generates("ArgMax", "ArgMin")
def arg(m: Sketch, schema: Schema) -> None:
    m.empty = False
    dims = m.shape(m.integer(1, 5))
    at = m.integer(0, len(dims) - 1)
    axis = at - len(dims) if m.opset >= 11 and m.chance(0.4) else at if at or m.chance(0.5) else None
    last: dict[str, Any] = {"select_last_index": m.integer(0, 1)} if m.opset >= 12 and m.chance(0.5) else {}
    dtype = picked(m, schema)
    x = m.operand(dtype, dims, "plain")
    m.result(m.node(schema.name, x, axis=axis, keepdims=m.choice((None, 0, 1)), **last))


@generates("Softmax", "LogSoftmax", "Hardmax")
def softmax(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 5))
    low = -len(dims) if m.opset >= 11 else 0
    axis = m.integer(low, len(dims) - 1) if m.chance(0.8) else None
    m.result(m.node(schema.name, m.operand(picked(m, schema), dims, "finite"), axis=axis))


@generates("LpNormalization")
def lp_normalization(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    axis = m.axis(len(dims)) if m.chance(0.8) else None
    m.result(m.node("LpNormalization", m.operand(picked(m, schema), dims, "plain"), axis=axis, p=m.choice((None, 1, 2))))


@generates("CumSum", "CumProd")
def cumulative(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(1, 4))
    axis = m.ints(m.axis(len(dims)), m.dtype(dtypes(schema, "T2")))
    flags: dict[str, Any] = {k: m.integer(0, 1) for k in m.some(("reverse", "exclusive"))}
    m.result(m.node(schema.name, m.operand(picked(m, schema), dims, "mild"), axis, **flags))


@generates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(m: Sketch, schema: Schema) -> None:
    p: dict[str, Any] = {"p": m.integer(1, 3)} if schema.name == "GlobalLpPool" and m.opset >= 2 and m.chance(0.6) else {}
    m.result(m.node(schema.name, m.operand(picked(m, schema), m.shape(m.integer(3, 5)), "finite"), **p))


@generates("MeanVarianceNormalization")
def mean_variance(m: Sketch, schema: Schema) -> None:
    dims = tuple(max(3, s) for s in m.shape(4, 3, 5))
    axes = sorted(a % 4 for a in m.axes(4, 1)) if m.chance(0.6) else None
    m.result(m.node("MeanVarianceNormalization", m.operand(picked(m, schema), dims, "plain"), axes=axes))


@generates("Einsum")
def einsum(m: Sketch, schema: Schema) -> None:
    equation = m.choice(
        ("ij,jk->ik", "ij,jk", "bij,bjk->bik", "i,i->", "i,j->ij", "ii->i", "ii", "ij->ji", "ijk->k", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk",
         "...ij,...jk->...ik", "b...,b...->...", "ij,jk,kl->il", "a b c, c -> a b", "bhwc,hkc->bhwk",
         "i...->...", "ij,ij->j", "bi,oi,bo->b")
    )  # fmt: skip
    sizes: dict[str, int] = {}
    more = m.shape(m.integer(0, 2)) if "..." in equation else ()
    dtype = picked(m, schema)
    given = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        dims: list[int] = []
        for letter in term.replace("...", "."):
            dims += (m.broadcast(more) if m.chance(0.3) else more) if letter == "." else [sizes.setdefault(letter, m.size(1, 4))]
        given.append(m.operand(dtype, dims, "mild"))
    m.result(m.node("Einsum", *given, equation=equation))
