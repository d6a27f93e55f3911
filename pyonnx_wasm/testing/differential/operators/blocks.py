"""Weights in blocks of codes: MatMulNBits, and ggml's types; few rows and many, over numbers of all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import blocks
from ..sketch import FLOAT, Sketch
from ..values import HALVES, Array
from . import Schema, generates

MICROSOFT, GGML = "com.microsoft", "org.ggml"
KINDS = ("plain", "plain", "spread", "dwarfed", "tiny", "huge", "broken", "flat", "steps")


def _sizes(m: Sketch, group: int, whole: bool) -> tuple[int, int]:
    """K and N; K of whole groups, or not; some are 0."""
    n = m.choice((1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 24, 33, 50))
    groups = m.choice((1, 1, 2, 3, 5, 8, 17)) if group >= 256 else m.choice((1, 1, 2, 3, 4, 7, 9, 16, 35))
    k = groups * group if whole or m.chance(0.4) else m.integer(1, groups * group)
    empty = m.choice(("k", "n", "both", *[""] * 37))
    return 0 if empty in ("k", "both") else k, 0 if empty in ("n", "both") else n


def _rows(m: Sketch, k: int) -> tuple[int, ...]:
    """The axes before K: few rows, or many; now and then none."""
    few, none, leading = m.chance(0.5), m.chance(0.04), m.choice((0, 1, 1, 1, 2))
    low, high = (1, 4) if few else (5, 200 if k < 1200 else 40)
    rows = int(m.fill.integers(low, high, endpoint=True))
    if not leading:
        return ()
    return (0 if none else rows,) if leading == 1 else (m.choice((1, 1, 2)), 0 if none else rows)


def activations(m: Sketch, rows: tuple[int, ...], k: int, group: int) -> Array:
    """float32 [*rows, k], now and then of which one number of a block dwarfs the others, or that no product can hold."""
    rng, kind = m._rng(False), m.choice(KINDS)
    x = rng.standard_normal((*rows, k))
    if kind in ("flat", "steps"):  # terms that are alike are rounded alike: errors of a sum add up, each time up to half a unit
        m.loose = 1 + k / 4
    if kind == "flat":  # what sums of codes are largest of
        x = np.where(rng.random((*rows, 1)) < 0.5, 1.0, rng.choice((-1.0, 1.0), x.shape)) * rng.choice((1.0, -3.0, 127.0), (*rows, 1))
    if kind == "steps":
        x = rng.integers(-127, 128, x.shape) * rng.choice((0.5, 1.0, 257.0), (*rows, 1))
    if kind in ("spread", "dwarfed"):
        by_block = 2.0 ** rng.uniform(-24, 24, (*rows, -(-k // group))) if kind == "spread" else np.ones((*rows, -(-k // group)))
        x = x * np.repeat(by_block, group, -1)[..., :k]
    if kind == "dwarfed":
        x = x * np.where(rng.random(x.shape) < 1.5 / group, 2.0 ** rng.uniform(4, 60, x.shape), 1)
    if kind in ("tiny", "huge"):
        exponent = rng.uniform(-149, -90, (*rows, 1)) if kind == "tiny" else rng.uniform(90, 125, (*rows, 1))
        x = x * 2.0 ** np.where(rng.random((*rows, 1)) < 0.8, exponent, 0)
    if kind == "broken":
        x = np.where(rng.random(x.shape) < 0.5 / max(k, 1), rng.choice((np.nan, np.inf, -np.inf), x.shape), x)
    if k and m.chance(0.2):
        x = np.where(np.repeat(rng.random((*rows, -(-k // group))) < 0.3, group, -1)[..., :k], 0, x)
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(np.float32))


def _codes(m: Sketch, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Bytes of codes; some rows all ones or zeros, where sums of integers are largest."""
    codes = rng.integers(0, 256, shape).astype(np.uint8)
    if m.chance(0.3):
        ends = rng.random((shape[0], *[1] * (len(shape) - 1))) < 0.5
        codes = np.where(ends, rng.choice(np.array((0, 255), np.uint8), ends.shape), codes)
    return codes


