"""Steps of a Program that the host does: what is asked, and the functions that are registered to do it.

A Program with such a step stops there; the runtime reads the step's inputs, calls the function and goes on with what it gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dtypes import DType, to_numpy
from .pictures import decode

FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {("", "ImageDecoder"): decode}
WAIT = -2  # what a run returns that stopped for the host
EXACT = 1 << 53  # integers up to here are the same in JavaScript


@dataclass(frozen=True)
class Wasm:
    """An operator in WebAssembly (``PROGRAM.md`` section 10).

    Attributes:
        module: imports nothing, exports ``memory`` and the function.
        attributes: in the order in which the function takes them.
    """

    module: bytes = field(repr=False)
    function: str
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shader:
    """An operator in WGSL, for GPUs; :mod:`pyonnx_wasm.gpu.wgsl` says what a source may hold.

    Attributes:
        grid: workgroups along up to three axes; None: the source is an expression, an element of the output.
        names: of the buffers: outputs, inputs that are given, attributes that are tensors.
        numbers: what the source may call ``$name``.
    """

    source: str
    grid: tuple[Any, ...] | None
    names: tuple[str, ...]
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class Callback:
    """What the host is to call.

    Attributes:
        present: of the operator's inputs, which are given; the others are None.
        attributes: those of the node, and the defaults of the others.
        tensors: the attributes that are tensors, which follow the inputs.
        outputs: dtype and rank of each output, where the last input holds the sizes of all of them, -1 for those that are data.
        wasm: what runs it where there is WebAssembly; before a function that is registered.
        wgsl: a GPU runs it, in place of this step.
    """

    domain: str
    name: str
    node: str
    present: tuple[bool, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    tensors: tuple[str, ...] = ()
    outputs: tuple[tuple[DType, int], ...] = ()
    wasm: Wasm | None = None
    wgsl: bool = False

    def json(self, modules: list[bytes] | None = None) -> dict[str, Any]:
        """The row of a file; joins ``modules``, those of the file, with its own."""
        attributes = {name: _encoded(value) for name, value in self.attributes.items()}
        row: dict[str, Any] = {
            "domain": self.domain, "op": self.name, "node": self.node, "present": list(self.present), "attributes": attributes
        }  # fmt: skip
        if self.tensors:
            row["tensors"] = list(self.tensors)
        if self.outputs:
            row["outputs"] = [[dtype.name, rank] for dtype, rank in self.outputs]
        if self.wasm is not None:
            modules = [] if modules is None else modules
            if self.wasm.module not in modules:
                modules.append(self.wasm.module)
            row["wasm"] = [modules.index(self.wasm.module), self.wasm.function, list(self.wasm.attributes)]
        return row | ({"wgsl": True} if self.wgsl else {})

    @staticmethod
    def read(row: dict[str, Any], modules: Sequence[bytes] = ()) -> Callback:
        """A row of a file with these modules.

        Raises:
            ValueError, IndexError, TypeError, KeyError: the row is malformed.
        """
        given = tuple(bool(p) for p in row["present"])
        attributes = {str(name): _decoded(value) for name, value in dict(row["attributes"]).items()}
        outputs = tuple((DType[dtype], int(rank)) for dtype, rank in row.get("outputs", ()))
        wasm = None
        if "wasm" in row:
            module, function, names = row["wasm"]
            if not 0 <= module < len(modules):
                raise ValueError(f"there is no module {module}")
            wasm = Wasm(bytes(modules[module]), str(function), tuple(map(str, names)))
        names = tuple(str(t) for t in row.get("tensors", ()))
        return Callback(
            str(row["domain"]), str(row["op"]), str(row["node"]), given, attributes, names, outputs, wasm, bool(row.get("wgsl"))
        )  # fmt: skip

    def __str__(self) -> str:
        return f"node {self.node!r} ({self.domain or 'ai.onnx'}.{self.name})"


def _encoded(value: Any) -> Any:
    """An attribute as JSON has it, and JavaScript: numbers that are not finite, or too large to be exact there, as text."""
    if isinstance(value, (list, tuple)):
        return [_encoded(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return {"int": str(value)} if isinstance(value, int) and abs(value) > EXACT else value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if isinstance(value, dict):
        return float(value["float"]) if "float" in value else int(value["int"])
    return value


class CallbackError(RuntimeError):
    """No function is registered for an operator, or it gave what was not asked for."""


@dataclass(frozen=True)
class Asked:
    """One call: the Program's callback by number, the inputs that are given, dtype and rank of each output (None: not wanted)."""

    number: int
    inputs: list[np.ndarray]
    outputs: list[tuple[DType, int] | None]
    dtypes: list[DType] = field(default_factory=list)  # of the inputs; bits stand for elements that numpy lacks


