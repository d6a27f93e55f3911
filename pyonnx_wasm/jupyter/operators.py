"""Operators whose functions are registered in this kernel, for models that run in a page."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..callbacks import Asked, Callback, perform
from ..dtypes import DType
from .rpc import Reply, Request, Rpc
from .wire import Tensor


def serve(rpc: Rpc) -> None:
    """Lets pages ask for ``operator``: the row of a callback and its inputs → its outputs that are wanted, in order."""
    rpc.handle("operator", _run)


def _run(request: Request) -> Reply:
    json: Any = request.json
    callback = Callback.read(json["callback"])
    wanted = [None if kind is None else (DType[kind[0]], int(kind[1])) for kind in json["outputs"]]
    arrays = [np.asarray(t.numpy()) for t in request.tensors]
    for array in arrays:
        array.flags.writeable = False
    answers = perform(callback, Asked(0, arrays, wanted, [t.dtype for t in request.tensors]))
    given = [
        Tensor.of(array, str(k), want[0], "output")
        for k, (array, want) in enumerate(zip(answers, wanted, strict=True))
        if array is not None and want is not None
    ]
    return Reply.of(None, given)