def _scales(m: Sketch, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    kind = m.choice(("plain", "plain", "signed", "spread", "broken"))
    s = rng.uniform(0.001, 0.1, shape)
    if kind == "signed":
        s = s * rng.choice((-1, 0, 1), shape)
    if kind == "spread":
        s = s * 2.0 ** rng.uniform(-12, 12, shape)
    with np.errstate(all="ignore"):
        found = s.astype(dtype)
    if kind == "broken" and m.chance(0.4):
        found = np.where(rng.random(shape) < 0.05, np.asarray(rng.choice((np.nan, np.inf, -np.inf), shape)).astype(dtype), found)
    return np.asarray(found)


@generates("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(m: Sketch, schema: Schema) -> None:
    bits, block = m.choice((4, 4, 8, 8, 2)), m.choice((16, 32, 32, 64, 128, 256, 512))
    k, n = _sizes(m, block, False)
    dtype, rng = m.choice((FLOAT, FLOAT, FLOAT, FLOAT, *HALVES)), m._rng(True)
    with np.errstate(all="ignore"):
        a = m.input(activations(m, _rows(m, k), k, block).astype(dtype))
    level, point = m.choice((None, 0, 1, 2, 4, 4, 4)), m.choice(("", "", "packed", "packed", "float"))
    _product(m, rng, a, k, n, bits, block, level, point, dtype)
    # Queries, keys and values, some of which are not like the others.
    for _ in range(m.integer(1, 4) if m.chance(0.3) else 0):
        odd = m.chance(0.2)
        width = m.choice((4, 8, 2)) if odd else bits
        of = m.choice(("", "packed", "float")) if odd else point
        _product(m, rng, a, k, m.choice((n, m.integer(1, 70))), width, block, 4 if odd else level, of, dtype)


def _product(
    m: Sketch, rng: np.random.Generator, a: str, k: int, n: int, bits: int, block: int, level: int | None, point: str, dtype: Any
) -> None:
    flat, fixed, count = m.chance(0.5), m.chance(0.85), -(-k // block)

    def held(array: Array) -> str:
        return m.const(array) if fixed else m.input(array)

    given = [held(_codes(m, rng, (n, count, block * bits // 8))), held(_scales(m, rng, (n * count,) if flat else (n, count), dtype))]
    row = -(-count * bits // 8)
    if point == "packed":
        given.append(held(rng.integers(0, 256, (n * row,) if flat else (n, row)).astype(np.uint8)))
    if point == "float":
        given.append(held(rng.uniform(0, (1 << bits) - 1, (n * count,) if flat else (n, count)).astype(dtype)))
    if m.chance(0.25):
        given += [*([] if point else [""]), "", held(rng.standard_normal(n).astype(dtype))]
    m.result(m.node("MatMulNBits", a, *given, domain=MICROSOFT, K=k, N=n, bits=bits, block_size=block, accuracy_level=level))
    for part in given[: 1 if flat else 2]:
        if n and m.chance(0.2):  # tied to an embedding
            m.result(m.node("Gather", part, m.input(rng.integers(-n, n, m.shape(1, 0, 6)))))


def table(m: Sketch, rng: np.random.Generator, kind: str, n: int, k: int) -> Array:
    """Blocks uint8 [n, blocks, bytes] of one of ggml's types."""
    per, length = blocks.TYPES[kind]
    made = _codes(m, rng, (n, k // per, length))
    ats = {"Q6_K": (208,)}.get(kind, (0, 2) if kind[-1] == "1" or kind in ("Q4_K", "Q5_K") else (0,))
    for at in ats:
        factors = np.asarray(_scales(m, rng, (n, k // per, 1), np.float16))
        made[:, :, at : at + 2] = np.ascontiguousarray(factors).view(np.uint8).reshape(n, k // per, 2)
    return made


@generates("MatMul", domain=GGML)
def ggml_matmul(m: Sketch, schema: Schema) -> None:
    kind = m.choice(sorted(blocks.TYPES))
    per = blocks.TYPES[kind][0]
    k, n = _sizes(m, per, True)
    held = table(m, m._rng(True), kind, n, k)
    group = 16 if kind == "Q6_K" else 32
    stored = m.chance(0.85)
    x = activations(m, _rows(m, k), k, group)
    a = m.input(x, [*(f"rows{axis}" for axis in range(x.ndim - 1)), k])
    m.result(m.node("MatMul", a, m.const(held) if stored else m.input(held, held.shape), domain=GGML, type=kind))


@generates("Dequantize", "GetRows", domain=GGML)
def ggml_rows(m: Sketch, schema: Schema) -> None:
    name, kind = m.name.rpartition(".")[2], m.choice(sorted(blocks.TYPES))
    n, k = m.integer(1, 9), m.integer(0 if m.chance(0.1) else 1, 3) * blocks.TYPES[kind][0]
    held = table(m, m._rng(True), kind, n, k)
    x = m.const(held) if m.chance(0.6) else m.input(held, held.shape)
    at = [m.input(m.whole_numbers(0, n - 1, m.shape(m.integer(0, 2), 0, 4), m.choice((np.int64, np.int32))))] if name == "GetRows" else []
    m.result(m.node(name, x, *at, domain=GGML, type=kind))
