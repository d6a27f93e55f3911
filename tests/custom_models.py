"""Operators of one's own for the tests of several backends: in numpy, WebAssembly, WGSL, and models of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import wasmtime
from onnx import TensorProto, helper

import pyonnx_wasm as ort
from pyonnx_wasm import callbacks
from pyonnx_wasm.registry import OPERATORS

DOMAIN = "test.kernels"
node = helper.make_node
X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)

# y = scale * x + shift, where shift may be left out.
AFFINE = """
  (func (export "Affine") (param $in i32) (param $n i32) (param $out i32) (param $m i32) (result i32)
    (local $x i32) (local $y i32) (local $s i32) (local $count i32) (local $rank i32) (local $dims i32) (local $scale f32)
    (local.set $x (i32.load (local.get $in)))
    (local.set $s (i32.load offset=16 (local.get $in)))
    (local.set $y (i32.load (local.get $out)))
    (local.set $dims (i32.load offset=4 (local.get $in)))
    (local.set $rank (i32.load offset=8 (local.get $in)))
    (local.set $count (i32.const 1))
    (block $counted (loop $axis
      (br_if $counted (i32.eqz (local.get $rank)))
      (local.set $count (i32.mul (local.get $count) (i32.load (local.get $dims))))
      (local.set $dims (i32.add (local.get $dims) (i32.const 4)))
      (local.set $rank (i32.sub (local.get $rank) (i32.const 1)))
      (br $axis)))
    (local.set $scale (f32.demote_f64 (f64.load (i32.load offset=32 (local.get $in)))))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (f32.store (local.get $y) (f32.add
        (f32.mul (f32.load (local.get $x)) (local.get $scale))
        (if (result f32) (local.get $s) (then (f32.load (local.get $s))) (else (f32.const 0)))))
      (local.set $x (i32.add (local.get $x) (i32.const 4)))
      (local.set $y (i32.add (local.get $y) (i32.const 4)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
    (i32.const 0))
"""
# The elements above zero, and how many (int64, of rank 0): they take the place of the input.
POSITIVE = """
  (func (export "Positive") (param $in i32) (param $n i32) (param $out i32) (param $m i32) (result i32)
    (local $x i32) (local $to i32) (local $count i32) (local $kept i32)
    (local.set $x (i32.load (local.get $in)))
    (local.set $to (local.get $x))
    (i32.store (local.get $out) (local.get $x))
    (local.set $count (i32.load (i32.load offset=4 (local.get $in))))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (if (f32.gt (f32.load (local.get $x)) (f32.const 0)) (then
        (f32.store (local.get $to) (f32.load (local.get $x)))
        (local.set $to (i32.add (local.get $to) (i32.const 4)))
        (local.set $kept (i32.add (local.get $kept) (i32.const 1)))))
      (local.set $x (i32.add (local.get $x) (i32.const 4)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
    (i32.store (i32.load offset=4 (local.get $out)) (local.get $kept))
    (if (i32.load offset=16 (local.get $out))
      (then (i64.store (i32.load offset=16 (local.get $out)) (i64.extend_i32_u (local.get $kept)))))
    (i32.const 0))
"""
MODULE = f'(module (memory (export "memory") 1) {AFFINE} {POSITIVE})'


def compiled(text: str = MODULE) -> bytes:
    """A module from its text."""
    return bytes(wasmtime.wat2wasm(text))


@contextmanager
def registered() -> Iterator[None]:
    """What is registered within is gone behind it."""
    operators = {key: list(versions) for key, versions in OPERATORS.items()}
    functions = dict(callbacks.FUNCTIONS)
    try:
        yield
    finally:
        OPERATORS.clear()
        OPERATORS.update(operators)
        callbacks.FUNCTIONS.clear()
        callbacks.FUNCTIONS.update(functions)


def register(*ways: str) -> None:
    """Registers ``Affine`` and ``Positive`` in some of ``python``, ``wasm``, ``wgsl``."""
    module = compiled() if "wasm" in ways else None

    def affine(x: np.ndarray, shift: np.ndarray | None = None, *, scale: float = 2.0) -> np.ndarray:
        if "python" not in ways:
            raise NotImplementedError
        return np.float32(scale) * x + np.float32(0 if shift is None else shift)

    def positive(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if "python" not in ways:
            raise NotImplementedError
        return x[x > 0], np.array((x > 0).sum(), np.int64)

    wgsl = "#if shift\nreturn $scale * x + shift;\n#else\nreturn $scale * x;\n#endif" if "wgsl" in ways else None
    ort.callback("Affine", domain=DOMAIN, wasm=module, wgsl=wgsl)(affine)
    outputs: list[Any] = [(None, 1), ("int64", ())]
    ort.callback("Positive", domain=DOMAIN, wasm=module, outputs=outputs)(positive)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str] = ("y",),
    dtypes: Mapping[str, int] | None = None,
    version: int = 1,
) -> bytes:
    """Inputs are float32 but for those in ``dtypes``."""
    types = dict(dtypes or {})
    given = [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), shape) for n, shape in inputs.items()]
    graph = helper.make_graph(list(nodes), "custom", given, [helper.make_empty_tensor_value_info(o) for o in outputs])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(DOMAIN, version)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def affine_model() -> bytes:
    """``y = |scale * -x + shift|`` with scale 3, between two operators of the standard."""
    nodes = [node("Neg", ["x"], ["n"]), node("Affine", ["n", "s"], ["a"], domain=DOMAIN, scale=3.0, name="here"), node("Abs", ["a"], ["y"])]
    return model(nodes, {"x": ["a", "b"], "s": []})


def positive_model() -> bytes:
    """The elements of ``-x`` above zero, negated again, and their count."""
    return model(
        [node("Neg", ["x"], ["n"]), node("Positive", ["n"], ["p", "c"], domain=DOMAIN, name="pick"), node("Neg", ["p"], ["y"])],
        {"x": ["n"]},
        ["y", "c"],
    )


def loop_model() -> bytes:
    """``k`` times ``c = Affine(c)`` with scale 0.5 and shift 1."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Affine", ["c", "one"], ["next"], domain=DOMAIN, scale=0.5, name="inner")],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("c", TensorProto.FLOAT, ["a", "b"])],
        [info("on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, ["a", "b"])],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    return model([node("Loop", ["k", "", "x"], ["y"], body=body)], {"x": ["a", "b"], "k": []}, dtypes={"k": TensorProto.INT64})
