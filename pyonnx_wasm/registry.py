"""Kernel declarations and the operator registry.

A *kernel* is what executors run: declared once here in Python, written once in ``kernels/cpp/<name>.cpp`` and once in
``kernels/wgsl/<name>.wgsl``. An *operator* is what ONNX graphs hold: a Python function whose signature is its schema
(inputs positional, attributes keyword-only with the ONNX defaults) and whose body emits kernels; running it once gives
both the output shapes and the lowering.
"""

from __future__ import annotations

import glob
import inspect
import os
import re
import struct
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from .dtypes import DType
from .ir import Graph, IRError, Node, Value
from .ir.dims import Dim, DimLike

_BUF = re.compile(r"(>?)(\w+)([?*]?)$")
_PARAM = re.compile(r"(\w+)(?:\[(\d+|\*)\])?(?::(f))?$")

#: In an operator's signature: a tensor whose elements it only moves. Strings may be given there: it then gets their spans, and what it
#: returns are strings over the same bytes.
Moved = Value


@dataclass(frozen=True)
class BufSpec:
    name: str
    output: bool
    optional: bool
    variadic: bool


@dataclass(frozen=True)
class ParamSpec:
    name: str
    count: int  # -1: the variable tail, last
    is_float: bool


class Enum:
    """Names that cross to kernels as numbers: a member's number is its place. Its text is part of the ABI of each kernel that takes it.

    Args:
        name: of the ``enum class`` that C++ gets, and of ``Name.member`` in WGSL.
        members: space-separated, in order; upper case in C++.
        flag: name and number of what may be added to a member's number.
    """

    def __init__(self, name: str, members: str, flag: tuple[str, int] | None = None) -> None:
        self.name, self.members, self.flag = name, tuple(members.split()), flag
        self.text = f"{name}({' '.join(self.members)}{' +{}:{}'.format(*flag) if flag else ''})"
        if ENUMS.get(name, self).text != self.text:
            raise ValueError(f"enumeration {name} is declared twice")
        ENUMS[name] = self

    def index(self, member: str) -> int:
        """The number of a member."""
        return self.members.index(member)

    def __getitem__(self, number: int) -> str:
        return self.members[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


KERNELS: dict[str, Kernel] = {}
Notation = tuple[Callable[[Any, Callable[[Any], str]], str], Callable[[str, Callable[[str], Any]], Any]]  # write, read; both for entries
ENUMS: dict[str, Enum] = {}


class Kernel:
    """One kernel's ABI.

    Args:
        name: also the file name of its sources.
        buffers: space-separated; ``>y`` is written, ``b?`` may be absent, ``x*`` is variadic and last.
        params: space-separated; 64-bit integers, ``name[8]`` an array, ``name:f`` an f64, ``name[*]`` a variable tail, last.
        finish: derives the ABI parameters from a node's values and its parameters by meaning; default: they are the same.
        traits: what passes may ask: ``"epilogue"`` (takes ``bias``, ``residual``, ``act`` and the factor ``alpha``; with ``"channels"``
            the bias is per axis 1 and the weights ``w`` scale it), ``"strided"`` (takes any view), ``"elementwise"`` (all views have the
            output's shape), ``"inplace"`` (may write over an input of the same layout), ``"dequantize"`` (takes a ``scale`` per column and
            gives float32 then), ``"strings"`` (of strings, which GPUs do not know), ``"shader"`` (GPUs alone run it), ``"smooth"``
            (little changes of what it reads are little ones of what it gives).
        enums: which parameters, or entries of the tail, are members of which enumeration.
        notation: how parameters by meaning are written and read in the IR's text, where that is not as lists.
    """

    def __init__(
        self,
        name: str,
        buffers: str,
        params: str,
        finish: Callable[[Node], dict[str, Any]] | None = None,
        traits: Sequence[str] = (),
        enums: Mapping[str, Enum] | None = None,
        notation: Mapping[str, Notation] | None = None,
    ) -> None:
        self.name, self.finish, self.notation = name, finish, dict(notation or {})
        self.buffers = tuple(self._buf(b) for b in buffers.split())
        self.params = tuple(self._param(p) for p in params.split())
        self.traits = frozenset(traits)
        self.enums = dict(enums or {})
        meanings = "".join(f" {param}={enum.text}" for param, enum in self.enums.items())
        self.text = f"{name}({' '.join(buffers.split())}) {' '.join(params.split())}{meanings}"
        self.inputs = tuple(b for b in self.buffers if not b.output)
        self.outputs = tuple(b for b in self.buffers if b.output)
        self.input_names = tuple(b.name for b in self.inputs)
        self._names = {b.name for b in self.outputs}, set(self.input_names), {p.name for p in self.params}
        if KERNELS.get(name, self).text != self.text:
            raise ValueError(f"kernel {name} is declared twice")
        KERNELS[name] = self

    @staticmethod
    def _buf(text: str) -> BufSpec:
        out, name, suffix = _BUF.match(text).groups()  # type: ignore[union-attr]
        return BufSpec(name, bool(out), suffix == "?", suffix == "*")

    @staticmethod
    def _param(text: str) -> ParamSpec:
        name, count, is_float = _PARAM.match(text).groups()  # type: ignore[union-attr]
        return ParamSpec(name, -1 if count == "*" else int(count or 0), bool(is_float))

    def raw_params(self, node: Node) -> list[DimLike | float]:
        """The ABI parameters of a call, flat: integers, Dims, and floats for f64 parameters."""
        given = node.params if self.finish is None else self.finish(node)
        flat: list[DimLike | float] = []
        for spec in self.params:
            got = given.get(spec.name, ())
            items = list(got) if isinstance(got, (list, tuple)) else [got]
            if spec.count == -1:
                flat += items
                continue
            count = spec.count or 1
            if len(items) > count:
                raise IRError(f"{self.name}: {spec.name} holds {len(items)} entries, the kernel takes {count}")
            flat += [float(i) if spec.is_float and not isinstance(i, Dim) else i for i in items + [0] * (count - len(items))]
        return flat

    @property
    def abi(self) -> int:
        """FNV-1a hash, 32 bits, of the declaration's text."""
        h = 0x811C9DC5
        for byte in self.text.encode():
            h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
        return h

    def __repr__(self) -> str:
        return f"Kernel({self.text!r})"

    def __call__(
        self, outs: dict[str, tuple[DType, Sequence[Any]]], ins: Mapping[str, Value | Sequence[Value] | None], **params: Any
    ) -> Any:
        """Emits a call into the current graph. Params left out are 0; short arrays are padded with 0.

        Args:
            outs: ``{buffer: (dtype, shape)}`` of the outputs that are wanted.
            ins: ``{buffer: value}``; a list for the variadic buffer.
        Returns:
            The new value, or a tuple of them in declaration order when ``outs`` names several.
        """
        unknown = (
            outs.keys() - self._names[0] | ins.keys() - self._names[1] | (params.keys() - self._names[2] if self.finish is None else set())
        )
        if unknown:
            raise TypeError(f"{self.name} has no {sorted(unknown)}")
        return Graph.current().emit(Node(self, dict(ins), dict(params)), outs)


class Control(Kernel):
    """A branch or a loop, which the core or a player runs itself: ``if`` or ``loop`` over graphs of their own, ``node.params["bodies"]``;
    or a call that the ``host`` does, ``node.params["callback"]``.

    Its inputs are what those graphs take, its outputs what they give, of sizes that are known behind it.
    """

    def __init__(self, name: str, outputs: int, notation: Mapping[str, Notation] | None = None) -> None:
        self.name, self.finish = name, None
        self.buffers = (
            *(BufSpec(f"y{k}", True, False, False) for k in range(outputs)),
            BufSpec("x", False, False, True),
        )
        self.params = ()
        self.traits = frozenset({"control"})
        self.enums, self.notation = {}, dict(notation or {})
        self.text = name
        self.inputs = tuple(b for b in self.buffers if not b.output)
        self.outputs = tuple(b for b in self.buffers if b.output)
        self.input_names = tuple(b.name for b in self.inputs)
        self.needed = tuple((b.name, b.output) for b in self.buffers if not b.optional and not b.variadic)
        self._names = (
            {b.name for b in self.outputs},
            set(self.input_names),
            {"bodies", "first", "condition", "trips", "stacked", "callback", "shader"},
        )

    @property
    def abi(self) -> int:
        return 2 if self.name == "loop" else 1


@dataclass(frozen=True)
class Operator:
    """A registered operator version: holds from opset ``since`` to ``until`` (inclusive, None: newest)."""

    name: str
    domain: str
    since: int
    until: int | None
    fn: Callable[..., Any]
    params: tuple[str, ...]  # positional: the inputs
    variadic: bool
    attrs: tuple[str, ...]  # keyword-only
    needed: tuple[str, ...]  # those without a default
    required: tuple[tuple[int, str], ...]  # inputs that must be there: place and name
    takes_context: bool = field(default=False)
    takes_items: bool = field(default=False)
    custom: bool = field(default=False)  # goes before those that are not
    kinds: tuple[str, ...] = ()  # the annotation of each input, the variadic one last

    def kind(self, index: int) -> str:
        """The annotation of an input."""
        return self.kinds[min(index, len(self.kinds) - 1)] if self.kinds else ""

    def takes_strings(self, index: int) -> bool:
        return any(word in self.kind(index) for word in ("Strings", "Moved", "Any"))

    def takes_tensors(self, index: int) -> bool:
        return any(word in self.kind(index) for word in ("Value", "Moved", "Any"))

    @property
    def moves(self) -> bool:
        """It moves elements, which may be strings."""
        return any("Moved" in kind for kind in self.kinds)


OPERATORS: dict[tuple[str, str], list[Operator]] = {}
REFUSED: dict[tuple[str, str], str] = {}  # operators that nobody can run here: who writes them, and the cure


def op(
    name: str | None = None,
    *,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    emit: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as an ONNX operator; ``@pyonnx_wasm.op(domain="my.ops")`` is this decorator.

    The function is called when a model is compiled. Its positional parameters are the operator's inputs (default None, or annotated
    so: optional; ``*xs``: variadic), its keyword-only parameters the attributes with the defaults of the standard; a parameter named
    ``ctx`` is none of them but receives the :class:`Context`. Sequences are given only to functions whose
    annotations name ``Items``, maps to those that are annotated ``Map``.
    The function returns a value, or a tuple of values in the order of the outputs, made with :mod:`pyonnx_wasm.tensor` and
    :func:`pyonnx_wasm.apply`. One from outside this package takes the place of a built-in one, and of what was registered before.

    Strings are given to inputs annotated ``Strings``, or ``Value | Strings``, and to those annotated ``Moved``. One operator may have
    a function for tensors and another for strings; the inputs decide.

    Args:
        name: of the operator; default: the function's.
        since, until: versions of the domain's opset that it holds for, inclusive.
        domain: ``""`` is ai.onnx.
        emit: what is called in the place of the function, with a ``ctx``; the function gives the schema alone.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        entry = _operator(fn, name, since, until, "" if domain == "ai.onnx" else domain)
        if emit is not None:
            entry = replace(entry, fn=emit, takes_context=True)
        versions = OPERATORS.setdefault((entry.domain, entry.name), [])
        if entry.custom:
            versions[:] = [v for v in versions if not v.custom or (v.since, v.until) != (since, until)]
        versions.append(entry)
        return fn

    return register


def _inputs_of(code: Any) -> tuple[str, ...]:
    """The names of positional parameters, the variadic one behind the others."""
    variadic = code.co_argcount + code.co_kwonlyargcount
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return (*names, code.co_varnames[variadic]) if code.co_flags & inspect.CO_VARARGS else names


def _operator(fn: Callable[..., Any], name: str | None, since: int, until: int | None, domain: str) -> Operator:
    if fn.__kwdefaults__:  # as an attribute holds them, in float32
        fn.__kwdefaults__ = {
            k: struct.unpack("<f", struct.pack("<f", v))[0] if isinstance(v, float) else v for k, v in fn.__kwdefaults__.items()
        }
    # inspect.signature would take a third of the time that importing all operators takes in Pyodide.
    code = fn.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    outside = not fn.__module__.startswith(f"{__package__}.ops.")
    kinds = [str(fn.__annotations__.get(n, "")) for n in _inputs_of(code)]
    return Operator(
        name or fn.__name__.rstrip("_"),
        domain,
        since,
        until,
        fn,
        names[: code.co_argcount],
        bool(code.co_flags & inspect.CO_VARARGS),
        tuple(n for n in names[code.co_argcount :] if n != "ctx"),
        tuple(n for n in names[code.co_argcount :] if n != "ctx" and n not in (fn.__kwdefaults__ or {})),
        tuple(
            (k, n)
            for k, n in enumerate(names[: code.co_argcount - len(fn.__defaults__ or ())])
            if "None" not in str(fn.__annotations__.get(n, ""))
        ),
        "ctx" in names,
        any("Items" in str(a) or a == "Map" for n, a in fn.__annotations__.items() if n != "return"),
        outside,
        tuple(kind if not outside or "Strings" in kind or "Moved" in kind else "Value" for kind in kinds),
    )


@dataclass(frozen=True)
class Step:
    """A call of an operator on the way back: what it took and gave, and the gradients of what it gave, None for what nothing depends on."""

    name: str  # of the operator
    grads: Sequence[Value | None]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    attrs: Mapping[str, Any]
    opset: int = 0

    @property
    def grad(self) -> Value:
        """The gradient of the first output."""
        if self.grads[0] is None:
            raise IRError("only its first output may be differentiated")
        return self.grads[0]


ADJOINTS: dict[str, Callable[[Step], Sequence[Value | None]]] = {}


def adjoint(*names: str) -> Callable[[Callable[[Step], Sequence[Value | None]]], Callable[[Step], Sequence[Value | None]]]:
    """Registers how gradients pass back through operators of ai.onnx: a function that gives those of the inputs."""

    def register(fn: Callable[[Step], Sequence[Value | None]]) -> Callable[[Step], Sequence[Value | None]]:
        for name in names:
            ADJOINTS[name] = fn
        return fn

    return register


GROUP = "pyonnx_wasm.operators"
_KNOWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft")


def _brings(folder: str) -> bool:
    """Whether a package that is installed in a folder has entry points of the group."""
    for file in glob.iglob(os.path.join(glob.escape(folder or os.curdir), "*-info", "entry_points.txt")):
        with open(file, encoding="utf-8", errors="replace") as f:
            if f"[{GROUP}]" in f.read():
                return True
    return False


@cache
def load_packages() -> None:
    """Loads what installed packages bring: entry points of the group ``pyonnx_wasm.operators`` name modules, or functions to call, that
    register operators. One that fails is a warning that names it."""
    if not any(map(_brings, sys.path)):  # importing importlib.metadata takes longer than compiling a small model
        return
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        try:
            found = entry.load()
            if callable(found):
                found()
        except Exception as error:
            message = f"operators of {entry.value!r} ({entry.dist.name if entry.dist else 'a package'}): {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class Context:
    """What an operator may ask of its node: the opset of its domain, how many outputs are named, and which."""

    opset: int
    outputs: tuple[str, ...]  # "" for an output that nobody wants
    node: str
    tracer: Any = None
    names: Any = None

    def wants(self, index: int) -> bool:
        return index < len(self.outputs) and bool(self.outputs[index])


def find(domain: str, name: str, opset: int, strings: bool = False) -> Operator:
    """The operator version that an opset selects, the one for ``strings`` where there are several; raises IRError with what there is."""
    versions = OPERATORS.get(("" if domain == "ai.onnx" else domain, name))
    if not versions and (domain, name) in REFUSED:
        raise IRError(f"operator {domain}.{name} is not supported: {REFUSED[domain, name]}")
    if not versions:
        cure = "" if domain in _KNOWN_DOMAINS else "; one of your own is registered with @pyonnx_wasm.op or @pyonnx_wasm.callback"
        raise IRError(f"operator {domain or 'ai.onnx'}.{name} is not supported; `pyonnx-wasm operators` lists what is{cure}")
    fitting = [v for v in versions if v.since <= opset and (v.until is None or opset <= v.until)]
    if not fitting:
        have = ", ".join(f"{v.since} to {v.until or 'newest'}" for v in versions)
        raise IRError(f"operator {name} of opset {opset} is not supported (supported: {have})")
    suiting = [v for v in fitting if not v.kinds or any(map(v.takes_strings if strings else v.takes_tensors, range(len(v.kinds))))]
    return max(suiting or fitting, key=lambda v: (v.custom, v.since))
