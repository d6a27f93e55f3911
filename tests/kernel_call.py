"""One kernel call as a Program of one step, for tests of kernels."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from assembler import INPUT, KERNELS, OUTPUT, Asm

from pyonnx_wasm.dtypes import DType, from_numpy
from pyonnx_wasm.runtimes import core, library
from pyonnx_wasm.runtimes.core import Core, CoreError

Array = np.ndarray[Any, Any]
FLOATS = ["float16", "float32", "float64"]
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NUMBERS = FLOATS + INTS
BY_SIZE = ["bool", "float16", "float32", "int64"]
#: Builds of the core that run here.
BUILDS = [isa for isa in library.available() if isa in library.ISAS.get(library.machine(), ())[: library.load().pwx_isa()]]
SENTINEL = 0xA5
GAP = 128


class BF16(np.ndarray[Any, Any]):
    """Bit patterns of bfloat16 in a uint16 array."""


def bf16(x: Array) -> Array:
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(BF16)


def from_bf16(x: Array) -> Array:
    return (np.asarray(x).astype(np.uint32) << 16).view(np.float32)


def dtype_of(x: Array) -> DType:
    return DType.bfloat16 if isinstance(x, BF16) else from_numpy(x.dtype)


def use(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has calls run on one of the builds."""
    monkeypatch.setattr(sys.modules[__name__], "Core", partial(core.Core, library=library.load(isa)))


def words(kernel: str, params: dict[str, Any]) -> list[int]:
    """The parameters as registers hold them; those left out are 0."""
    out: list[int] = []
    for spec in KERNELS[kernel].params:
        value = params.pop(spec.name, 0)
        values = [value] if spec.count == 0 else [] if isinstance(value, int) else list(value)
        values += [0] * (max(spec.count, 0) - len(values))
        out += struct.unpack(f"<{len(values)}q", struct.pack(f"<{len(values)}d", *values)) if spec.is_float else map(int, values)
    assert not params, f"{kernel} has no {sorted(params)}"
    return out


def run(
    kernel: str, outs: Sequence[tuple[Any, Sequence[int]] | None], ins: Sequence[Array | None], threads: int = 1, /, **params: Any
) -> Any:
    """One call. ``outs`` holds (dtype, shape), ``"bfloat16"`` included; None leaves a buffer absent, as are those behind ``ins``. Checks
    what surrounds the outputs."""
    a = Asm()
    inputs = KERNELS[kernel].inputs
    ins = [*ins, *[None] * sum(b.optional for b in inputs[len(ins) :])]
    arrays = [x if isinstance(x, BF16) else np.ascontiguousarray(x).reshape(np.shape(x)) for x in ins if x is not None]
    bufs, results, raws, before = [], [], [], []
    for out in outs:
        if out is None:
            bufs.append(-1)
            continue
        is_bf16 = out[0] == "bfloat16"
        dtype = np.dtype(np.uint16 if is_bf16 else out[0])
        n = math.prod(out[1]) * dtype.itemsize
        raw = np.full(n + 2 * GAP, SENTINEL, np.uint8)
        raws.append(raw)
        results.append(raw[GAP : GAP + n].view(dtype).reshape(out[1]))
        code = DType.bfloat16 if is_bf16 else from_numpy(dtype)
        storage = a.storage(OUTPUT, n, len(results) - 1)
        bufs.append(a.buffer(storage, code))
        a.output(out[1], bufs[-1], code)
        before.append((a.buffer(storage, DType.uint8), n))
    at = 0
    for x in ins:
        if x is None:
            bufs.append(-1)
            continue
        array = arrays[at]
        a.input(dtype_of(array), array.ndim)
        a.inputs[at][2] = a.buffer(a.storage(INPUT, array.nbytes, at), dtype_of(array))
        bufs.append(a.inputs[at][2])
        at += 1
    # The elements that the kernel leaves alone keep what an earlier step wrote.
    arrays.append(np.full(max(n for _, n in before), SENTINEL, np.uint8))
    a.input(DType.uint8, 1)
    a.inputs[-1][2] = a.buffer(a.storage(INPUT, arrays[-1].nbytes, len(arrays) - 1), DType.uint8)
    for buffer, n in before:
        a.copy(buffer, a.inputs[-1][2], n)
    a.step(kernel, bufs, words(kernel, params))
    c = Core(a.pack(), [], [], ["node"], threads=threads)
    c.bind([d for x in arrays for d in x.shape], arrays)
    c.run(arrays, results)
    for raw in raws:
        assert (raw[:GAP] == SENTINEL).all(), "wrote before an output"
        assert (raw[-GAP:] == SENTINEL).all(), "wrote behind an output"
    return results[0] if len(results) == 1 else results


def refused(*args: Any, code: int = core.BAD_BIND, **kwargs: Any) -> None:
    with pytest.raises(CoreError) as caught:
        run(*args, **kwargs)
    assert caught.value.code == code, caught.value


def sample(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> Array:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))


def assert_close(y: Array, want: Array, scale: Any, dtype: Any, epsilons: float = 16) -> None:
    """Within a multiple of the dtype's epsilon times the magnitude of what was added up; Inf and NaN exactly."""
    y, want = np.asarray(y, np.float64), np.asarray(want, np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(y[~finite], want[~finite])
    bound = np.broadcast_to(epsilons * float(np.finfo(dtype).eps) * np.asarray(scale, np.float64), want.shape)
    assert (np.abs(y[finite] - want[finite]) <= bound[finite]).all()


def steps(x: Array) -> list[int]:
    return [s // x.itemsize for s in x.strides]


def offset(view: Array, base: Array) -> int:
    return (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize if view.size else 0
