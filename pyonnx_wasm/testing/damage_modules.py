"""Damages the WebAssembly that a file brings along: nothing but an error that names the node, or a result, may come of it.

``python -m pyonnx_wasm.testing.damage --modules --count 20000`` runs a custom operator in wasmtime, whose module has bytes and runs of
bytes changed, in one process; what a module does is bounded by operations and by memory, so that none runs without end.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..callbacks import Asked, Callback, CallbackError, Wasm
from ..dtypes import DType
from ..runtimes import Limits
from ..runtimes.wasm_operator import WasmOperator

LIMITS = Limits(1 << 26, 200_000)
# y = x + 1 over float32, the elements one after the other.
TEXT = """(module (memory (export "memory") 1) (data (i32.const 64) "ones") (global $one (mut f32) (f32.const 1))
  (func $more (param f32) (result f32) (f32.add (local.get 0) (global.get $one)))
  (table 1 funcref) (elem (i32.const 0) $more) (type $unary (func (param f32) (result f32)))
  (func (export "More") (param $in i32) (param $n i32) (param $out i32) (param $m i32) (result i32)
    (local $x i32) (local $y i32) (local $count i32)
    (local.set $x (i32.load (local.get $in)))
    (local.set $y (i32.load (local.get $out)))
    (local.set $count (i32.load (i32.load offset=4 (local.get $in))))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (f32.store (local.get $y) (call_indirect (type $unary) (f32.load (local.get $x)) (i32.const 0)))
      (local.set $x (i32.add (local.get $x) (i32.const 4)))
      (local.set $y (i32.add (local.get $y) (i32.const 4)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
    (i32.const 0)))"""


def damaged(module: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed, or a run of them left out, repeated or moved; the head stays."""
    out = bytearray(module)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(8, len(out)))
        length = int(rng.integers(1, 9))
        way = int(rng.integers(6))
        if way < 3:
            out[at] = int(rng.integers(256)) if way else out[at] ^ 1 << int(rng.integers(8))
        elif way == 3:
            del out[at : min(at + length, len(out) - 1)]
        else:
            source = at if way == 4 else int(rng.integers(8, len(out)))
            out[at:at] = out[source : source + length]
        if len(out) < 10:
            return bytes(out)
    return bytes(out)


def outcome(module: bytes, callback: Callback, asked: Asked) -> str:
    """What became of a module: it ran, or the error in a few words. Any other exception is passed on."""
    try:
        operator = WasmOperator(callback, Wasm(module, "More", ()), LIMITS)
        operator.run(asked)
        operator.run(asked)
    except CallbackError as error:
        text = str(error)
        if "More" not in text:
            raise AssertionError(f"the error names no operator: {text}") from error
        return next((k for k in ("compile", "imports", "exports no", "more than", "failed", "returned", "leaves") if k in text), text)
    return "ran"


def run(seed: int, first: int, count: int) -> Counter[str]:
    """How often modules ended in each way; AssertionError names the case that ended in another."""
    from wasmtime import wat2wasm

    module = bytes(wat2wasm(TEXT))
    callback = Callback("damage", "More", "node", (True,), outputs=((DType.float32, 1),))
    x = np.arange(5, dtype=np.float32)
    asked = Asked(0, [x, np.array([5], np.int64)], [(DType.float32, 1)], [DType.float32, DType.int64])
    found: Counter[str] = Counter()
    for case in range(first, first + count):
        try:
            found[outcome(damaged(module, np.random.default_rng([seed, case])), callback, asked)] += 1
        except Exception as error:
            raise AssertionError(f"case {case} of seed {seed}: {type(error).__name__}: {error}") from error
    return found
