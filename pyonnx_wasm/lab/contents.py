"""Elements of weights for the viewer: a plane to draw, a whole tensor as an .npy file, a digest to tell two from one another."""

from __future__ import annotations

import base64
import io
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import source as files
from ..dtypes import DType, from_numpy, to_numpy
from ..onnxfile import reader
from ..onnxfile.tensor import Tensor
from ..program import file as ponnx
from ..session import is_compiled
from .statistics import decode

SIDE = 256  # rows and columns of a drawn plane
Packed = npt.NDArray[np.uint8]


@contextmanager
def stored(path: str, name: str) -> Iterator[tuple[DType, tuple[int, ...], Packed]]:
    """A weight's type, shape and packed elements, mapped from the file.

    Raises:
        KeyError: the model has no such weight.
        ValueError: its contents are computed when the model is loaded, or are strings.
    """
    if is_compiled(path):
        weight = next((w for w in ponnx.load(path).weights if w.name == name), None)
        if weight is None:
            raise KeyError(name)
        data = ponnx.weight_bytes(weight)
        if data is None:
            raise ValueError(f"weight {name!r} is computed when the model is loaded; look at those that it is made from")
        yield weight.dtype, tuple(weight.shape), data
        return
    with files.read(path) as model:
        tensor = weights(model.graph).get(name)
        if tensor is None:
            raise KeyError(name)
        yield tensor.dtype, tuple(tensor.shape), _packed(tensor)


def _packed(tensor: Tensor) -> Packed:
    if tensor.dtype is DType.string:
        raise ValueError(f"tensor {tensor.name!r} holds strings")
    return np.frombuffer(tensor.raw(), np.uint8) if tensor.nbytes else np.empty(0, np.uint8)


def weights(graph: reader.Graph) -> dict[str, Tensor]:
    """The tensors of a graph and of those inside it, by name."""
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        for sub in node.graphs():
            found |= weights(sub)
        found |= dict(constant(node))
    return found | graph.initializers


def constant(node: reader.Node) -> Iterator[tuple[str, Tensor]]:
    """The tensor that a node of no inputs stands for, by the name of its output."""
    if not node.inputs and len(node.outputs) == 1 and len(node.attrs) == 1:
        value = next(iter(node.attrs.values()))
        if isinstance(value, Tensor):
            yield node.outputs[0], value


def plane(path: str, name: str, index: int = 0) -> dict[str, Any]:
    """The last two axes of a weight at one index of the others, at most :data:`SIDE` rows and columns of it.

    Returns:
        ``rows`` and ``columns`` of the plane, ``planes``, how many there are; ``height`` and ``width`` of what was taken, by even
        steps, and ``values``, its float32 elements in base64.
    Raises:
        KeyError, ValueError: as :func:`stored`; there is no plane of that index.
    """
    with stored(path, name) as (dtype, shape, packed):
        rows, columns = (1, 1, *shape)[-2:]
        planes = math.prod(shape[:-2])
        if not 0 <= index < planes:
            raise ValueError(f"weight {name!r} has {planes} planes; there is none of index {index}")
        if dtype.name.startswith("complex"):
            raise ValueError(f"a tensor of {dtype.name} is not drawn")
        start, size = index * rows * columns, rows * columns
        # A plane may begin inside a byte of packed elements.
        first = start - start % 8
        piece = packed[dtype.nbytes(first) : dtype.nbytes(start + size)]
        values = decode(dtype, piece, start + size - first)[start - first :].reshape(rows, columns)
        taken = values[np.ix_(*(np.unique(np.linspace(0, n - 1, min(n, SIDE)).astype(np.int64)) for n in (rows, columns)))]
        data = base64.b64encode(taken.astype("<f4").tobytes()).decode()
        return {"rows": rows, "columns": columns, "planes": planes, "height": len(taken), "width": taken.shape[1], "values": data}


def npy(path: str, name: str) -> bytes:
    """A whole weight as an .npy file; types that numpy does not have become float32.

    Raises:
        KeyError, ValueError: as :func:`stored`.
    """
    with stored(path, name) as (dtype, shape, packed):
        plain = from_numpy(to_numpy(dtype)) is dtype
        count = math.prod(shape)
        array = packed.view(to_numpy(dtype).newbyteorder("<")) if plain else decode(dtype, packed, count).astype(np.float32)
        out = io.BytesIO()
        np.save(out, array[:count].reshape(shape), allow_pickle=False)
        return out.getvalue()


def npy_text(path: str, name: str) -> str:
    """The same in base64, for JSON."""
    return base64.b64encode(npy(path, name)).decode()


def digests(path: str) -> dict[str, str]:
    """A CRC-32 of every weight's elements, by name; those that have none here are left out."""
    if is_compiled(path):
        found = {w.name: ponnx.weight_bytes(w) for w in ponnx.load(path).weights}
        return {name: f"{zlib.crc32(data.tobytes()):08x}" for name, data in found.items() if data is not None}
    with files.read(path) as model:
        kept = {name: t for name, t in weights(model.graph).items() if t.dtype is not DType.string}
        return {name: f"{zlib.crc32(memoryview(t.raw())):08x}" for name, t in kept.items()}
