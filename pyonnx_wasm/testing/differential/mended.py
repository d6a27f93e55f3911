"""Operators that onnx's reference evaluator lacks or gets wrong, in numpy and in the dtype of what they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .resized import resized
from .values import Array, is_float

_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": 1.0, "ScaledTanh": 1.0}
_BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": 1.0}
_ACTIVATIONS: dict[str, Callable[[Array, Any, Any], Array]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.logaddexp(x, np.zeros_like(x)),
}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}

Activation = Callable[[Array], Array]
#: (product with W and its bias, product with R, R's bias, hidden state, cell state) -> (hidden state, cell state)
Step = Callable[..., tuple[Array, Array]]


def _activations(kind: str, directions: int, given: dict[str, Any]) -> list[list[Activation]]:
    """The functions of each direction; ``activation_alpha`` and ``activation_beta`` go to those that take one, in order."""
    names = given.get("activations") or _DEFAULTS[kind] * directions
    known = {n.lower(): n for n in _ACTIVATIONS}
    alphas, betas = iter(given.get("activation_alpha") or ()), iter(given.get("activation_beta") or ())
    made: list[Activation] = []
    for name in (known[n.lower()] for n in names):
        a = next(alphas, _ALPHA[name]) if name in _ALPHA else None
        b = next(betas, _BETA[name]) if name in _BETA else None
        made.append(lambda x, f=_ACTIVATIONS[name], a=a, b=b: f(x, a, b).astype(x.dtype))  # type: ignore[misc]
    each = len(made) // directions
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _rnn(f: Sequence[Activation], clip: Activation, given: dict[str, Any], r: Array, rb: Array, p: Array | None) -> Step:
    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        return f[0](clip(x + h @ r.T + rb)), c

    return step


def _gru(f: Sequence[Activation], clip: Activation, given: dict[str, Any], r: Array, rb: Array, p: Array | None) -> Step:
    n = r.shape[0] // 3
    (rz, rr, rh), (bz, br, bh) = (np.split(v, 3) for v in (r, rb))

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        z = f[0](clip(x[:, :n] + h @ rz.T + bz))
        reset = f[0](clip(x[:, n : 2 * n] + h @ rr.T + br))
        inner = reset * (h @ rh.T + bh) if given.get("linear_before_reset") else (reset * h) @ rh.T + bh
        return (1 - z) * f[1](clip(x[:, 2 * n :] + inner)) + z * h, c

    return step


def _lstm(f: Sequence[Activation], clip: Activation, given: dict[str, Any], r: Array, rb: Array, p: Array | None) -> Step:
    pi, po, pf = np.split(np.zeros(r.shape[0] // 4 * 3, r.dtype) if p is None else p, 3)

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, forget, cell = np.split(x + h @ r.T + rb, 4, axis=1)
        i = f[0](clip(i + pi * c))
        forget = 1 - i if given.get("input_forget") else f[0](clip(forget + pf * c))
        c = forget * c + i * f[1](clip(cell))
        return f[0](clip(o + po * c)) * f[2](c), c

    return step


_STEPS: dict[str, Callable[..., Step]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def recurrent(kind: str, given: dict[str, Any], x: Array, w: Array, r: Array, *rest: Array | None) -> list[Array]:
    """Y, Y_h and, of an LSTM, Y_c, as the operator's definition has them.

    Args:
        kind: RNN, GRU or LSTM.
        given: its attributes.
        x: [steps, batch, inputs], or [batch, steps, inputs] with ``layout`` 1.
        w, r: [directions, gates * hidden, inputs or hidden].
        rest: B, sequence_lens, initial_h, initial_c, P, as far as there are any.
    """
    b, lens, h0, c0, p = [*rest, None, None, None, None, None][:5]
    directions, rows, hidden = r.shape
    if given.get("layout"):
        x = x.swapaxes(0, 1)
        h0, c0 = (None if v is None else v.swapaxes(0, 1) for v in (h0, c0))
    steps, batch = x.shape[:2]
    bound = given.get("clip")
    clip: Activation = (lambda v: v) if bound is None else lambda v: np.clip(v, -bound, bound).astype(v.dtype)
    zeros = np.zeros((directions, batch, hidden), x.dtype)
    h0, c0 = (zeros if v is None else v for v in (h0, c0))
    bias = np.zeros((directions, 2 * rows), x.dtype) if b is None else b
    lengths = np.full(batch, steps) if lens is None else lens
    y = np.zeros((steps, directions, batch, hidden), x.dtype)
    ends = zeros.copy(), zeros.copy()
    functions = _activations(kind, directions, given)
    for d in range(directions):
        back = d == 1 or given.get("direction") == "reverse"
        step = _STEPS[kind](functions[d], clip, given, r[d], bias[d, rows:], None if p is None else p[d])
        for n in range(batch):
            h, c = h0[d, n : n + 1], c0[d, n : n + 1]
            for t in range(int(lengths[n]))[:: -1 if back else 1]:
                h, c = step(x[t, n : n + 1] @ w[d].T + bias[d, :rows], h, c)
                y[t, d, n] = h[0]
            ends[0][d, n], ends[1][d, n] = h[0], c[0]
    made = [y, *ends[: 2 if kind == "LSTM" else 1]]
    return [y.transpose(2, 0, 1, 3), *(v.swapaxes(0, 1) for v in made[1:])] if given.get("layout") else made


@cache
def operators() -> tuple[Any, ...]:
    """Classes that stand in for the evaluator's own: its Erf computes in float32, its Flatten fails where nothing is flattened."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops.op_resize import Resize as Theirs

    class Erf(OpRun):
        op_domain = ""

        def _run(self, x: Array) -> tuple[Array]:
            return (np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype),)

    class Flatten(OpRun):
        op_domain = ""

        def _run(self, x: Array, axis: int = 1) -> tuple[Array]:
            at = axis + x.ndim if axis < 0 else axis
            return (x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:])),)

    class Recurrent(OpRun):
        op_domain = ""

        def _run(self, x: Array, w: Array, r: Array, *rest: Array | None, **given: Any) -> tuple[Array, ...]:
            given = {n: v for n, v in given.items() if v is not None}
            made = recurrent(self.__class__.__name__, given, x, w, r, *rest)
            return tuple(made[: len(self.onnx_node.output)])

    class RNN(Recurrent):
        pass

    class GRU(Recurrent):
        pass

    class LSTM(Recurrent):
        pass

    class Resize(Theirs):
        def _run(self, *inputs: Any, **given: Any) -> Any:
            x, roi, scales, sizes = [*inputs, None, None][:4]
            old = scales is None and sizes is None  # before opset 11 the second input holds the scales
            if old or not (is_float(x.dtype) or given["mode"] == "nearest"):
                return super()._run(*inputs, **given)
            return (resized(x, roi, scales, sizes, given).astype(x.dtype),)

    class Slice(OpRun):
        """numpy takes a start before the first element for none in steps backwards; the standard takes the first element."""

        op_domain = ""

        def _run(self, x: Array, *given: Any, starts: Any = None, ends: Any = None, axes: Any = None) -> tuple[Array]:
            begins, stops, which, steps = [*(given or (starts, ends, axes)), None, None][:4]
            which = range(len(begins)) if which is None else which
            steps = [1] * len(begins) if steps is None else steps
            for start, end, axis, step in zip(*(map(int, v) for v in (begins, stops, which, steps)), strict=True):
                size, back = x.shape[axis], step < 0
                first, last = (v + size if v < 0 else v for v in (start, end))
                first, last = min(max(first, 0), size - back), min(max(last, -back), size - back)
                x = x.take(np.asarray(range(first, last, step), np.int64), axis)
            return (x,)

    class MatMulNBits(OpRun):
        op_domain = "com.microsoft"

        def _run(
            self, a: Array, b: Array, scales: Array, zero_points: Array | None = None, g_idx: Any = None, bias: Array | None = None,
            K: int = 0, N: int = 0, bits: int = 4, block_size: int = 32, **_: Any,
        ) -> tuple[Array]:  # fmt: skip
            blocks = -(-K // block_size)

            def unpacked(packed: Array, count: int) -> Array:
                fields = (packed.reshape(N, -1, 1) >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
                return fields.reshape(N, -1)[:, :count].astype(a.dtype)

            if g_idx is not None or (zero_points is not None and zero_points.dtype != np.uint8):
                raise NotImplementedError("group indices and zero points of floats")
            levels = unpacked(b, blocks * block_size).reshape(N, blocks, block_size)
            zero = np.full((N, blocks), 1 << (bits - 1), a.dtype) if zero_points is None else unpacked(zero_points, blocks)
            weights = ((levels - zero[..., None]) * scales.reshape(N, blocks, 1)).reshape(N, -1)[:, :K]
            y = a @ weights.T
            return ((y if bias is None else y + bias).astype(a.dtype),)

    return Erf, Flatten, RNN, GRU, LSTM, Resize, Slice, MatMulNBits
