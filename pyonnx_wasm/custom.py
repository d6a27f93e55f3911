"""Operators of one's own beside those that decompose (``@pyonnx_wasm.op``): callbacks, kernels, and calls of other operators."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .callbacks import FUNCTIONS, Callback, Shader, Wasm
from .dtypes import DType
from .ir import Graph, IRError, Value, dims
from .ir.dims import DimLike
from .ops.callbacks import call
from .registry import Context, find, op
from .tensor.packed import settled

#: dtype and shape of an output; a rank in the place of the shape where sizes are data, None for what the first input has.
Output = tuple[str | DType | None, int | Sequence[DimLike] | None]
Outputs = Sequence[Output] | Callable[..., Sequence[Output]]
Module = bytes | str | os.PathLike[str]
Workgroups = Callable[..., DimLike | Sequence[DimLike]]


def callback(
    name: str | None = None,
    *,
    domain: str = "",
    outputs: Outputs = ((None, None),),
    wasm: Module | tuple[Module, str] | None = None,
    wgsl: str | tuple[str, Workgroups] | None = None,
    since: int = 1,
    until: int | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers an operator that cannot be compiled: a function over numpy arrays, and kernels that run it where they can.

    The Program stops at each such node, the function gets the inputs and the attributes and gives the outputs, as one array or a tuple
    of them. Inputs are read-only views, valid for the call; attributes that are tensors are arrays. Kernels travel in the compiled file,
    the function does not: it has to be registered where the model runs. One that raises NotImplementedError is a signature alone.

    Args:
        outputs: ``(dtype, shape)`` per output. A rank in the place of the shape: sizes are data. None: as the first input. Or a function of
            the inputs' :class:`~pyonnx_wasm.ir.Value` (``dtype``, ``rank``, ``shape``, ``size``) and the attributes that returns those.
        wasm: a WebAssembly module, as bytes or a path, or that and the name of its function (default: ``name``), for pages, Pyodide and,
            with wasmtime, this process. It imports nothing and has a memory of its own; ``PROGRAM.md`` section 10 says how it is called.
        wgsl: for GPUs: an element of the output as an expression of ``x``, ``$beta`` (an input and an attribute by these names), or
            statements that return it; inputs are broadcast. Or ``(source, workgroups)``: a shader whose entry point is ``main``, and a
            function of the inputs and the attributes that gives the number of its workgroups, along up to three axes. A buffer ``x`` is
            read with ``x_get(i)``, the output written with ``y_put(i, v)`` (``y0``, ``y1`` where there are several), ``$x_shape[d]`` and
            ``$x_n`` are its sizes; see ``pyonnx_wasm/gpu/wgsl.py``. All sizes of the outputs must be declared.
        since, until: versions of the domain's opset that it holds for, inclusive.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        key = domain if domain != "ai.onnx" else "", name or function.__name__.rstrip("_")
        code, defaults = function.__code__, function.__kwdefaults__ or {}
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        parameters, keywords = names[: code.co_argcount], names[code.co_argcount :]
        rest = code.co_varnames[len(names)] if code.co_flags & inspect.CO_VARARGS else ""
        module = None if wasm is None else _module(wasm, key[1], keywords)

        @functools.wraps(function)
        def emit(*inputs: Value | None, ctx: Context, **given: Any) -> tuple[Value, ...]:
            attributes = {**defaults, **given}
            inputs += (None,) * (len(parameters) - len(inputs))  # so that attributes have their places behind them
            found = _outputs(outputs, inputs, attributes)
            tensors = {n: attributes[n] for n in keywords if isinstance(attributes.get(n), Value)}
            numbers = plain({n: v for n, v in attributes.items() if n not in tensors})
            shader = (
                None
                if wgsl is None
                else _shader(wgsl, [*parameters, *(f"{rest}{k}" for k in range(len(inputs)))], inputs, tensors, numbers, attributes, found)
            )
            told = tuple((dtype, len(shape)) for dtype, shape in found) if any(None not in shape for _, shape in found) else ()
            present = tuple(i is not None for i in inputs)
            what = Callback(*key, Graph.current().origin, present, numbers, tuple(tensors), told, module, shader is not None)
            return call(what, [*inputs, *tensors.values()], found, shader)

        FUNCTIONS[key] = function
        op(key[1], domain=domain, since=since, until=until, emit=emit)(function)
        return function

    return register


def _outputs(outputs: Outputs, inputs: Sequence[Value | None], attributes: dict[str, Any]) -> list[tuple[DType, list[DimLike | None]]]:
    found = outputs(*inputs, **attributes) if callable(outputs) else outputs
    first = next((i for i in inputs if i is not None), None)
    made = []
    for dtype, shape in found:
        if first is None and (dtype is None or shape is None):
            raise IRError("a callback without inputs needs dtype and shape, or rank, of each output: outputs=[('float32', 1)]")
        if isinstance(dtype, str) and dtype not in DType.__members__:
            raise IRError(f"dtype {dtype!r} of a callback's output is not known")
        known = first.dtype if dtype is None else DType[dtype] if isinstance(dtype, str) else dtype  # type: ignore[union-attr]
        sizes: list[DimLike | None] = [None] * shape if isinstance(shape, int) else list(first.shape if shape is None else shape)  # type: ignore[union-attr]
        made.append((known, sizes))
    return made


def _module(given: Module | tuple[Module, str], name: str, attributes: Sequence[str]) -> Wasm:
    source, function = given if isinstance(given, tuple) else (given, name)
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            source = file.read()
    if bytes(source[:8]) != b"\0asm\1\0\0\0":
        raise ValueError(f"wasm of {name!r}: {len(source)} bytes are no WebAssembly module")
    return Wasm(bytes(source), function, tuple(attributes))


def _shader(
    wgsl: str | tuple[str, Workgroups],
    names: Sequence[str],
    inputs: Sequence[Value | None],
    tensors: Mapping[str, Value],
    attributes: Mapping[str, Any],
    every: Mapping[str, Any],
    outputs: Sequence[tuple[DType, list[DimLike | None]]],
) -> Shader:
    buffers = [(n, v.shape) for n, v in zip(names, inputs, strict=False) if v is not None]
    buffers += [(n, v.shape) for n, v in tensors.items()]
    written = [("y" if len(outputs) == 1 else f"y{k}", shape) for k, (_, shape) in enumerate(outputs)]
    if any(None in shape for _, shape in outputs):
        raise IRError("WGSL needs the sizes of all outputs: give each its shape in `outputs`, not a rank")
    if twice := {n for n, _ in written} & {n for n, _ in buffers}:
        raise IRError(f"an input of WGSL cannot have the name {min(twice)!r}, which an output has")
    source = wgsl if isinstance(wgsl, str) else wgsl[0]
    numbers: dict[str, Any] = {n: v for n, v in attributes.items() if _is_number(v) or (v and all(map(_is_number, _items(v))))}
    for n, shape in [*written, *buffers]:
        numbers |= {f"{n}_n": dims.product(shape), **({f"{n}_shape": list(shape)} if shape else {})}  # type: ignore[arg-type]
    used = {match[1] for match in _NUMBER.finditer(source)}
    grid = None
    if not isinstance(wgsl, str):
        given = wgsl[1](*inputs, **every)
        grid = tuple(given) if isinstance(given, (list, tuple)) else (given,)
        if not 1 <= len(grid) <= 3:
            raise IRError(f"workgroups of WGSL lie along one to three axes, not {len(grid)}")
    return Shader(source, grid, tuple(n for n, _ in [*written, *buffers]), {n: v for n, v in numbers.items() if n in used})


_NUMBER = re.compile(r"\$(\w+)")


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as a file can hold them; those that are None are left out."""
    for name, value in attributes.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(i, (int, float, str, type(None))) for i in items):
            raise IRError(f"attribute {name!r} of a callback must be numbers, texts, lists of them or a tensor; give others as inputs")
    return {name: value for name, value in attributes.items() if value is not None}


def apply(name: str, *inputs: Value | None, domain: str = "", opset: int = 26, outputs: int = 1, **attributes: Any) -> Any:
    """Calls an operator from within one of one's own.

    Args:
        opset: version of its domain.
        outputs: how many are wanted; a tuple of more than one.
    """
    operator = find(domain, name, opset)
    if operator.takes_context:
        attributes["ctx"] = Context(opset, tuple(f"y{k}" for k in range(outputs)), name)
    result = operator.fn(*inputs, **attributes)
    results = [settled(r) for r in (result if isinstance(result, tuple) else (result,))]
    return results[0] if outputs == 1 else tuple(results[:outputs])
