"""What runs the cases: the sessions of this process (``cpu``, ``gpu``), or the player in a page (``wasm``, ``webgpu``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import helper

from ...dtypes import DType
from ...options import SessionOptions
from ...session import InferenceSession
from .judge import Answer, Answers
from .sketch import Case
from .values import Array

NATIVE = ("cpu", "gpu")
BACKENDS = (*NATIVE, "wasm", "webgpu")


def native(provider: str, plain: bool = True) -> Answers:
    """Sessions of this process: optimised, and with ``plain`` not optimised as well."""

    def answers(case: Case) -> Sequence[Answer]:
        return [_native(case, provider, optimise) for optimise in ((True, False) if plain else (True,))]

    return answers


def _native(case: Case, provider: str, optimise: bool) -> Answer:
    how = "optimised" if optimise else "plain"
    options = SessionOptions(intra_op_num_threads=1, enable_optimisation=optimise)
    compiled = False
    try:
        session = InferenceSession(case.data, options, [provider])
        compiled = True
        made = [session.run(None, feeds) for feeds in case.runs]
        kinds = [s.dtype for s in session.signature()[1]]
        runs = [[shown(a, d) for a, d in zip(outputs, kinds, strict=True)] for outputs in made]
    except Exception as error:
        return Answer(None, error, compiled and not _of_the_compiler(error), how)
    return Answer(runs, how=how)


def _of_the_compiler(error: BaseException) -> bool:
    """A model whose structure depends on contents is compiled when it runs."""
    return type(error).__name__ in ("IRError", "NeedsContent", "ReadError")


def shown(array: Array, dtype: DType) -> Array:
    """Bit patterns as the ``ml_dtypes`` type; signed integers of 2 and 4 bits extend the sign."""
    target = np.dtype(helper.tensor_dtype_to_np_dtype(int(dtype)))
    if array.dtype == target:
        return array
    if dtype in (DType.int4, DType.int2):
        half = 1 << (dtype.bits - 1)
        return ((array.astype(np.uint8) ^ half).astype(np.int8) - np.int8(half)).astype(target)
    if dtype in (DType.uint4, DType.uint2):
        return array.astype(target)
    return array.view(target)


@contextmanager
def opened(backend: str) -> Iterator[Any]:
    """The answers of a backend, for as long as it is open."""
    if backend in NATIVE:
        yield native(backend)
    else:
        from .page import answers_in_page

        with answers_in_page(backend) as answers:
            yield answers
