"""Lowering for GPUs: which WGSL runs a kernel call, with which uniforms, over how many workgroups.

A kernel is ``kernels/wgsl/<kernel>.wgsl`` and ``gpu/kernels/<kernel>.py``, both found by presence; the latter holds
``cases(call)``, the ways to run one call, and may hold ``steps(node)``, the calls that GPUs run in its place, ``split(node)``, those that
read a large weight in parts, and ``READS_HALVES = True`` where shaders compute in float32 whatever they read.
:mod:`pyonnx_wasm.gpu.wgsl` makes shader text of a way, and :mod:`pyonnx_wasm.gpu.lower` a Program with its GPU section (``PROGRAM.md``
section 7). It imports ``program``, ``ops`` for the kernels
and what lies below.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ..dtypes import DType
from ..ir import Node, Value
from ..ir.dims import DimLike
from ..registry import Kernel
from ..tensor import HALVES

F32 = DType.float32
WORKGROUP = 64  # lanes of the kernels that take one element per lane


@dataclass(frozen=True)
class Call:
    """One kernel call as a case sees it.

    Attributes:
        values: by buffer name, absent ones left out; the variadic buffer ``x`` appears as ``x0``, ``x1``, ...
        outputs: names of the buffers that are written; they come first in ``values``.
        params: the kernel's ABI parameters by name; arrays as tuples, the variable tail too.
        node: the call itself, for parameters by meaning.
        starts: where each buffer starts within its storage, in elements; views count from there.
    """

    kernel: Kernel
    values: Mapping[str, Value]
    outputs: tuple[str, ...]
    params: Mapping[str, Any]
    node: Node
    starts: Mapping[str, DimLike] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.params[name]
        except KeyError:
            raise AttributeError(name) from None

    def dtype(self, name: str) -> DType | None:
        """Element type of a buffer; None where it is absent."""
        value = self.values.get(name)
        return None if value is None else value.dtype

    def all(self, *dtypes: DType) -> bool:
        """True when every buffer has one of these element types."""
        return all(v.dtype in dtypes for v in self.values.values())

    def computes(self, dtype: DType) -> bool:
        """True when every output has this element type, and every input as well or that of halves, which are converted as they are read."""
        return all(v.dtype is dtype or (v.dtype in HALVES and name not in self.outputs) for name, v in self.values.items())


@dataclass(frozen=True)
class Case:
    """One way to run a call.

    Attributes:
        grid: workgroups along up to three axes.
        guard: the case fits when this is not 0; decided at compile time where it can be, else when shapes are bound.
        defines: switches of the source's ``#if``.
        holes: text for the source's ``${name}``.
        uniforms: numbers the source calls ``$name``, integers, floats or sequences; default: the kernel's fixed parameters.
        raw: buffers read and written as bits, whatever their element type.
        vec4: buffers of float32, or of halves or uint32 that are read, whose size and offsets are multiples of 4 elements, declared as
            vectors.
        words: written buffers of elements under 32 bits whose lanes write whole words, from a word boundary on.
        busy: fits only where its workgroups keep the adapter busy.
        needs: features that the source has a better text for (``#if subgroups``); there is one without them too.
        source: in the place of the kernel's own.
        rounds: of loops that a lane goes through, where sizes decide.
        again: how often workgroups read the same elements of a buffer, where that is not once; for counting alone.
    """

    grid: tuple[DimLike, ...]
    guard: DimLike = 1
    defines: frozenset[str] = frozenset()
    holes: Mapping[str, str] = field(default_factory=dict)
    uniforms: Mapping[str, Any] | None = None
    raw: frozenset[str] = frozenset()
    vec4: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    busy: bool = False
    needs: tuple[str, ...] = ()
    source: str | None = None
    rounds: DimLike = 0
    again: Mapping[str, DimLike] = field(default_factory=dict)


def nested(*counts: DimLike) -> DimLike:
    """Rounds of loops within one another, each of which ends in a round of its own."""
    rounds: DimLike = 0
    for count in reversed(counts):
        rounds = count * (1 + rounds) + 1
    return rounds


Cases = Callable[[Call], "list[Case]"]


def cases_of(kernel: str) -> Cases | None:
    """The function that finds the cases of a kernel; None for a kernel that only the core has."""
    return part_of(kernel, "cases")  # type: ignore[no-any-return]


@cache
def part_of(kernel: str, name: str) -> Any:
    """What the file of a kernel holds by this name; None for a kernel that only the core has, and where the file holds no such thing."""
    if source(kernel) is None:
        return None
    return getattr(importlib.import_module(f".kernels.{kernel}", __name__), name, None)


@cache
def source(name: str) -> str | None:
    """The WGSL of a kernel, or of a part that kernels include (``lib/<name>``); None where there is none."""
    from pathlib import Path

    path = Path(__file__).resolve().parents[2] / "kernels" / "wgsl" / f"{name}.wgsl"
    if path.exists():
        return path.read_text()
    packaged = resources.files("pyonnx_wasm").joinpath("lib", "wgsl", f"{name}.wgsl")
    return packaged.read_text() if packaged.is_file() else None
