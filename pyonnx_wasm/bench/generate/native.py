"""Ours beside llama-cpp-python and onnxruntime, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...generate import Generator
from ...options import SessionOptions
from .. import report
from .models import Size
from .web import COPIED, COPIES, alike, prompt, row


class Side(Protocol):
    """A decoder that is fed by hand."""

    def begin(self) -> None: ...

    def read(self, ids: Sequence[int]) -> int:
        """Reads tokens; the likeliest one to follow."""


class Ours:
    def __init__(self, gguf: Path, export: Path, threads: int) -> None:
        options = SessionOptions(intra_op_num_threads=threads)
        self.decoder = Generator(gguf, False, sess_options=options).decoder

    def begin(self) -> None:
        self.decoder.forget(0)

    def read(self, ids: Sequence[int]) -> int:
        return int(np.argmax(np.asarray(self.decoder.step(list(ids))[0])))


class LlamaCpp:
    """Raises ValueError where llama-cpp-python is missing."""

    def __init__(self, gguf: Path, export: Path, threads: int) -> None:
        try:
            import llama_cpp
        except ImportError as error:
            raise ValueError("llama-cpp-python is missing: pip install llama-cpp-python, or --without llama-cpp-python") from error
        self.library: Any = llama_cpp
        self.llama: Any = llama_cpp.Llama(
            str(gguf), n_ctx=2048, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def begin(self) -> None:
        self.llama.reset()

    def read(self, ids: Sequence[int]) -> int:
        self.llama.eval(ids)
        logits = self.library.llama_get_logits_ith(self.llama.ctx, -1)
        return int(np.ctypeslib.as_array(logits, (self.llama.n_vocab(),)).argmax())


class OnnxRuntime:
    """Raises ValueError where onnxruntime is missing."""

    def __init__(self, gguf: Path, export: Path, threads: int) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ValueError("onnxruntime is missing: pip install onnxruntime, or --without onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.session = onnxruntime.InferenceSession(export / "onnx/model_q4.onnx", options, providers=["CPUExecutionProvider"])
        self.pasts = {i.name: i.shape for i in self.session.get_inputs()[2:]}
        self.begin()

    def begin(self) -> None:
        self.held = 0
        self.past = {n: self.value(np.zeros((1, s[1], 0, s[3]), np.float32)) for n, s in self.pasts.items()}

    def read(self, ids: Sequence[int]) -> int:
        binding = self.session.io_binding()
        self.held += len(ids)
        binding.bind_ortvalue_input("input_ids", self.value(np.array([ids], np.int64)))
        binding.bind_ortvalue_input("attention_mask", self.value(np.ones((1, self.held), np.int64)))
        for name, value in self.past.items():
            binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            binding.bind_output(output.name)
        self.session.run_with_iobinding(binding)
        logits, *presents = binding.get_outputs()
        self.past = dict(zip(self.past, presents, strict=True))
        return int(logits.numpy()[0, -1].argmax())


SIDES: dict[str, Callable[[Path, Path, int], Side]] = {"llama-cpp-python": LlamaCpp, "onnxruntime": OnnxRuntime}


def versions(names: Sequence[str]) -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in names}


def written(side: Side, ids: Sequence[int], count: int) -> tuple[float, list[float], list[int]]:
    """Milliseconds to the first token, for each further one, and the tokens."""
    side.begin()
    start = time.perf_counter()
    found = [side.read(ids)]
    marks = [time.perf_counter()]
    while len(found) < count:
        found.append(side.read(found[-1:]))
        marks.append(time.perf_counter())
    return 1e3 * (marks[0] - start), [1e3 * (b - a) for a, b in pairwise(marks)], found


def bandwidth() -> float:
    """Bytes that a copy reads and writes in a millisecond: the best of several."""
    source, into = np.ones(COPIED, np.uint8), np.ones(COPIED, np.uint8)
    best = float("inf")
    for _ in range(COPIES):
        start = time.perf_counter()
        np.copyto(into, source)
        best = min(best, time.perf_counter() - start)
    return 2 * COPIED / best / 1e3


def compared(
    size: Size, gguf: Path, export: Path, against: str, threads: int, length: int, count: int, rounds: int, tell: Callable[[str], None]
) -> report.Row:
    """One row: prefill and decode of ours and a peer, by turns."""
    tell("open")
    sides = Ours(gguf, export, threads), SIDES[against](gguf, export, threads)
    first: list[list[float]] = [[], []]
    each: list[list[float]] = [[], []]
    made: list[list[int]] = [[], []]
    for turn in range(-1, rounds):  # the first to warm up
        for k in (0, 1) if turn % 2 else (1, 0):
            tell(f"{turn + 1} {(against, 'ours')[k == 0]}")
            begin, gaps, made[k] = written(sides[k], prompt(length, turn + 1), count)
            if turn >= 0:
                first[k].append(begin)
                each[k].append(statistics.median(gaps))
    return row(size, against, threads, length, bandwidth(), first, each) | {"same": alike(*made)}