def parse(words: Callable[[int, int], Sequence[int]], read: Callable[[int, int], np.ndarray]) -> Asked:
    """What ``pwx_asked`` describes.

    Args:
        words: the i64 words of the description from one index to another.
        read: so many bytes at an address.
    """
    number, n_inputs, n_outputs = words(0, 3)
    at, inputs, outputs, dtypes = 3, list[np.ndarray](), list[tuple[DType, int] | None](), list[DType]()
    for _ in range(n_inputs):
        address, nbytes, dtype, rank = words(at, at + 4)
        shape = tuple(words(at + 4, at + 4 + rank))
        at += 4 + rank
        dtypes.append(DType(dtype))
        inputs.append(read(address, nbytes).view(to_numpy(DType(dtype))).reshape(shape))
    for _ in range(n_outputs):
        dtype, rank = words(at, at + 2)
        at += 2
        outputs.append((DType(dtype), rank) if dtype else None)
    return Asked(number, inputs, outputs, dtypes)


@dataclass(frozen=True)
class Arguments:
    """What is asked, as the operator takes it.

    Attributes:
        inputs: None for those that are left out.
        attributes: numbers, texts, lists of them, and tensors.
        shapes: of the outputs, None where unknown, -1 for a size that is data.
    """

    inputs: list[np.ndarray | None]
    attributes: dict[str, Any]
    shapes: list[tuple[int, ...] | None]


def arguments(callback: Callback, asked: Asked) -> Arguments:
    """What a step gives, by what it is.

    Raises:
        CallbackError: the step and its row do not fit; the file is damaged.
    """
    given = list(asked.inputs)
    shapes: list[tuple[int, ...] | None] = [None] * len(asked.outputs)
    if len(given) != sum(callback.present) + len(callback.tensors) + bool(callback.outputs):
        raise CallbackError(f"{callback}: the step has {len(given)} inputs, which its row does not tell")
    if callback.outputs:
        sizes, at = [int(n) for n in given.pop().reshape(-1)], 0
        told = [rank for _, rank in callback.outputs]
        same = all(want in (None, row) for want, row in zip(asked.outputs, callback.outputs, strict=False))
        if len(told) != len(asked.outputs) or sum(told) != len(sizes) or not same:
            raise CallbackError(f"{callback}: the step's outputs are not those of its row")
        for k, rank in enumerate(told):
            shapes[k] = tuple(sizes[at : at + rank])
            at += rank
    tensors = given[len(given) - len(callback.tensors) :]
    left = iter(given)
    inputs = [next(left) if present else None for present in callback.present]
    return Arguments(inputs, {**callback.attributes, **dict(zip(callback.tensors, tensors, strict=True))}, shapes)


def perform(callback: Callback, asked: Asked) -> list[np.ndarray | None]:
    """Calls the function that is registered; returns contiguous outputs of the dtypes, ranks and sizes that are asked for.

    Raises:
        CallbackError: naming the operator, its node and the cure. What the function raises itself gets a note of the node.
    """
    function = FUNCTIONS.get((callback.domain, callback.name))
    if function is None:
        raise CallbackError(missing(callback))
    given = arguments(callback, asked)
    try:
        result = function(*given.inputs, **given.attributes)
    except NotImplementedError as error:
        raise CallbackError(f"{missing(callback)}{f' ({error})' if str(error) else ''}") from None
    except Exception as error:
        error.add_note(f"raised for {callback}")
        raise
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(results) < len(asked.outputs):
        raise CallbackError(f"{callback}: its function gave {len(results)} outputs, {len(asked.outputs)} are needed")
    return [
        _fitting(callback, k, r, want, shape) for k, (r, want, shape) in enumerate(zip(results, asked.outputs, given.shapes, strict=False))
    ]


def missing(callback: Callback) -> str:
    """Why an operator cannot run here, and the cure."""
    domain = f", domain={callback.domain!r}" if callback.domain else ""
    cure = f"register one before the model runs: @pyonnx_wasm.callback({callback.name!r}{domain})"
    if callback.wasm is not None:
        needs = "it is in WebAssembly, which needs wasmtime here: pip install 'pyonnx-wasm[wasmtime]'"
        return f"{callback}: {needs}; or give it a function: {cure}"
    wgsl = ", and its WGSL runs on GPUs alone" if callback.wgsl else ""
    return f"{callback}: no function is registered here to run it{wgsl}; {cure}"


def _fitting(callback: Callback, k: int, result: Any, want: tuple[DType, int] | None, shape: Sequence[int] | None) -> np.ndarray | None:
    if want is None:
        return None
    dtype, rank = want
    array = np.asarray(result)
    if array.dtype != to_numpy(dtype) or array.ndim != rank:
        raise CallbackError(
            f"{callback}: output {k} of its function is {array.dtype} of rank {array.ndim}, not {dtype.name} of rank {rank}"
        )
    if misfit := unfit(shape, array.shape):
        raise CallbackError(f"{callback}: output {k} of its function {misfit}")
    return np.ascontiguousarray(array).reshape(array.shape)


def unfit(told: Sequence[int] | None, shape: Sequence[int]) -> str:
    """What is wrong with a shape where another one was declared; "" for nothing."""
    if told is None or all(want in (-1, have) for want, have in zip(told, shape, strict=True)):
        return ""
    declared = ", ".join("?" if n < 0 else str(n) for n in told)
    return f"has the shape {list(shape)}, declared is [{declared}]: give `outputs` a rank in its place where sizes are data"
