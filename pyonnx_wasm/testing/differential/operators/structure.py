"""Sequences, optionals, control flow; signals, losses and text."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ..sketch import BOOL, FLOAT, INT64, Sketch
from ..values import code_of, is_float
from . import Schema, dtypes, generates, picked


def sequence(m: Sketch, dtype: np.dtype[Any]) -> tuple[str, int, tuple[int, ...]]:
    """A sequence of tensors of one shape: its name, length and their shape."""
    dims = m.shape(m.integer(1, 3))
    count = m.integer(1, 4)
    return m.node("SequenceConstruct", *(m.operand(dtype, dims) for _ in range(count))), count, dims


def tensors(schema: Schema) -> list[np.dtype[Any]]:
    """What the sequences of a schema hold."""
    from ..values import dtype_of

    for constraint in schema.type_constraints:
        found = [dtype_of(t[4:-1]) for t in constraint.allowed_type_strs if t.startswith("seq(tensor")]
        if any(d is not None for d in found):
            return [d for d in found if d is not None]
    return [FLOAT]


@generates("SequenceConstruct", "SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength", "ConcatFromSequence")
def on_sequence(m: Sketch, schema: Schema) -> None:
    dtype = m.dtype(tensors(schema))
    seq, count, dims = sequence(m, dtype)
    name = schema.name
    position = m.ints(m.integer(-count, count - 1), m.choice((np.int64, np.int32)))
    if name == "SequenceLength":
        m.result(m.node("SequenceLength", seq))
    elif name == "ConcatFromSequence":
        new = m.integer(0, 1)
        m.result(m.node(name, seq, axis=m.integer(-len(dims) - new, len(dims) - 1 + new), new_axis=new if new or m.chance(0.5) else None))
    elif name in ("SequenceErase", "SequenceInsert"):
        more = [m.operand(dtype, dims)] if name == "SequenceInsert" else []
        changed = m.node(name, seq, *more, *([position] if m.chance(0.7) else []))
        m.result(m.node("ConcatFromSequence", changed, axis=0, new_axis=1) if count > 1 or more else m.node("SequenceLength", changed))
    else:
        m.result(m.node("SequenceAt", seq, position))


@generates("SequenceEmpty")
def sequence_empty(m: Sketch, schema: Schema) -> None:
    dtype = m.dtype(tensors(schema))
    empty = m.node("SequenceEmpty", dtype=code_of(dtype) if dtype != FLOAT or m.chance(0.5) else None)
    full = m.node("SequenceInsert", empty, m.operand(dtype, m.shape(2)))
    m.result(m.node("SequenceLength", empty), m.node("ConcatFromSequence", full, axis=0))


@generates("SplitToSequence")
def split_to_sequence(m: Sketch, schema: Schema) -> None:
    dims = list(m.shape(m.integer(1, 3)))
    at = m.integer(0, len(dims) - 1)
    sizes = [m.integer(1, 3) for _ in range(m.integer(1, 3))]
    dims[at] = sum(sizes)
    split = [] if m.chance(0.4) else [m.ints(sizes) if m.chance(0.6) else m.const(np.asarray(m.integer(1, 3), np.int64))]
    keep = m.choice((None, 0, 1)) if not split else None
    seq = m.node("SplitToSequence", m.operand(picked(m, schema), dims), *split, axis=at - len(dims) if m.chance(0.4) else at, keepdims=keep)
    m.result(
        m.node("SequenceLength", seq), m.node("SequenceAt", seq, m.const(np.asarray(0))), m.node("SequenceAt", seq, m.const(np.asarray(-1)))
    )


@generates("SequenceMap")
def sequence_map(m: Sketch, schema: Schema) -> None:
    seq, _, dims = sequence(m, FLOAT)
    extra = m.operand(FLOAT, dims[-1:])
    body = m.body()
    item, more = body.fresh("item"), body.fresh("item")
    body.result(body.node(m.choice(("Add", "Mul", "Sub")), item, more))
    graph = body.subgraph([(item, FLOAT, None), (more, FLOAT, None)])
    m.result(m.node("ConcatFromSequence", m.node("SequenceMap", seq, extra, body=graph), axis=0))


@generates("Optional", "OptionalHasElement", "OptionalGetElement")
def optional(m: Sketch, schema: Schema) -> None:
    x = m.operand(FLOAT, m.shape())
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    if schema.name == "OptionalHasElement" and m.chance(0.4):
        m.result(m.node("OptionalHasElement", m.node("Optional", type=tensor)))
        return
    made = m.node("Optional", x)
    direct = x if m.opset >= 18 and m.chance(0.4) else made
    m.result(m.node("OptionalHasElement" if schema.name == "OptionalHasElement" else "OptionalGetElement", direct))


def steps(m: Sketch, x: str, count: int) -> str:
    """A few element-wise operations in a row."""
    for _ in range(count):
        x = m.node(m.choice(("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Floor", "Identity")), x)
    return x


@generates("If")
def if_(m: Sketch, schema: Schema) -> None:
    dims = m.shape()
    x, y = m.operand(FLOAT, dims), m.operand(FLOAT, dims)
    asked = m.integer(0, 2)
    truth = m.array(BOOL, ())
    cond = m.const(truth) if asked == 0 and not m.varying else m.input(truth)
    if asked == 2:
        total = m.node("ReduceSum", x, keepdims=0)
        cond = m.node("Greater", total, m.const(np.asarray(0.25, np.float32)))
    branches = []
    for _ in range(2):
        body = m.body()
        body.result(steps(body, body.node(m.choice(("Add", "Sub", "Mul", "Max")), x, y), m.integer(0, 2)))
        branches.append(body.subgraph())
    m.result(m.node("If", cond, then_branch=branches[0], else_branch=branches[1]))


@generates("Loop")
def loop(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(0, 3))
    x, start = m.operand(FLOAT, dims), m.operand(FLOAT, dims)
    trips = m.integer(0, 4)
    limited = m.chance(0.8)
    count = m.const(np.asarray(trips)) if m.chance(0.5) else m.input(np.asarray(trips))
    body = m.body()
    at, on, carried = body.fresh("i"), body.fresh("on"), body.fresh("carried")
    step = body.node(m.choice(("Add", "Sub", "Max", "Mul")), carried, x)
    step = steps(body, step, m.integer(0, 1))
    going = on
    if m.chance(0.4) or not limited:
        going = body.node("Less", at, body.const(np.asarray(m.integer(0, 3))))
    body.outputs = [body.node("Identity", going), step]
    if m.chance(0.5) and trips:  # what no iteration gives has a shape that nobody can know
        body.outputs.append(body.node("Identity", carried) if m.chance(0.5) else body.node("Neg", step))
    graph = body.subgraph([(at, INT64, ()), (on, BOOL, ()), (carried, FLOAT, None)])
    cond = m.const(np.asarray(True)) if m.chance(0.5) or not limited else ""
    m.result(*m.add("Loop", [count if limited else "", cond, start], len(body.outputs) - 1, body=graph))


@generates("Scan")
def scan(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(0, 2))
    length = m.size(1, 4)
    old = m.opset < 9
    axis = m.integer(0, len(dims)) if not old else 0
    lead = (m.size(1, 2),) if old else ()
    shape = (*lead, length, *dims) if old else (*dims[:axis], length, *dims[axis:])
    x, state = m.operand(FLOAT, shape), m.operand(FLOAT, (*lead, *dims))
    body = m.body()
    carried, item = body.fresh("carried"), body.fresh("item")
    total = body.node(m.choice(("Add", "Sub", "Max", "Mul")), carried, item)
    body.outputs = [total, body.node(m.choice(("Neg", "Relu", "Identity")), total)]
    graph = body.subgraph([(carried, FLOAT, None), (item, FLOAT, None)])
    attributes: dict[str, Any] = {"num_scan_inputs": 1}
    if old:
        attributes |= {"directions": [m.integer(0, 1)]} if m.chance(0.5) else {}
    else:
        attributes |= {"scan_input_axes": [axis - len(shape) if m.opset >= 11 and m.chance(0.4) else axis]} if axis or m.chance(0.3) else {}
        attributes |= {"scan_input_directions": [m.integer(0, 1)]} if m.chance(0.4) else {}
        attributes |= {"scan_output_directions": [m.integer(0, 1)]} if m.chance(0.4) else {}
        attributes |= {"scan_output_axes": [m.integer(0, len(dims))]} if m.chance(0.3) else {}
    m.result(*m.add("Scan", [*([""] if old else []), state, x], 2, body=graph, **attributes))


@generates("HannWindow", "HammingWindow", "BlackmanWindow")
def windows(m: Sketch, schema: Schema) -> None:
    size = m.ints(m.integer(1, 12), m.dtype(dtypes(schema, "T1")))
    kind = code_of(m.choice([d for d in dtypes(schema, "T2") if is_float(d)])) if m.chance(0.3) else None
    m.result(m.node(schema.name, size, periodic=m.choice((None, 0, 1)), output_datatype=kind))


@generates("DFT")
def dft(m: Sketch, schema: Schema) -> None:
    m.empty = False
    lead = m.shape(m.integer(1, 3), 1, 8)
    inverse, onesided = m.integer(0, 1), m.integer(0, 1)
    lead = tuple(max(s, 2) for s in lead) if inverse and onesided else lead  # half a spectrum of one number is a transform of none
    last = 1 if not inverse and (onesided or m.chance(0.5)) else 2
    if inverse and onesided and m.opset < 20:
        onesided = 0
    at = m.integer(0, len(lead) - 1)
    x = m.operand(picked(m, schema, "T1", 0.7), (*lead, last), "plain", constant=0)
    length = [m.const(np.asarray(m.integer(1, 9)))] if m.chance(0.3) else []
    flags: dict[str, Any] = {"inverse": inverse or None, "onesided": onesided or None}
    if m.opset < 20:
        m.result(m.node("DFT", x, *length, axis=at, **flags))
        return
    axis = [m.const(np.asarray(at - len(lead) - 1 if m.chance(0.4) else at))]
    m.result(m.node("DFT", x, *(length or [""]), *axis, **flags))


@generates("STFT")
def stft(m: Sketch, schema: Schema) -> None:
    length, step = m.integer(2, 6), m.integer(1, 4)
    dtype = picked(m, schema, "T1", 0.7)
    signal = m.operand(dtype, (m.size(1, 2), length + m.size(0, 10), 1), "plain", constant=0)
    window = m.operand(dtype, (length,), "plain", constant=0.7) if m.chance(0.6) else ""
    more = [m.const(np.asarray(length))] if not window or m.chance(0.5) else []
    m.result(m.node("STFT", signal, m.const(np.asarray(step)), window, *more, onesided=m.choice((None, 0, 1))))


@generates("MelWeightMatrix")
def mel_weight_matrix(m: Sketch, schema: Schema) -> None:
    bins, length, rate = m.integer(2, 10), m.choice((16, 32, 64, 128)), m.choice((4000, 8000, 16000))
    kind = m.dtype(dtypes(schema, "T2"))
    edges = [np.asarray(0 if m.chance(0.5) else 100, kind), np.asarray(rate // 2 if m.chance(0.5) else rate // 3, kind)]
    whole = m.dtype(dtypes(schema, "T1"))
    target = code_of(picked(m, schema, "T3")) if m.chance(0.2) else None
    m.result(
        m.node(
            "MelWeightMatrix", *(m.const(np.asarray(v, whole)) for v in (bins, length, rate)), *map(m.const, edges), output_datatype=target
        )
    )


@generates("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(m: Sketch, schema: Schema) -> None:
    reduction = m.choice((None, "mean", "sum", "none"))
    m.empty = m.empty and reduction in ("sum", "none")  # a mean of nothing is no number
    dims = m.shape(m.integer(0, 2), 1, 4)
    n, classes = m.size(1, 4), m.integer(1, 5)
    dtype, kind = picked(m, schema), m.dtype(dtypes(schema, "Tind"))
    scores = m.operand(dtype, (n, classes, *dims), "plain", constant=0)
    labels = m.whole_numbers(0, classes - 1, (n, *dims), kind)
    weights = [m.operand(dtype, (classes,), "positive")] if m.chance(0.4) else []
    ignore = m.integer(0, classes - 1) if m.chance(0.3) else -100 if m.chance(0.2) else None
    two = schema.name == "SoftmaxCrossEntropyLoss" and m.chance(0.4)
    m.result(*m.add(schema.name, [scores, m.input(labels), *weights], 2 if two else 1, reduction=reduction, ignore_index=ignore))


@generates("TfIdfVectorizer")
def tf_idf(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    x = m.whole_numbers(0, 4, m.shape(m.integer(1, 2), 1, 8), dtype)
    ones, twos = m.some(range(5), 1), m.integer(1, 3)
    pool = [*ones, *(m.integer(0, 4) for _ in range(2 * twos))]
    weights = [m.real(0.1, 2) for _ in range(len(ones) + twos)]
    pairs = {tuple(pool[len(ones) + 2 * i : len(ones) + 2 * i + 2]) for i in range(twos)}
    pool = [*ones, *(v for pair in sorted(pairs) for v in pair)]
    weights = weights[: len(ones) + len(pairs)]
    order = [int(i) for i in m.pick.permutation(len(weights))]
    m.result(m.node("TfIdfVectorizer", m.input(x), mode=m.choice(("TF", "IDF", "TFIDF")), min_gram_length=m.integer(1, 2),
                    max_gram_length=2, max_skip_count=m.integer(0, 2), ngram_counts=[0, len(ones)], ngram_indexes=order,
                    pool_int64s=pool, weights=weights if m.chance(0.7) else None))  # fmt: skip
