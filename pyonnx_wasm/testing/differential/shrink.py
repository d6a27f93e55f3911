"""Makes a failing case small: fewer runs, outputs and nodes, smaller shapes, simpler values, as long as it fails alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import oracles
from .sketch import Case, every
from .values import Array, code_of, is_float

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, seconds: float = 40.0) -> Case:
    """A smaller case that fails too. Every candidate of a round is tried; rounds go on until none helps or time is up."""
    until = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for moves in (_runs, _outputs, _cuts, _bypasses, _attributes, _operands, _sizes, _values):
            found = True
            while found and time.monotonic() < until:
                found = False
                for candidate in moves(case):
                    if time.monotonic() > until:
                        break
                    tidy = _tidied(candidate)
                    if tidy is not None and _cost(tidy) < _cost(case) and fails(tidy):
                        case, found, again = tidy, True, True
                        break
    return case


def _cost(case: Case) -> tuple[float, ...]:
    arrays = [*(a for feeds in case.runs for a in feeds.values()), *map(numpy_helper.to_array, case.model.graph.initializer)]
    size = sum(a.size for a in arrays)
    digits = sum(_digits(a) for a in arrays)
    nodes = sum(1 for _ in every(case.model.graph))
    attributes = sum(len(n.attribute) for n in every(case.model.graph))
    symbols = sum(d.HasField("dim_param") for i in case.model.graph.input for d in i.type.tensor_type.shape.dim)
    return (nodes, len(case.runs), len(case.model.graph.output), attributes, size, len(arrays), symbols + digits)


def _digits(array: Array) -> int:
    flat = array.reshape(-1)
    if not is_float(array.dtype):
        return int(np.count_nonzero(flat))
    with np.errstate(all="ignore"):
        return sum(0 if v == 0 else min(len(repr(float(v))), 12) for v in flat[:200].astype(np.float64))


def _copy(case: Case) -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    return model, [dict(feeds) for feeds in case.runs]


def _reads(graph: onnx.GraphProto) -> set[str]:
    return {name for node in every(graph) for name in node.input} | {o.name for o in graph.output}


def _tidied(case: Case) -> Case | None:
    """Without nodes, constants and inputs that no output needs."""
    model, runs = _copy(case)
    graph = model.graph
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if any(o in needed for o in node.output):
            kept.append(node)
            needed |= set(node.input)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    needed |= _reads(attribute.g)
    if not kept:
        return None
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(kept)]
    del graph.node[:]
    graph.node.extend(nodes)
    for items in (graph.initializer, graph.input):
        keep = [i for i in items if i.name in needed]
        if len(keep) < len(items):
            copies = [type(i).FromString(i.SerializeToString()) for i in keep]
            del items[:]
            items.extend(copies)
    names = {i.name for i in graph.input}
    return replace(case, model=model, runs=tuple({n: a for n, a in feeds.items() if n in names} for feeds in runs))


def _runs(case: Case) -> Iterator[Case]:
    for index in range(len(case.runs) if len(case.runs) > 1 else 0):
        yield replace(case, runs=(case.runs[index],))
        yield replace(case, runs=case.runs[:index] + case.runs[index + 1 :])


def _outputs(case: Case) -> Iterator[Case]:
    count = len(case.model.graph.output)
    for index in range(count if count > 1 else 0):
        for only in (True, False):
            model, _ = _copy(case)
            keep = [o for i, o in enumerate(model.graph.output) if (i == index) == only]
            copies = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in keep]
            del model.graph.output[:]
            model.graph.output.extend(copies)
            yield replace(case, model=model)


def _cuts(case: Case) -> Iterator[Case]:
    """A value becomes the output, or an input that is fed what it is."""
    for node in case.model.graph.node:
        for name in node.output:
            if name and [o.name for o in case.model.graph.output] != [name]:
                model, _ = _copy(case)
                del model.graph.output[:]
                model.graph.output.append(helper.make_empty_tensor_value_info(name))
                yield replace(case, model=model)
    computed = _intermediates(case)
    for node in reversed(case.model.graph.node):
        for name in node.output:
            if name in computed:
                yield _fed(case, name, computed[name])


def _intermediates(case: Case) -> dict[str, list[Array]]:
    """What each value is in each run, by an oracle, where it can say."""
    model, _ = _copy(case)
    names = [n for node in case.model.graph.node for n in node.output if n]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    for oracle in (oracles.onnxruntime, oracles.reference):
        try:
            runs = oracle(replace(case, model=model))
        except oracles.Refused:
            continue
        return {n: [run[i] for run in runs] for i, n in enumerate(names)}
    return {}


def _fed(case: Case, name: str, arrays: list[Array]) -> Case:
    model, runs = _copy(case)
    graph = model.graph
    for node in graph.node:
        for at, output in enumerate(node.output):
            if output == name:
                node.output[at] = f"{name}_unused"
    if name in [o.name for o in graph.output]:
        return case
    dims = [s if all(a.shape == arrays[0].shape for a in arrays) else f"{name}_{i}" for i, s in enumerate(arrays[0].shape)]
    graph.input.append(helper.make_tensor_value_info(name, code_of(arrays[0].dtype), dims))
    for feeds, array in zip(runs, arrays, strict=True):
        feeds[name] = array
    return replace(case, model=model, runs=tuple(runs))


def _bypasses(case: Case) -> Iterator[Case]:
    """A node's readers read one of its inputs."""
    outputs = {o.name for o in case.model.graph.output}
    for index, node in enumerate(case.model.graph.node):
        if node.output[0] in outputs:
            continue
        for source in dict.fromkeys(n for n in node.input if n):
            model, _ = _copy(case)
            for other in every(model.graph):
                for at, name in enumerate(other.input):
                    if name == node.output[0]:
                        other.input[at] = source
            del model.graph.node[index]
            yield replace(case, model=model)


