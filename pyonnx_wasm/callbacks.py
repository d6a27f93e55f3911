"""Steps of a Program that the host does: what is asked, and the functions that are registered to do it.

A Program with such a step stops there; the runtime reads the step's inputs, calls the function and goes on with what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dtypes import DType, to_numpy
from .pictures import decode

FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {("", "ImageDecoder"): decode}
WAIT = -2  # what a run returns that stopped for the host


@dataclass(frozen=True)
class Callback:
    """What the host is to call.

    Attributes:
        present: of the operator's inputs, which are given; the others are None.
        attributes: those of the node, and the defaults of the others.
    """

    domain: str
    name: str
    node: str
    present: tuple[bool, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return {
            "domain": self.domain, "op": self.name, "node": self.node, "present": list(self.present), "attributes": self.attributes
        }  # fmt: skip

    @staticmethod
    def read(row: dict[str, Any]) -> Callback:
        given = tuple(bool(p) for p in row["present"])
        return Callback(str(row["domain"]), str(row["op"]), str(row["node"]), given, dict(row["attributes"]))

    def __str__(self) -> str:
        return f"node {self.node!r} ({self.domain or 'ai.onnx'}.{self.name})"


class CallbackError(RuntimeError):
    """No function is registered for an operator, or it gave what was not asked for."""


@dataclass(frozen=True)
class Asked:
    """One call: the Program's callback by number, the inputs that are given, dtype and rank of each output (None: not wanted)."""

    number: int
    inputs: list[np.ndarray]
    outputs: list[tuple[DType, int] | None]


def parse(words: Callable[[int, int], Sequence[int]], read: Callable[[int, int], np.ndarray]) -> Asked:
    """What ``pwx_asked`` describes.

    Args:
        words: the i64 words of the description from one index to another.
        read: so many bytes at an address.
    """
    number, n_inputs, n_outputs = words(0, 3)
    at, inputs, outputs = 3, list[np.ndarray](), list[tuple[DType, int] | None]()
    for _ in range(n_inputs):
        address, nbytes, dtype, rank = words(at, at + 4)
        shape = tuple(words(at + 4, at + 4 + rank))
        at += 4 + rank
        inputs.append(read(address, nbytes).view(to_numpy(DType(dtype))).reshape(shape))
    for _ in range(n_outputs):
        dtype, rank = words(at, at + 2)
        at += 2
        outputs.append((DType(dtype), rank) if dtype else None)
    return Asked(number, inputs, outputs)


def perform(callback: Callback, asked: Asked) -> list[np.ndarray | None]:
    """Calls the function that is registered; returns contiguous outputs of the dtypes and ranks that are asked for.

    Raises:
        CallbackError: naming the operator, its node and the cure. What the function raises itself gets a note of the node.
    """
    function = FUNCTIONS.get((callback.domain, callback.name))
    if function is None:
        raise CallbackError(missing(callback))
    given = iter(asked.inputs)
    arguments = [next(given) if present else None for present in callback.present]
    try:
        result = function(*arguments, **callback.attributes)
    except Exception as error:
        error.add_note(f"raised for {callback}")
        raise
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(results) < len(asked.outputs):
        raise CallbackError(f"{callback}: its function gave {len(results)} outputs, {len(asked.outputs)} are needed")
    return [_fitting(callback, k, r, want) for k, (r, want) in enumerate(zip(results, asked.outputs, strict=False))]


def missing(callback: Callback) -> str:
    domain = f", domain={callback.domain!r}" if callback.domain else ""
    return (
        f"{callback}: no function is registered here to run it; register one before the model runs: "
        f"@pyonnx_wasm.callback({callback.name!r}{domain})"
    )


def _fitting(callback: Callback, k: int, result: Any, want: tuple[DType, int] | None) -> np.ndarray | None:
    if want is None:
        return None
    dtype, rank = want
    array = np.asarray(result)
    if array.dtype != to_numpy(dtype) or array.ndim != rank:
        raise CallbackError(
            f"{callback}: output {k} of its function is {array.dtype} of rank {array.ndim}, not {dtype.name} of rank {rank}"
        )
    return np.ascontiguousarray(array).reshape(array.shape)
