"""Loops that the core runs: what is carried, stacked and appended, in tensors.

Two things cost nothing per step beyond themselves. Strings that steps give travel as lengths and bytes, one step behind the other. A
carried sequence that steps do no more with than put tensors behind it is not carried at all: what a step puts there is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType
from ..ir import ROW, Form, IRError, Packed, Storage, Strings, Value, dims, form_of, parts, reachable, symbols_in, symbols_of
from ..ir.dims import DimLike
from ..tensor import concat, constant, dims_of, literal, reshape, strings
from .bodies import Outline, emit
from .ragged import flat, formed, laid, row_of, run_of, shaped, side_by_side

Trace = Callable[[Outline, Value, Value, Sequence[Any]], Sequence[Any]]


def run_loop(
    ctx: Any,
    body: Any,
    trips: DimLike,
    condition: DimLike,
    initial: Sequence[Any],
    trace: Trace,
    ranks: Sequence[int],
    appended: int = 0,
) -> tuple[Any, ...]:
    """A loop that the core runs. Sizes of carried values that change from step to step become symbols, one after the other.

    Args:
        body: of the model; None where ``trace`` makes its own.
        trace: gives the condition and the results of a step from its number, its condition and the carried values.
        ranks: of the step's number and of its condition.
        appended: so many of the results, the last ones, lie one behind the other along their first axis.
    """
    loop = _Loop(ctx, body, initial, trace, ranks, appended)
    while not loop.attempt():
        pass
    return loop.emit(trips, condition)


@dataclass
class _Growing:
    """What is assumed of a carried sequence that steps put tensors behind: how many a step does, and whether its length is asked for."""

    count: int = 1
    counted: bool = False


@dataclass
class _Root:
    """Such a sequence as a step gets it, of which nothing but its length is there."""

    packed: Packed
    length: set[str]

    @property
    def storages(self) -> set[Storage]:
        return {v.storage for v in parts(self.packed)}

    @property
    def symbols(self) -> set[str]:
        return symbols_in([v.shape for v in parts(self.packed)])


class _Loop:
    """A loop under assumptions about what it carries, which each attempt to trace its body corrects until they hold."""

    def __init__(self, ctx: Any, body: Any, initial: Sequence[Any], trace: Trace, ranks: Sequence[int], appended: int) -> None:
        self.ctx, self.body, self.initial, self.trace, self.ranks, self.appended = ctx, body, initial, trace, ranks, appended
        self.forms = [form_of(v) for v in initial]
        self.growing = {k: _Growing() for k, f in enumerate(self.forms) if f.sequence and not f.optional}
        self.changing: set[tuple[int, int]] = set()

    def _carried(self) -> list[int]:
        """Which values are passed from step to step."""
        return [k for k, form in enumerate(self.forms) if k not in self.growing and not _plain(form)]

    def attempt(self) -> bool:
        """Traces the body; False where what was assumed does not hold, which it has corrected then."""
        self.starts = [v if _plain(f) else formed(v, f) for v, f in zip(self.initial, self.forms, strict=True)]
        self.first = [tensor for k in self._carried() for tensor in parts(self.starts[k])]
        outline = self.outline = Outline(self.ctx, self.body)
        step, going = (outline.input(t, [1] * r) for t, r in zip((DType.int64, DType.bool), self.ranks, strict=True))
        carried = []
        for k, value in enumerate(self.first):
            shape = [outline.graph.fresh() if (k, a) in self.changing else outline.size(s) for a, s in enumerate(value.shape)]
            carried.append(outline.take(value, shape))
        inside, roots = iter(carried), {k: self._root(k, step) for k in self.growing}
        values = [roots[k].packed if k in roots else None if _plain(f) else shaped(f, inside) for k, f in enumerate(self.forms)]
        go, *results = self.trace(outline, step, going, values)
        wider = [f | form_of(now) for f, now in zip(self.forms, results, strict=False)]
        if wider != self.forms:
            self.forms = wider
            return self._again([k for k in roots if not wider[k].sequence or wider[k].optional])
        put = {k: _put(root, results[k]) for k, root in roots.items()}
        if not all(put.values()):
            return self._again([k for k, values in put.items() if not values])
        whole = [results[k] for k in self._carried()]
        given = self._give(go, whole, results[len(self.forms) :], list(put.values()))
        if not self._apart(roots, put):
            return False
        before = len(self.changing)
        for k, (was, now) in enumerate(zip(carried, given[1:], strict=False)):
            if was.dtype is not now.dtype or was.rank != now.rank:
                raise IRError(f"a loop carries {self.first[k]}, its body gives {now}: dtype and rank must stay")
            self.changing.update((k, a) for a, (s, t) in enumerate(zip(was.shape, now.shape, strict=True)) if not dims.same(s, t))
        self.given = given[1:]
        return len(self.changing) == before

    def _again(self, carried: Sequence[int]) -> bool:
        """Begins anew, with more sequences that are passed from step to step."""
        self.changing = set()
        self.growing = {k: g for k, g in self.growing.items() if k not in carried}
        return False

    def _root(self, k: int, step: Value) -> _Root:
        start, graph, growing = self.starts[k], self.outline.graph, self.growing[k]
        length: DimLike = graph.fresh()
        symbols = symbols_in([length])
        if growing.counted:
            base = start.shapes.shape[0]
            told = base if isinstance(base, int) else self.outline.take(literal([base]))
            with graph:
                begun = told if isinstance(told, int) else dims_of(told, "the length")[0]
                length = dims_of(reshape(step, [1]), "the step")[0] * growing.count + begun
            symbols = set()

        def blank(dtype: DType, shape: Sequence[DimLike]) -> Value:
            return Value(Storage(dtype, dims.product(shape), "input", "what is appended"), dtype, shape)

        elements: Value | Strings = blank(start.dtype, [graph.fresh()])
        if start.dtype is DType.string:
            elements = Strings(blank(DType.int64, [graph.fresh()]), blank(DType.uint8, [graph.fresh()]), True)
        form = self.forms[k]
        return _Root(Packed(elements, blank(DType.int64, [length, ROW]), form.ranks, form.unranked), symbols)

    def _give(self, go: Any, carried: list[Any], tail: Sequence[Any], put: Sequence[Sequence[Any]]) -> list[Value]:
        """The outputs of the body: its condition, what is carried, stacked, appended, and the bytes of strings."""
        with self.outline.graph:
            further = []
            for values in put:
                if any(isinstance(v, Packed) for v in values):
                    piece = run_of(values, values[0].dtype)
                    further += [piece.elements, piece.shapes]
                    continue
                rows = literal([n for v in values for n in row_of(v)])
                further += [side_by_side(*map(flat, values)), reshape(rows, [len(values), ROW])]
            self.tail = [strings.join(v) if isinstance(v, Strings) else v for v in (*tail, *further)]
            pools = [v.pool for v in self.tail if isinstance(v, Strings)]
            lines = [strings.lengths(v) if isinstance(v, Strings) else v for v in self.tail]
        self.stacked = len(tail) - self.appended
        forms = [self.forms[k] for k in self._carried()]
        given = self.outline.give([go, *carried, *lines, *pools], [None, *forms, *[None] * (len(lines) + len(pools))])
        if given[0].dtype is not DType.bool:
            raise IRError(f"the condition that a loop's body gives is {given[0]}, it must be bool")
        return given

    def _apart(self, roots: dict[int, _Root], put: dict[int, Any]) -> bool:
        """Whether nothing is made of the sequences that grow; what is put behind them goes by itself."""
        if not roots:
            return True
        graph = self.outline.graph
        used = [k for k, root in roots.items() if root.storages & {v.storage for _, v in graph.outputs}]
        if used:
            return self._again(used)
        checks, graph.checks = graph.checks, []
        hidden = {s for root in roots.values() for s in symbols_in([v.shape for v in parts(root.packed.elements)])}
        graph.checks = [c for c in checks if not hidden & symbols_in([c[0]])]
        graph.nodes = reachable(graph)
        touched = {v.storage for node in graph.nodes for v in node.inputs()} | {r.value.storage for r in graph.reads.values()}
        asked = {s for node in graph.nodes for s in symbols_of(node)} | symbols_in([v.shape for _, v in graph.outputs])
        asked |= symbols_in([c for c, _ in graph.checks])
        used = [k for k, r in roots.items() if r.storages & touched or symbols_in([v.shape for v in parts(r.packed.elements)]) & asked]
        if used:
            return self._again(used)
        right = True
        for k, root in roots.items():
            growing = self.growing[k]
            counted, count = growing.counted or bool(root.length & asked), len(put[k])
            if counted and any(isinstance(v, Packed) for v in put[k]):
                return self._again([k])  # of so many tensors that none knows how many there are
            right = right and counted == growing.counted and (count == growing.count or not counted)
            growing.counted, growing.count = counted, count
        return right

    def emit(self, trips: DimLike, condition: DimLike) -> tuple[Any, ...]:
        """The loop itself, in the graph around it."""
        outline, given = self.outline, self.given
        outs: list[tuple[DType, list[DimLike | None]]] = []
        for k, value in enumerate(self.first):
            outs.append((value.dtype, [None if (k, a) in self.changing else s for a, s in enumerate(value.shape)]))
        stacked = len(self.first) + self.stacked
        outs += [(v.dtype, [None, *map(outline.back, v.shape)]) for v in given[len(self.first) : stacked]]
        outs += [(v.dtype, [None, *map(outline.back, v.shape[1:])]) for v in given[stacked:]]
        most = trips if isinstance(trips, int) else dims.dmax(trips, 0)
        steer: dict[str, Any] = {"first": len(self.first), "condition": condition, "trips": most, "stacked": stacked}
        made = iter(emit("loop", [outline], outline.taken, outs, **steer) if outs else [])
        carried = {k: shaped(self.forms[k], made) for k in self._carried()}
        lines = [next(made) for _ in self.tail]
        tail: list[Any] = [laid(v, next(made)) if isinstance(was, Strings) else v for v, was in zip(lines, self.tail, strict=True)]
        further = iter(tail[len(tail) - 2 * len(self.growing) :])
        for k in self.growing:
            start, form = self.starts[k], self.forms[k]
            elements = side_by_side(start.elements, next(further))
            carried[k] = Packed(elements, concat([start.shapes, next(further)], 0), form.ranks, form.unranked)
        return (*[carried.get(k) for k in range(len(self.forms))], *tail[: len(tail) - 2 * len(self.growing)])


def _put(root: _Root, result: Any) -> tuple[Any, ...]:
    """What a step put behind a sequence; nothing where it gives another."""
    grew = result.grew if isinstance(result, Packed) else None
    return grew[1] if grew is not None and grew[0] is root.packed else ()


def _plain(form: Form) -> bool:
    """Whether a form is that of no value at all."""
    return form.optional and form.sequence is None


Cell = Callable[[Sequence[Value], Sequence[Value], Sequence[Value | None]], tuple[list[Value], list[Value]]]


def run_steps(
    ctx: Any,
    steps: DimLike,
    state: Sequence[Value],
    scanned: Sequence[tuple[Value, int]],
    fixed: Sequence[Value | None],
    cell: Cell,
) -> tuple[list[Value], list[Value]]:
    """A recurrence that the core runs: the last state, and what the steps gave, stacked along a new first axis.

    Args:
        scanned: values and the axis of each that a step takes its part along.
        fixed: what every step takes whole.
        cell: given the state, the parts of the scanned and the fixed values, the next state and what the step gives.
    """
    from .gather import Gather

    def trace(outline: Outline, step: Value, going: Value, carried: Sequence[Any]) -> list[Any]:
        wholes, operands = [outline.take(x) for x, _ in scanned], [None if v is None else outline.bring(v) for v in fixed]
        with outline.graph:
            parts = [Gather(whole, step, axis=axis) for whole, (_, axis) in zip(wholes, scanned, strict=True)]
            fresh, given = cell(carried, parts, operands)
            return [constant(np.array(True)), *fresh, *given]

    made = run_loop(ctx, None, steps, 1, state, trace, [0, 0])
    return list(made[: len(state)]), list(made[len(state) :])
