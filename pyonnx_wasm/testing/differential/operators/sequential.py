"""Attention, recurrence, state, and the optimisers of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import BOOL, FLOAT, Sketch
from . import Schema, generates, picked

_BOUNDED = ("Tanh", "Sigmoid", "HardSigmoid", "Softsign", "ScaledTanh")
_ACTIVATIONS = (*_BOUNDED, "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "Elu", "Softplus")
_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}
_DEFAULTS = {"LeakyRelu", "HardSigmoid", "Elu"}  # of the others' alpha and beta nobody agrees


def activations(m: Sketch, count: int, directions: int) -> dict[str, Any]:
    """Activations for each direction and their parameters; what multiplies a state is bounded."""
    chosen = [m.choice(_BOUNDED if count > 1 and i % count == 0 else _ACTIVATIONS) for i in range(count * directions)]
    if not set(chosen) & _ALPHA or (set(chosen) & _ALPHA <= _DEFAULTS and m.chance(0.3)):
        return {"activations": chosen}
    alpha, beta = [m.real(0.1, 1) for a in chosen if a in _ALPHA], [m.real(0.1, 0.9) for a in chosen if a in _BETA]
    return {"activations": chosen, "activation_alpha": alpha, "activation_beta": beta or None}


@generates("RNN", "GRU", "LSTM")
def recurrent(m: Sketch, schema: Schema) -> None:
    name = schema.name
    gates, functions = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[name]
    direction = m.choice((None, "forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    length, batch, width = m.size(1, 4), m.choice((m.size(1, 3), m.size(1, 3), m.size(1, 9))), m.integer(1, 4)
    layout = m.choice((0, 0, 0, 1)) if m.opset >= 14 else 0
    dtype = picked(m, schema, "T", 0.7)
    hidden = m.integer(1, 40) if dtype == FLOAT and m.chance(0.5) else m.integer(1, 4)  # what many weights add up grows with each step
    weights = m.choice((0.0, 1.0))
    x = m.operand(dtype, (batch, length, width) if layout else (length, batch, width), "plain", constant=0)
    given = [x, *(m.operand(dtype, (d, gates * hidden, n), "plain", constant=weights) for n in (width, hidden))]
    optional = [m.operand(dtype, (d, 2 * gates * hidden), "plain", constant=weights) if m.chance(0.6) else ""]
    optional.append(m.input(m.whole_numbers(min(1, length), length, (batch,), np.int32)) if m.chance(0.3) else "")
    state = (batch, d, hidden) if layout else (d, batch, hidden)
    states = 2 if name == "LSTM" else 1
    begun = [m.chance(0.4) and not m.empty for _ in range(states)]  # after no step at all onnxruntime's state is zero, whatever it began as
    optional += [m.operand(dtype, state, "plain", constant=0.2) if b else "" for b in begun]
    if name == "LSTM":
        optional.append(m.operand(dtype, (d, 3 * hidden), "plain", constant=weights) if m.chance(0.25) else "")
    while optional and not optional[-1]:
        optional.pop()
    attributes: dict[str, Any] = {
        "hidden_size": hidden,
        "direction": direction,
        "clip": m.choice((None, None, 0.5)) if name != "LSTM" else None,  # onnxruntime does not clip the cell's state
        "layout": layout or None,
    }
    if m.chance(0.4):
        attributes |= activations(m, functions, d)
    if name == "GRU":
        attributes["linear_before_reset"] = m.choice((None, 0, 1))
    if name == "LSTM":
        attributes["input_forget"] = m.choice((None, None, 0, 1)) if m.chance(0.3) else None
    m.result(*m.add(name, [*given, *optional], 3 if name == "LSTM" else 2, **attributes))


def lengths(m: Sketch) -> tuple[int, int, int]:
    """Queries, keys, and how large a head's vectors may be: small ones, or many keys, of which kernels take several at once."""
    if m.chance(0.6):
        return m.size(1, 4), m.size(1, 5), 5
    return m.size(1, m.choice((1, 3, 20))), m.size(1, 90), 40


