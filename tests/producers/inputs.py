"""Inputs for a model that names its axes: numbers by what an input is called, sizes by what its axes are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

COMMON = (
    {"batch_size": 1, "sequence_length": 6, "past_sequence_length": 4, "encoder_sequence_length": 5, "decoder_sequence_length": 3,
     "past_decoder_sequence_length": 2},
    {"batch_size": 2, "sequence_length": 9, "past_sequence_length": 3, "encoder_sequence_length": 8, "decoder_sequence_length": 1,
     "past_decoder_sequence_length": 5},
)  # fmt: skip


def size(text: str, sizes: Mapping[str, int], fallback: int) -> int:
    """What an axis measures: names of axes and sums of them."""
    return sum(int(part) if part.isdecimal() else sizes.get(part, fallback) for part in re.split(r"\s*\+\s*", text))


def numbers(rng: np.random.Generator, name: str, dtype: Any, shape: tuple[int, ...], below: int, past: int) -> np.ndarray:
    """Tokens below a bound, masks with one place hidden in later rows, positions behind what is past, and noise."""
    if "mask" in name:
        mask = np.ones(shape, dtype)
        if len(shape) == 2 and shape[0] > 1 and shape[1] > 2:
            mask[1:, 0 if past else -1] = 0
        return mask
    if "position" in name and np.dtype(dtype).kind == "i":
        return np.broadcast_to(np.arange(shape[-1]) + past, shape).astype(dtype)
    if "token_type" in name:
        return rng.integers(0, 2, shape).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(1, below, shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return np.ones(shape, bool)
    return rng.normal(size=shape).astype(dtype)


def feeds_of(model: onnx.ModelProto, rng: np.random.Generator, given: Mapping[str, Any] | None = None) -> list[dict[str, np.ndarray]]:
    """Inputs at two shapes.

    Args:
        given: sizes by an axis' name, one or a pair of them, arrays by an input's (a pair); ``below`` bounds tokens.
    """
    given = dict(given or {})
    constants = {t.name for t in model.graph.initializer}
    feeds = []
    for i, common in enumerate(COMMON):
        own = {k: v[i] if isinstance(v, tuple | list) else v for k, v in given.items()}
        sizes = {**common, **own}
        feed = {}
        for info in model.graph.input:
            if info.name in constants:
                continue
            if info.name in own:
                feed[info.name] = own[info.name]
                continue
            kind = info.type.tensor_type
            dims = [size(d.dim_param, sizes, 2 + i) if d.dim_param else d.dim_value for d in kind.shape.dim]
            past = max(
                (
                    size("past_sequence_length", sizes, 0) if "past" in d.dim_param else 0
                    for j in model.graph.input
                    for d in j.type.tensor_type.shape.dim
                ),
                default=0,
            )
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            feed[info.name] = numbers(rng, info.name, dtype, tuple(dims), sizes.get("below", 50), past)
        feeds.append(feed)
    return feeds
