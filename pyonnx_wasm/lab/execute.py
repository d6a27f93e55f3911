"""The viewer's Run panel: runs a model on given or generated inputs, and says what came out and which step took how long."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import compiler
from ..dtypes import DType, from_numpy, to_numpy
from ..feeds import Outputs, fed
from ..program import Compiled, Signature
from ..program import file as ponnx
from ..runtimes import call, cpu
from ..runtimes.profile import Enough, combined
from ..session import is_compiled
from . import statistics

MAX_ELEMENTS = 1 << 28
FILLS = ("random", "zeros", "ones", "range")


def run(path: str, sizes: Mapping[str, int], inputs: Mapping[str, Mapping[str, str]], threads: int) -> dict[str, Any]:
    """Runs a model on the core that is here: the native one, or in Pyodide the WebAssembly one.

    Args:
        sizes: of the symbolic dimensions; 1 where nothing is said.
        inputs: by name ``{"fill": one of FILLS}`` or ``{"file": path of an .npy file}``; random where nothing is said.
    Returns:
        ``outputs`` (``{name, dtype, shape, statistics}``), ``steps`` (``[origin, milliseconds]``, over ``runs`` runs as
        :func:`..runtimes.profile.combined` takes them), ``ms`` their sum, ``compile_ms``, ``first_ms``, and ``arena_bytes``, None where
        the core does not tell.
    Raises:
        ValueError and the compiler's and the core's errors: the text names the input or the node.
    """
    begin = time.perf_counter()
    compiled, feeds = _prepared(path, sizes, inputs)
    compile_ms = _since(begin)
    begin = time.perf_counter()
    executor = _executor(compiled, threads)
    dims, flat = fed(feeds, compiled.inputs)
    made = Outputs(compiled.outputs)
    outputs = call(executor, dims, flat, made.empty)
    first_ms = _since(begin)
    measured = []
    enough = Enough(None)
    while enough.again():
        again = Outputs(compiled.outputs)
        measured.append(executor.profile(flat, again.bound(executor.bind(dims, flat)), again.empty))
    steps = combined(measured)
    return {
        "outputs": _described(compiled.outputs, made, outputs),
        "steps": [[step.name, step.ms] for step in steps],
        "compile_ms": compile_ms,
        "first_ms": first_ms,
        "ms": sum(step.ms for step in steps),
        "runs": len(measured),
        "arena_bytes": executor.core.arena_bytes if hasattr(executor, "core") else None,
    }


def _executor(compiled: Compiled, threads: int) -> Any:
    if sys.platform == "emscripten":
        from ..runtimes import pyodide

        return pyodide.Executor(compiled.main, compiled.init, compiled.weights, threads)
    return cpu.Executor(compiled.main, compiled.init, compiled.weights, threads)


def _since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1e3


def _prepared(path: str, sizes: Mapping[str, int], inputs: Mapping[str, Mapping[str, str]]) -> tuple[Compiled, list[np.ndarray]]:
    """The compiled model and its feeds."""
    compiled = ponnx.load(path) if is_compiled(path) else compiler.compile(path)
    return compiled, _feeds(compiled.inputs, sizes, inputs)


def _feeds(signature: list[Signature], sizes: Mapping[str, int], inputs: Mapping[str, Mapping[str, str]]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [_feed(s, sizes, inputs.get(s.name, {}), generator) for s in signature]


def _feed(s: Signature, sizes: Mapping[str, int], given: Mapping[str, str], generator: np.random.Generator) -> np.ndarray:
    if "file" in given:
        return _loaded(s, given["file"])
    shape = [d if isinstance(d, int) else int(sizes.get(d, 1)) for d in s.shape]
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"input {s.name!r}: shape {shape} has {math.prod(shape):,} elements; at most {MAX_ELEMENTS:,} are generated")
    fill = given.get("fill", "random")
    if s.dtype is DType.string:
        return np.array([f"{fill} {k}" for k in range(math.prod(shape))], object).reshape(shape)
    dtype = to_numpy(s.dtype)
    if fill in ("zeros", "ones"):
        return np.full(shape, _one(s.dtype) if fill == "ones" else 0, dtype)
    if fill == "range":
        return (np.arange(math.prod(shape)) % (2 if s.dtype is DType.bool else 100)).reshape(shape).astype(dtype)
    if fill != "random":
        raise ValueError(f"input {s.name!r}: fill {fill!r} is none of {', '.join(FILLS)}")
    if s.dtype is DType.bfloat16:
        return (generator.standard_normal(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def _one(dtype: DType) -> int:
    return 0x3F80 if dtype is DType.bfloat16 else 1


def _loaded(s: Signature, file: str) -> np.ndarray:
    try:
        array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
        dtype = from_numpy(array.dtype)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise ValueError(f"input {s.name!r}: the file is no .npy array: {error}") from None
    if dtype is not s.dtype and array.dtype != to_numpy(s.dtype):
        raise ValueError(f"input {s.name!r} takes {s.dtype.name}, the file holds {array.dtype}")
    if array.ndim != len(s.shape) or any(isinstance(want, int) and want != have for want, have in zip(s.shape, array.shape, strict=True)):
        raise ValueError(f"input {s.name!r} takes shape {list(s.shape)}, the file holds {list(array.shape)}")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def _described(signatures: Sequence[Signature], made: Outputs, outputs: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    rows, k = [], 0
    for s, array in zip(signatures, made.results(outputs), strict=True):
        if s.dtype is DType.string:
            found = statistics.of_strings(array)
        elif s.dtype.name.startswith("complex"):
            found = statistics.of_array(np.abs(array))
        else:
            found = statistics.of_bytes(s.dtype, outputs[k].reshape(-1).view(np.uint8), array.size)
        rows.append({"name": s.name, "dtype": s.dtype.name, "shape": list(array.shape), "statistics": found})
        k += s.parts
    return rows