@generates("Attention")
def attention(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema, "T1", 0.6)
    batch, (queries, keys, most) = m.size(1, 2), lengths(m)
    size, depth = m.integer(1, most), m.integer(1, most)
    kv_heads, rep = m.integer(1, 2), m.integer(1, 2 if most == 5 else 5)
    heads = kv_heads * rep
    flat = m.chance(0.4)
    past = m.size(1, 3) if m.chance(0.25) else 0
    shapes: list[tuple[int, ...]] = [(batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, depth)]
    if flat:
        shapes = [(s[0], s[2], s[1] * s[3]) for s in shapes]
    given = [m.operand(dtype, s, "plain", constant=0.1) for s in shapes]
    total = keys + past
    mask = ""
    if m.chance(0.5):
        full = (batch, heads, queries, total)
        shape = m.choice((full, full[2:], (1, 1, *full[2:]), (batch, 1, *full[2:]), full[1:]))
        mask = m.input(m.array(BOOL, shape) | (np.arange(total) == 0)) if m.chance(0.5) else m.operand(dtype, shape, "plain", constant=0.3)
    optional = [mask]
    if past:
        optional += [m.operand(dtype, (batch, kv_heads, past, n), "plain", constant=0) for n in (size, depth)]
    elif m.opset >= 24 and m.chance(0.2):
        optional += ["", "", m.input(m.whole_numbers(min(1, keys), keys, (batch,)))]
    while optional and not optional[-1]:
        optional.pop()
    attributes: dict[str, Any] = {
        "scale": m.choice((None, 0.3)),
        "is_causal": m.choice((None, 0, 1)),
        "softcap": m.choice((None, None, 2.0)),
    }
    attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads} if flat else {}
    made = m.add("Attention", [*given, *optional], 3 if past else 1, **attributes)
    m.result(*made)


@generates("FlexAttention", domain="ai.onnx.preview")
def flex_attention(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema, "T1", 0.7)
    batch, queries, keys, size, depth, heads, rep = (
        m.size(1, 2),
        m.size(1, 4),
        m.size(1, 5),
        4,
        m.integer(1, 5),
        m.integer(1, 2),
        m.integer(1, 2),
    )
    shapes = [(batch, heads * rep, queries, size), (batch, heads, keys, size), (batch, heads, keys, depth)]
    given = [m.operand(dtype, s, "plain", constant=0.1) for s in shapes]
    m.result(m.node("FlexAttention", *given, domain="ai.onnx.preview", scale=m.choice((None, 0.3))))