def _attributes(case: Case) -> Iterator[Case]:
    for index, node in enumerate(case.model.graph.node):
        for at in range(len(node.attribute)):
            model, _ = _copy(case)
            del model.graph.node[index].attribute[at]
            yield replace(case, model=model)


def _operands(case: Case) -> Iterator[Case]:
    """Optional inputs away; symbols become sizes."""
    for index, node in enumerate(case.model.graph.node):
        for at in range(len(node.input)):
            model, _ = _copy(case)
            if at == len(node.input) - 1:
                del model.graph.node[index].input[at]
            else:
                model.graph.node[index].input[at] = ""
            yield replace(case, model=model)
    model, _ = _copy(case)
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if len({feeds[info.name].shape[axis] for feeds in case.runs}) == 1:
                dim.Clear()
                dim.dim_value = case.runs[0][info.name].shape[axis]
    yield replace(case, model=model)


def _sizes(case: Case) -> Iterator[Case]:
    """Every axis of one size becomes smaller, in inputs and constants alike; or one axis of one array does."""
    arrays = dict(case.runs[0]) | {t.name: numpy_helper.to_array(t) for t in case.model.graph.initializer}
    sizes = sorted({s for a in arrays.values() for s in a.shape if s > 1}, reverse=True)
    for size in sizes:
        for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < smaller < size:
                yield _cut(case, lambda name, axis, s, size=size, smaller=smaller: smaller if s == size else s)  # type: ignore[misc]
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            for smaller in dict.fromkeys((1, size // 2, size - 1)):
                if 0 < smaller < size:
                    yield _cut(case, lambda n, a, s, name=name, axis=axis, smaller=smaller: smaller if (n, a) == (name, axis) else s)  # type: ignore[misc]


def _cut(case: Case, size: Callable[[str, int, int], int]) -> Case:
    def cut(name: str, array: Array) -> Array:
        shape = [min(size(name, a, s), s) for a, s in enumerate(array.shape)]  # a size may differ between the runs
        return np.ascontiguousarray(array[tuple(map(slice, shape))]).reshape(shape)

    model, runs = _copy(case)
    for stored in model.graph.initializer:
        stored.CopyFrom(numpy_helper.from_array(cut(stored.name, numpy_helper.to_array(stored)), stored.name))
    runs = [{n: cut(n, a) for n, a in feeds.items()} for feeds in runs]
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                dim.dim_value = runs[0][info.name].shape[axis]
    return replace(case, model=model, runs=tuple(runs))


def _values(case: Case) -> Iterator[Case]:
    """Simpler contents of one array: zeros, ones, small integers, fewer digits."""
    names = [*case.runs[0], *(t.name for t in case.model.graph.initializer)]
    for how in (np.zeros_like, np.ones_like, _counted, np.round, _rounded):
        for name in names:
            model, runs = _copy(case)
            for feeds in runs:
                if name in feeds:
                    feeds[name] = _simpler(feeds[name], how)
            for stored in model.graph.initializer:
                if stored.name == name:
                    stored.CopyFrom(numpy_helper.from_array(_simpler(numpy_helper.to_array(stored), how), name))
            yield replace(case, model=model, runs=tuple(runs))


def _simpler(array: Array, how: Callable[[Array], Array]) -> Array:
    if not is_float(array.dtype) and how in (np.round, _rounded):
        return array
    with np.errstate(all="ignore"):
        return np.asarray(how(array)).astype(array.dtype).reshape(array.shape)


def _counted(array: Array) -> Array:
    return np.arange(1, array.size + 1).reshape(array.shape) if array.dtype.kind not in "b" else array


def _rounded(array: Array) -> Array:
    return np.round(array.astype(np.float64), 1)
