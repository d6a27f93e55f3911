"""Inputs for a model of which nothing is known but its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .dtypes import DType, to_numpy
from .ir import dims, dims_text
from .onnxfile.reader import Graph, Tensor
from .program import Signature

IMAGE = 64  # height and width of inputs of rank 4 and 5 that leave them open
SIZE = 8  # of other symbols but the first axis, which is taken for the batch
SMALL = (0, 2)
_FORWARD = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice", "Expand", "Clip"}


@dataclass(frozen=True)
class Described:
    """One input of a run: ``contents`` says where its elements came from."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    contents: str


def generate(
    signatures: Sequence[Signature],
    graph: Graph | None,
    given: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    ranges: Mapping[str, tuple[int, int]],
    seed: int,
) -> tuple[dict[str, np.ndarray], list[Described]]:
    """Takes what is given and makes up the rest, the same for one seed.

    Floats are normal; integers that end in a table lookup lie within the table; masks are ones with a last quarter of padding; bytes
    have their whole range; other integers are 0 and 1.

    Args:
        graph: the ONNX graph, where there is one, to find the tables.
        sizes: of symbols; those that the given inputs settle need none.
        ranges: half-open, by input.
    Raises:
        ValueError: a name that is none, an input that must be given, or sizes that do not fit.
    """
    names = [s.name for s in signatures]
    for name in (*given, *ranges):
        if name not in names:
            raise ValueError(f"no input is named {name!r}; the model takes {', '.join(map(repr, names))}")
    settled = dict(sizes)
    for s in signatures:
        if (array := given.get(s.name)) is not None:
            for d, size in zip(s.shape, array.shape, strict=False):
                if isinstance(d, str) and (isinstance(parsed := _parsed(d), dims.Dim) and parsed.op == "sym"):
                    settled.setdefault(parsed.name, size)
    _default(signatures, settled)
    known = {name for s in signatures for d in s.shape for name in _symbols(d)}
    for name in sizes:
        if name not in known:
            raise ValueError(f"no dimension is named {name!r}; the model has {', '.join(sorted(known)) or 'none'}")
    rng = np.random.default_rng(seed)
    feed, told = {}, []
    for s in signatures:
        shape = tuple(_size(d, settled) for d in s.shape)
        if s.name in given:
            array, contents = given[s.name], "given"
        else:
            array, contents = _content(s, shape, ranges.get(s.name) or _table(graph, s.name), rng)
        feed[s.name] = array
        told.append(Described(s.name, s.dtype.name, array.shape, contents))
    return feed, told


def _symbols(d: int | str) -> tuple[str, ...]:
    return () if isinstance(d, int) else dims.symbols(_parsed(d))


def _parsed(d: str) -> dims.DimLike:
    """A dim of a signature; exporters name dims like ``past + seq``, which is taken at its word."""
    try:
        parsed = dims_text.parse(d)
        return dims_text.parse(parsed.name) if isinstance(parsed, dims.Dim) and parsed.op == "sym" else parsed
    except ValueError:
        return dims.sym(d.strip("'"))


def _size(d: int | str, settled: Mapping[str, int]) -> int:
    return d if isinstance(d, int) else settled[d] if d in settled else dims.evaluate(_parsed(d), settled)


def _default(signatures: Sequence[Signature], settled: dict[str, int]) -> None:
    for s in signatures:
        for axis, d in enumerate(s.shape):
            for name in _symbols(d) if d not in settled else ():
                image = s.dtype.is_float and len(s.shape) >= 4 and axis >= 2 and "past" not in s.name and "past" not in name
                batch = axis == 0 or "batch" in name.lower()
                settled.setdefault(name, IMAGE if image else 1 if batch else SIZE)


def _table(graph: Graph | None, name: str) -> tuple[int, int] | None:
    """The rows of the smallest table that an input indexes."""
    if graph is None:
        return None
    reached, limits = {name}, []
    for node in graph.nodes:
        if node.op_type == "Gather" and len(node.inputs) == 2 and node.inputs[1] in reached:
            table = graph.initializers.get(node.inputs[0])
            if isinstance(table, Tensor) and len(table.shape) > 1:
                limits.append(table.shape[int(node.attrs.get("axis", 0))])
        elif node.op_type in _FORWARD and node.inputs and node.inputs[0] in reached:
            reached.update(node.outputs)
    return (0, min(limits)) if limits else None


def _content(s: Signature, shape: tuple[int, ...], table: tuple[int, int] | None, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    dtype = to_numpy(s.dtype)
    if table is not None and not s.dtype.is_float:
        return rng.integers(*table, shape).astype(dtype), f"integers from {table[0]} to {table[1] - 1}"
    if s.dtype is DType.bfloat16:
        return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(dtype), "normal"
    if s.dtype in (DType.float16, DType.float32, DType.float64):
        return rng.standard_normal(shape).astype(dtype), "normal"
    if "mask" in s.name.lower():
        mask = np.ones(shape, dtype)
        if shape:
            mask[..., shape[-1] - shape[-1] // 4 :] = 0
        return mask, "ones, the last quarter zeros"
    if s.dtype is DType.bool:
        return rng.integers(0, 2, shape).astype(dtype), "random"
    if s.dtype.is_int and s.dtype.bits <= 8:
        low = -(1 << s.dtype.bits - 1) if s.dtype is DType.int8 else 0
        high = low + (1 << s.dtype.bits)
        return rng.integers(low, high, shape).astype(dtype), f"integers from {low} to {high - 1}"
    if s.dtype.is_int:
        return rng.integers(*SMALL, shape).astype(dtype), "zeros and ones"
    raise ValueError(f"input {s.name!r} is {s.dtype.name}, for which nothing is made up: give it")