@generates("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(m: Sketch, schema: Schema) -> None:
    batch, (queries, keys, most), heads = m.size(1, 2), lengths(m), m.integer(1, 3)
    size, causal = m.integer(1, most - 1), m.chance(0.2)
    keys = queries if causal else keys  # of other lengths onnxruntime leaves the last row whole
    shapes = [(batch, queries, heads * size), (batch, keys, heads * size), (batch, keys, heads * size)]
    given = [m.operand(FLOAT, s, "plain", constant=0) for s in shapes]
    optional = [m.operand(FLOAT, (3 * heads * size,), "plain", constant=0.7) if m.chance(0.4) else ""]
    optional.append(m.input(m.whole_numbers(0, 1, (batch, keys), np.int32) | (np.arange(keys) == 0)) if m.chance(0.25) else "")
    optional.append(m.operand(FLOAT, (m.choice((1, batch)), m.choice((1, heads)), queries, keys), "plain") if m.chance(0.3) else "")
    while optional and not optional[-1]:
        optional.pop()
    attributes = {"unidirectional": 1 if causal else None, "scale": m.choice((None, 0.4))}
    m.result(*m.add("MultiHeadAttention", [*given, *optional], 1, "com.microsoft", num_heads=heads, **attributes))


@generates("RotaryEmbedding")
def rotary(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    batch, heads, length, half = m.size(1, 2), m.integer(1, 3), m.size(1, 4), m.integer(1, 3)
    size = 2 * half
    part = 2 * m.integer(1, half) if m.chance(0.3) else 0
    width = (part or size) // 2
    flat = m.chance(0.4)
    x = m.operand(dtype, (batch, length, heads * size) if flat else (batch, heads, length, size), "plain", constant=0)
    positions = m.chance(0.6)
    table = (8, width) if positions else (batch, length, width)
    given = [x, *(m.operand(dtype, table, "plain", constant=0.5) for _ in range(2))]
    given += [m.input(m.whole_numbers(0, 7, (batch, length)))] if positions else []
    m.result(m.node("RotaryEmbedding", *given, interleaved=m.choice((None, 0, 1)), num_heads=heads if flat else None,
                    rotary_embedding_dim=part or None))  # fmt: skip


@generates("RotaryEmbedding", domain="com.microsoft")
def ms_rotary(m: Sketch, schema: Schema) -> None:
    batch, heads, length, half = m.size(1, 2), m.integer(1, 3), m.size(1, 4), m.integer(1, 3)
    x = m.operand(FLOAT, (batch, heads, length, 2 * half), "plain", constant=0)
    offset = m.chance(0.3)
    at = m.input(m.whole_numbers(0, 3, (1,)) if offset else m.whole_numbers(0, 7, (batch, length)))
    tables = [m.operand(FLOAT, (8, half), "plain", constant=0.5) for _ in range(2)]
    m.result(m.node("RotaryEmbedding", x, at, *tables, domain="com.microsoft", interleaved=m.choice((None, 0, 1))))


@generates("CausalConvWithState")
def causal_conv(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema, "T", 0.7)
    batch, channels, length, k = m.size(1, 2), m.integer(1, 3), m.size(1, 5), m.integer(1, 4)
    given = [m.operand(dtype, (batch, channels, length), "plain", constant=0), m.operand(dtype, (channels, 1, k), "plain", constant=0.7)]
    given.append(m.operand(dtype, (channels,), "plain", constant=0.7) if m.chance(0.5) else "")
    given.append(m.operand(dtype, (batch, channels, k - 1), "plain", constant=0) if m.chance(0.5) else "")
    while not given[-1]:
        given.pop()
    m.result(*m.add("CausalConvWithState", given, 2, activation=m.choice((None, "none", "silu", "swish"))))


@generates("LinearAttention")
def linear_attention(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema, "T", 0.8)
    batch, length, heads, rep, size, depth = m.size(1, 2), m.size(1, 4), m.integer(1, 2), m.integer(1, 2), m.integer(1, 3), m.integer(1, 3)
    rule = m.choice((None, "linear", "gated", "delta", "gated_delta"))
    shapes = [(batch, length, heads * rep * size), (batch, length, heads * size), (batch, length, heads * depth)]
    given = [m.operand(dtype, s, "unit", constant=0) for s in shapes]
    past = m.operand(picked(m, schema, "S", 0.9), (batch, heads, size, depth), "plain", constant=0) if m.chance(0.4) else ""
    told = "gated_delta" if rule is None else rule
    decay = m.input(-m.array(dtype, (batch, length, heads * (size if m.chance(0.3) else 1)), "unit")) if "gated" in told else ""
    beta = m.input(m.array(dtype, (batch, length, heads), "unit")) if "delta" in told else ""
    optional = [past, decay, beta]
    while optional and not optional[-1]:
        optional.pop()
    m.result(*m.add("LinearAttention", [*given, *optional], 2, q_num_heads=heads * rep, kv_num_heads=heads, update_rule=rule,
                    scale=m.choice((None, 0.5))))  # fmt: skip


@generates("Adagrad", "Adam", "Momentum", domain="ai.onnx.preview.training")
def optimiser(m: Sketch, schema: Schema) -> None:
    name = schema.name
    dtype = picked(m, schema, "T3")
    shapes = [m.shape(m.integer(0, 2)) for _ in range(m.integer(1, 2))]
    given = [m.input(m.array(picked(m, schema, "T1"), (), "unit")), m.input(m.whole_numbers(0, 3, ()))]
    for _ in range({"Adagrad": 2, "Adam": 3, "Momentum": 2}[name]):
        given += [m.input(m.array(dtype, s, "plain")) for s in shapes]
    given += [m.input(m.array(dtype, s, "positive")) for s in shapes]
    outputs = len(shapes) * {"Adagrad": 2, "Adam": 3, "Momentum": 2}[name]
    some = {
        "Adagrad": ("decay_factor", "epsilon", "norm_coefficient"),
        "Adam": ("alpha", "beta", "norm_coefficient", "norm_coefficient_post"),
    }
    attributes: dict[str, Any] = {k: m.real(0.05, 0.9) for k in m.some(some.get(name, ()))}
    if name == "Momentum":
        attributes = {
            "alpha": m.real(0.1, 0.9),
            "beta": m.real(0.1, 0.9),
            "mode": m.choice(("standard", "nesterov")),
            "norm_coefficient": 0.1,
        }
    m.result(*m.add(name, given, outputs, "ai.onnx.preview.training", **attributes))
