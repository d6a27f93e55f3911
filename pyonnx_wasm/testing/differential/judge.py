"""What a backend made of a case, against the oracles."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import tolerance
from . import blocks, known, oracles
from .oracles import Refused, Run
from .sketch import Case
from .values import Array, epsilon, finfo, is_float

STATUSES = ("agrees", "wrong", "refused", "failed", "known", "disputed", "unstable", "unjudged", "invalid")
PERTURBATIONS = 6
TWICE = 2.0  # an oracle rounds, too
END = 1 / 16  # of the largest float: where a sum is beyond, the order of its terms decides whether they leave the range


@dataclass(frozen=True)
class Verdict:
    """``status`` is one of :data:`STATUSES`.

    wrong: no oracle agrees. refused: an oracle runs what does not compile. failed: it compiles and does not run.
    known: refused or wrong for a reason that :mod:`.known` lists. disputed: onnxruntime disagrees, another oracle agrees.
    unstable: rounding the inputs changes the result as much, or it is near the end of its range and overflowed.
    unjudged: no oracle runs it. invalid: nobody runs it.
    ``by``: the first oracle that runs it.
    """

    status: str
    detail: str = ""
    output: int = 0
    by: str = ""

    @property
    def finding(self) -> bool:
        return self.status in ("wrong", "refused", "failed")


class Answer:
    """What a backend made of a case: outputs of each run, or the error that it ended in."""

    def __init__(self, runs: list[Run] | None, error: BaseException | None = None, compiled: bool = True, how: str = "") -> None:
        self.runs, self.error, self.compiled, self.how = runs, error, compiled, how


Answers = Callable[[Case], Sequence[Answer]]


def judge(case: Case, answers: Sequence[Answer], backend: str = "cpu") -> Verdict:
    """The verdict on all answers of a backend to a case, the worst first; on a GPU subnormal numbers may become zero."""
    oracle = _Oracles(case, backend)
    verdicts = [_judge(case, answer, oracle) for answer in answers]
    order = ("wrong", "failed", "refused", "known", "unstable", "disputed", "unjudged", "invalid", "agrees")
    worst = min(verdicts, key=lambda v: order.index(v.status))
    how = {a.how for a, v in zip(answers, verdicts, strict=True) if v.status == worst.status}
    told = f"{'/'.join(sorted(how))}: {worst.detail}" if worst.detail and worst.status != "agrees" and "" not in how else worst.detail
    verdict = replace(worst, detail=told)
    reason = known.reason(case, verdict.status, verdict.detail) if verdict.finding else None
    by = next((n for n in ("onnxruntime", "reference") if oracle.ran(n)), "")
    return Verdict("known", reason, by=by) if reason else replace(verdict, by=by)


class _Oracles:
    """The oracles' results, asked for when they are needed."""

    def __init__(self, case: Case, backend: str) -> None:
        self.case, self.flush = case, backend in tolerance.GPUS
        self.allowed = TWICE * case.loose * tolerance.epsilons(case.operators(), backend)
        self.made: dict[str, list[Run] | Refused] = {}

    def __call__(self, name: str) -> list[Run] | None:
        if name not in self.made:
            try:
                self.made[name] = getattr(oracles, name)(self.case)
            except Refused as refused:
                self.made[name] = refused
        found = self.made[name]
        return None if isinstance(found, Refused) else found

    def ran(self, name: str) -> bool:
        return name in self.made and not isinstance(self.made[name], Refused)

    def why(self) -> str:
        return "; ".join(str(r) for r in self.made.values() if isinstance(r, Refused))


def _judge(case: Case, answer: Answer, oracle: _Oracles) -> Verdict:
    bounds = blocks.wanted(case, oracle.flush)
    if answer.error is not None:
        if bounds is None and oracle("onnxruntime") is None and oracle("reference") is None:
            return Verdict("invalid", f"{plain(answer.error)} | {oracle.why()}")
        return Verdict("failed" if answer.compiled else "refused", plain(answer.error))
    assert answer.runs is not None
    if bounds is not None:
        beyond = blocks.differs(answer.runs, bounds)
        return Verdict("wrong", beyond[1], beyond[0]) if beyond else Verdict("agrees")
    first = oracle("onnxruntime")
    apart = None
    if first is not None:
        apart = differs(answer.runs, first, case, oracle)
        if apart is None:
            return Verdict("agrees")
    for name in ("reference", "wide", "mixed", "stepwise"):
        other = oracle(name)
        if other is None:
            continue
        off = differs(answer.runs, other, case, oracle, cast=name != "reference")
        if off is None:
            return Verdict("disputed" if apart else "agrees", apart[1] if apart else "")
        apart = apart or off
    if apart is None:
        return Verdict("unjudged", oracle.why())
    if _no_worse(answer.runs, first, oracle("wide") or oracle("mixed"), case, oracle):
        return Verdict("agrees")
    moved = _inside(answer.runs, first or oracle("reference"))
    if _unstable(case, answer.runs, oracle) or (moved is not None and not _judge(case, Answer(moved), oracle).finding):
        return Verdict("unstable", apart[1], apart[0])
    return Verdict("wrong", apart[1], apart[0])


