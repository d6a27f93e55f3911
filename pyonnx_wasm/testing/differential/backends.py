"""What runs cases: sessions of this process (``cpu``, ``gpu``), the player in a page (``wasm``, ``webgpu``), the core for Arm (``arm``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...options import SessionOptions
from ...session import InferenceSession
from .judge import Answer, Answers
from .sketch import Case
from .values import shown

NATIVE = ("cpu", "gpu")
BACKENDS = (*NATIVE, "wasm", "webgpu", "arm")
THREADS = 3


def native(provider: str, plain: bool = True) -> Answers:
    """Sessions of this process: optimised, on several threads, and with ``plain`` neither as well."""

    def answers(case: Case) -> Sequence[Answer]:
        return [_native(case, provider, optimise) for optimise in ((True, False) if plain else (True,))]

    return answers


def _native(case: Case, provider: str, optimise: bool) -> Answer:
    how = "optimised" if optimise else "plain"
    options = SessionOptions(intra_op_num_threads=THREADS if optimise else 1, enable_optimisation=optimise)
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
    return type(error).__name__ in ("IRError", "ReadError")


@contextmanager
def opened(backend: str) -> Iterator[Any]:
    """The answers of a backend, for as long as it is open."""
    if backend in NATIVE:
        yield native(backend, plain=backend == "cpu")
    elif backend == "arm":
        from ..emulated import arm

        with arm("max"):
            yield native("wasmtime", plain=False)
    else:
        from .page import answers_in_page

        with answers_in_page(backend) as answers:
            yield answers