def differs(got: list[Run], want: list[Run], case: Case, oracle: _Oracles, cast: bool = False) -> tuple[int, str] | None:
    """The first output that differs and how, or None. ``cast``: the wanted floats are float64 and are rounded first."""
    for at, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if cast and is_float(a.dtype) and is_float(b.dtype):
                with np.errstate(all="ignore"):
                    b = b.astype(a.dtype)
            why = apart(a, b, case, case.runs[at], oracle)
            if why:
                return index, f"output {index}{f' of run {at + 1}' if at else ''}: {why}"
    return None


def _wider(case: Case, dtype: np.dtype[Any]) -> float:
    """Factor for float64 where the standard computes in float32."""
    return 2.0**29 if dtype == np.float64 and case.operators() & tolerance.FLOAT32_CONSTANTS else 1.0


def apart(got: Array, want: Array, case: Case, feeds: dict[str, Array], oracle: _Oracles) -> str | None:
    """How two arrays differ beyond the tolerance, or None."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, should be {want.dtype}{list(want.shape)}"
    size = 0.0
    if not case.operators() <= tolerance.ELEMENTWISE:  # where all of an output cancels, the inputs say what errors are relative to
        size = max(tolerance.largest(want), min(1.0, max(map(tolerance.largest, feeds.values()), default=1.0)))
    errors = tolerance.off(got, want, size, oracle.flush)
    far = errors > oracle.allowed * _wider(case, want.dtype)
    if not far.any():
        return None
    if want.dtype.kind == "c":
        got, want = got.view(got.real.dtype), want.view(want.real.dtype)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(errors)), errors.shape))
    told = f"{int(far.sum())} of {far.size} differ, at {list(at)} {got[at]} should be {want[at]}"
    return f"{told}: {ulps_between(got[at], want[at]):.3g} ulp, {errors[at]:.3g} epsilons" if np.isfinite(errors[at]) else told


def ulps_between(a: Any, b: Any) -> float:
    """The distance of two numbers in units in the last place of the second."""
    eps = epsilon(np.asarray(b).dtype)
    a, b = float(a), float(b)
    unit = eps * 2.0 ** np.floor(np.log2(abs(b))) if b else float(np.finfo(np.float32).tiny)
    return abs(a - b) / unit if np.isfinite(a) and np.isfinite(b) else float("inf")


def _no_worse(got: list[Run], first: list[Run] | None, exact: list[Run] | None, case: Case, oracle: _Oracles) -> bool:
    """True when no output is further from float64 than onnxruntime's, by the largest error of each, save a few epsilons."""
    if first is None or exact is None:
        return False
    for mine, theirs, true in zip(got, first, exact, strict=True):
        for a, b, c in zip(mine, theirs, true, strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or a.shape != c.shape:
                return False
            if not is_float(a.dtype):
                if not np.array_equal(a, b):
                    return False
                continue
            with np.errstate(all="ignore"):
                a, b, c = (v.astype(np.float64) for v in (a, b, c))
                finite = np.isfinite(b) & np.isfinite(c)
                if ((np.isnan(a) != np.isnan(b)) | (~finite & (a != b) & ~np.isnan(a))).any():
                    return False
                error = float(np.max(np.abs(b - c)[finite], initial=0.0))
                slack = 4 * error + oracle.allowed * _wider(case, theirs[0].dtype) * epsilon(mine[0].dtype) * np.abs(c)
                if (np.abs(a - c) > slack)[finite].any():
                    return False
    return True


def _inside(got: list[Run], want: list[Run] | None) -> list[Run] | None:
    """``got`` with what is wanted where it is infinite or NaN and that is beyond :data:`END` of its range; None where nothing is so."""
    found = False

    def moved(a: Array, b: Array) -> Array:
        nonlocal found
        if a.shape != b.shape or a.dtype != b.dtype or not is_float(a.dtype) or a.dtype.itemsize < 2:
            return a
        with np.errstate(all="ignore"):
            size = np.abs(b.astype(np.float64))
            there = ~np.isfinite(a.astype(np.float64)) & np.isfinite(size) & (size > float(finfo(a.dtype).max) * END)
        found = found or bool(there.any())
        return np.where(there, b, a)

    made = [[moved(a, b) for a, b in zip(mine, theirs, strict=True)] for mine, theirs in zip(got, want or got, strict=True)]
    return made if found else None


def _unstable(case: Case, got: list[Run], oracle: _Oracles) -> bool:
    """True when rounding errors in the inputs and constants move the oracle's result as far as the difference is."""
    rng = np.random.default_rng(0)
    spread: list[list[Array]] | None = None
    name = next((n for n in ("onnxruntime", "reference", "mixed") if oracle(n) is not None), None)
    if name is None:
        return False
    found = oracle(name)
    assert found is not None
    base, sums = _narrowed(found, got), _sums(case, name)
    for _ in range(PERTURBATIONS):
        try:
            made = _narrowed(getattr(oracles, name)(_moved(case, rng, sums)), got)
        except Refused:
            return False
        if any(a.shape != b.shape for m, w in zip(made, base, strict=True) for a, b in zip(m, w, strict=True)):
            return True
        steps = [[_distance(a, b) for a, b in zip(m, w, strict=True)] for m, w in zip(made, base, strict=True)]
        spread = (
            steps if spread is None else [[np.maximum(p, q) for p, q in zip(m, w, strict=True)] for m, w in zip(spread, steps, strict=True)]
        )
    assert spread is not None
    for mine, theirs, far in zip(got, base, spread, strict=True):
        for a, b, s in zip(mine, theirs, far, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                return False
            size = np.abs(b.astype(np.float64))
            bound = 2 * s + oracle.allowed * _wider(case, a.dtype) * epsilon(a.dtype) * np.where(np.isfinite(size), size, 0.0)
            if (_distance(a, b) > bound).any():
                return False
    return True


def _narrowed(runs: list[Run], like: list[Run]) -> list[Run]:
    """Floats as the types that they are to have, where an oracle gives wider ones."""
    with np.errstate(all="ignore"):
        return [
            [a.astype(b.dtype) if is_float(a.dtype) and is_float(b.dtype) else a for a, b in zip(run, other, strict=True)]
            for run, other in zip(runs, like, strict=True)
        ]


def _distance(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        off = np.abs(x - y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))


def _sums(case: Case, name: str) -> dict[str, float]:
    """What nodes give that add terms up, by an oracle, with the largest of each: which an error of theirs is relative to."""
    import onnx
    from onnx import helper

    kinds = oracles.float_values(case.model)
    names = [n for node in case.model.graph.node if node.op_type not in tolerance.ELEMENTWISE for n in node.output if n in kinds]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.output[:]
    model.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    try:
        runs = getattr(oracles, name)(replace(case, model=model)) if names else []
    except Refused:
        return {}
    return {n: max(map(tolerance.largest, arrays)) for n, *arrays in zip(names, *runs, strict=True)}


def _moved(case: Case, rng: np.random.Generator, sums: Mapping[str, float]) -> Case:
    """The case with its float inputs, its constants and what its nodes give off by up to two units in the last place.

    Sums are off besides by as much as is allowed where they are all of a model: what follows may make more of it than of its own rounding.
    """
    import onnx
    from onnx import helper, numpy_helper

    def move(array: Array) -> Array:
        if not is_float(array.dtype) or array.dtype.itemsize < 2:
            return array
        with np.errstate(all="ignore"):
            factor = 1 + epsilon(array.dtype) * _wider(case, array.dtype) * rng.integers(-2, 3, array.shape)
            return (array.astype(np.float64) * factor).astype(array.dtype)

    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    for stored in graph.initializer:
        if stored.data_type in oracles.WIDENED:
            stored.CopyFrom(numpy_helper.from_array(move(numpy_helper.to_array(stored)), stored.name))
    kinds = oracles.float_values(model)
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        exact = [f"{name}_exact" if name in kinds else name for name in node.output]
        factors = []
        for name, inner in zip(node.output, exact, strict=True):
            if inner != name:
                one = move(np.ones((), helper.tensor_dtype_to_np_dtype(kinds[name])))
                graph.initializer.append(numpy_helper.from_array(one, f"{name}_factor"))
                factors.append(helper.make_node("Mul", [inner, f"{name}_factor"], [f"{name}_moved" if name in sums else name]))
            if name in sums:
                most = int(tolerance.epsilons([node.op_type]))
                shift = sums[name] * epsilon(one.dtype) * int(rng.integers(-most, most + 1))
                graph.initializer.append(numpy_helper.from_array(np.asarray(shift, one.dtype), f"{name}_shift"))
                factors.append(helper.make_node("Add", [f"{name}_moved", f"{name}_shift"], [name]))
        del node.output[:]
        node.output.extend(exact)
        graph.node.extend([node, *factors])
    return Case(case.name, model, tuple({n: move(a) for n, a in feeds.items()} for feeds in case.runs), case.loose)


def plain(error: BaseException) -> str:
    """An error's first line, with its class."""
    text = (str(error).strip() or "no text").splitlines()[0]
    return f"{type(error).__name__}: {text[:300]}"


def kind(detail: str) -> str:
    """A finding without its numbers and names, to group by."""
    text = re.sub(r"node '[^']*' ", "node ", detail)
    text = re.sub(r"-?\d[\d.e+-]*|'[^']*'|\[[^\]]*\]|\bnan\b|-?\binf\b", "#", text)
    return text[:110]


__all__ = ["STATUSES", "Answer", "Verdict", "apart", "judge", "kind", "plain", "ulps_between"]
