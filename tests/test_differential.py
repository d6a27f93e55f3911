"""The differential fuzzer: what it covers, that it sees faults, and a short run. The long one is its command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyonnx_wasm import compiler
from pyonnx_wasm.registry import OPERATORS
from pyonnx_wasm.testing.differential import backends, bait, cases, emit, judge, known, operators, run
from pyonnx_wasm.testing.differential.shrink import shrink
from pyonnx_wasm.testing.differential.sketch import Case, Sketch, draw
from pyonnx_wasm.testing.differential.values import code_of

SEED, COUNT = 20260301, 480


def one_node(op: str, dtype: Any, *arrays: Any, **attributes: Any) -> Case:
    """A case of one node."""
    runs = {f"x{i}": np.asarray(a, dtype) for i, a in enumerate(arrays)}
    infos = [helper.make_tensor_value_info(n, code_of(a.dtype), a.shape) for n, a in runs.items()]
    node = helper.make_node(op, [*runs], ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return Case(op, model, (runs,))


def answer(*arrays: Any) -> Sequence[judge.Answer]:
    return [judge.Answer([[np.asarray(a) for a in arrays]])]


def test_every_operator_has_a_generator_or_a_reason() -> None:
    generated = set(operators.names())
    reasons = operators.NOT_GENERATED
    assert generated | set(reasons) == {key for key, versions in OPERATORS.items() if not all(v.custom for v in versions)}
    assert not generated & set(reasons)
    assert len(generated) >= 200
    assert all(reasons.values())


@pytest.mark.parametrize("key", ["operator", "graph", "bait"])
def test_a_case_is_determined_by_seed_and_index(key: str) -> None:
    index = {"operator": 2, "graph": 1, "bait": 3}[key]
    once, again, other = (cases.case(7, i) for i in (index, index, index + 4))
    assert cases.kind_of(index) == key
    assert once.data == again.data
    assert once.data != other.data
    for a, b in zip(once.runs, again.runs, strict=True):
        assert {n: v.tobytes() for n, v in a.items()} == {n: v.tobytes() for n, v in b.items()}


def test_graphs_run_at_several_shapes_with_symbols() -> None:
    drawn = [cases.case(3, i, "^graph") for i in range(30)]
    several = [c for c in drawn if len(c.runs) == 3]
    assert len(several) > 20
    assert any(d.dim_param for c in several for i in c.model.graph.input for d in i.type.tensor_type.shape.dim)
    assert len({len(c.model.graph.node) for c in drawn}) > 8
    assert any(len(c.model.graph.output) > 2 for c in drawn)


def test_every_bait_makes_models() -> None:
    assert len(bait.names()) >= 15
    for name in bait.names():
        made = [draw(name, bait.BAITS[name], [1, i], 20, 2) for i in range(5)]
        assert len({c.data for c in made}) == 5, name


@pytest.mark.parametrize(
    ("op", "dtype", "given", "said", "status"),
    [
        ("Relu", np.float32, [1, -2, np.nan], [1, 0, np.nan], "agrees"),
        ("Relu", np.float32, [1, -2, np.nan], [1, 0, 0], "wrong"),
        ("Relu", np.float32, [1, -2, 3], [1, 0, 3.0001], "wrong"),
        ("Exp", np.float32, [1.0], [2.7182817], "agrees"),
        ("Exp", np.float32, [1.0], [2.71829], "wrong"),
        ("Exp", np.float32, [100.0], [3e38], "wrong"),
        ("Abs", np.int32, [-3, 4], [3, 4], "agrees"),
        ("Abs", np.int32, [-3, 4], [3, 5], "wrong"),
    ],
)  # fmt: skip
def test_verdicts(op: str, dtype: Any, given: list[float], said: list[float], status: str) -> None:
    assert judge.judge(one_node(op, dtype, given), answer(np.asarray(said, dtype))).status == status


def test_a_difference_is_told_in_units_in_the_last_place() -> None:
    verdict = judge.judge(one_node("Exp", np.float32, [0.0]), answer(np.asarray([1 + 64 * 2.0**-23], np.float32)))
    assert "64 ulp" in verdict.detail
    assert judge.ulps_between(np.float16(1.0), np.float16(1.0)) == 0


def test_refusals_are_findings_only_where_an_oracle_runs_the_model() -> None:
    refused = [judge.Answer(None, ValueError("no"), False)]
    assert judge.judge(one_node("Relu", np.float32, [1.0]), refused).status == "refused"
    assert judge.judge(one_node("Relu", np.bool_, [True]), refused).status == "invalid"
    crashed = [judge.Answer(None, ValueError("no"), True)]
    assert judge.judge(one_node("Relu", np.float32, [1.0]), crashed).status == "failed"


def test_what_rounding_decides_is_unstable() -> None:
    case = one_node("Floor", np.float32, [3.0])
    assert judge.judge(case, answer(np.asarray([2.0], np.float32))).status == "unstable"
    assert judge.judge(case, answer(np.asarray([0.0], np.float32))).status == "wrong"


def test_what_follows_makes_more_of_a_sum_than_of_its_own_rounding() -> None:
    """exp(exp(4.4)): 360 times the error of the sum, which is allowed 8 epsilons alone."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["s"]), helper.make_node("Exp", ["s"], ["e"]), helper.make_node("Exp", ["e"], ["y"])]
    a, b = np.asarray([[2.0, 1.5]], np.float32), np.asarray([[1.0], [1.6]], np.float32)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in (("a", [1, 2]), ("b", [2, 1]), ("y", [1, 1]))]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    case = Case("graph", model, ({"a": a, "b": b},), 1.0)
    for epsilons, status in ((0, "agrees"), (6, "unstable"), (-6, "unstable"), (24, "wrong"), (-24, "wrong")):
        told = np.exp(np.exp(4.4 * (1 + epsilons * 2.0**-23)))
        assert judge.judge(case, answer(np.asarray([[told]], np.float32))).status == status


def test_what_overflows_at_the_end_of_the_range_is_unstable() -> None:
    case = one_node("Abs", np.float32, [2.5e38])
    for said, status in ((2.5e38, "agrees"), (np.inf, "unstable"), (np.nan, "unstable"), (2e38, "wrong")):
        assert judge.judge(case, answer(np.asarray([said], np.float32))).status == status
    assert judge.judge(one_node("Exp", np.float32, [80.0]), answer(np.asarray([np.inf], np.float32))).status == "wrong"


def test_what_rounding_decides_is_unstable_where_nodes_alone_have_an_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = judge._Oracles.__call__
    monkeypatch.setattr(judge._Oracles, "__call__", lambda self, name: ask(self, name) if name == "mixed" else None)
    nodes = [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("Floor", ["t"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    case = Case("graph", model, ({"x": np.asarray([3.0], np.float32)},), 1.0)
    assert judge.judge(case, answer(np.asarray([-3.0], np.float32))).status == "agrees"
    assert judge.judge(case, answer(np.asarray([-4.0], np.float32))).status == "unstable"
    assert judge.judge(case, answer(np.asarray([0.0], np.float32))).status == "wrong"


def wrong_tanh(case: Case) -> Sequence[judge.Answer]:
    """The cpu, with a Tanh that is wrong behind an Add."""
    (made, *_) = backends.native("cpu", plain=False)(case)
    nodes = case.model.graph.node
    sums = {n.output[0] for n in nodes if n.op_type == "Add"}
    if made.runs is not None and any(n.op_type == "Tanh" and n.input[0] in sums for n in nodes):
        made.runs = [[a + np.asarray(1, a.dtype) for a in outputs] for outputs in made.runs]
    return [made]


def with_a_fault(m: Sketch) -> None:
    x = m.operand(np.float32, (3, 4), constant=0)
    y = m.node("Relu", m.node("Add", m.node("Neg", x), m.operand(np.float32, (4,), constant=1)))
    y = m.node("Tanh", m.node("Add", m.node("Sigmoid", y), x))
    m.result(m.node("Mul", y, m.node("Abs", x)), m.node("Neg", x))


def test_a_failure_is_shrunk_and_written_as_a_test(tmp_path: Path) -> None:
    case = draw("faulty", with_a_fault, [5], 20)
    assert judge.judge(case, wrong_tanh(case)).status == "wrong"
    small = shrink(case, lambda c: judge.judge(c, wrong_tanh(c)).status == "wrong", 20)
    assert {n.op_type for n in small.model.graph.node} == {"Add", "Tanh"}
    assert len(small.runs) == 1
    assert sum(a.size for a in small.runs[0].values()) <= 2
    scope: dict[str, Any] = {}
    exec(emit.text_of(small, "a fault", "cpu"), scope)
    scope["test_faulty"]()


def test_written_cases_are_the_cases() -> None:
    """What :mod:`emit` writes builds the same model: subgraphs, attributes and special values included."""
    for index in range(24):
        case = cases.case(11, index)
        text = emit.text_of(case, "", "cpu").replace('verdict = judge.judge(case, answers(case), "cpu")', "raise StopIteration(case)")
        scope: dict[str, Any] = {}
        exec(text, scope)
        name = next(n for n in scope if n.startswith("test_"))
        try:
            scope[name]()
        except RuntimeError as error:  # of the context manager: its generator was left by a StopIteration
            made = error.__cause__.value  # type: ignore[union-attr]
        except StopIteration as stop:
            made = stop.value
        assert made.model.SerializeToString(deterministic=True) == case.model.SerializeToString(deterministic=True), index
        for a, b in zip(made.runs, case.runs, strict=True):
            assert {n: (v.dtype, v.shape, v.tobytes()) for n, v in a.items()} == {n: (v.dtype, v.shape, v.tobytes()) for n, v in b.items()}


def test_what_is_known_still_occurs() -> None:
    for entry in known.KNOWN:
        case = known.example(entry)
        verdict = judge.judge(case, backends.native("cpu")(case))
        assert (verdict.status, verdict.detail) == ("known", entry.why), entry


def test_a_short_run_is_clean() -> None:
    report = run.run_here(SEED, range(COUNT), "cpu")
    assert report.total == COUNT
    assert not report.findings, report.table()
    counts = sum((report.counts[k] for k in cases.KINDS), start=type(report.counts["graph"])())
    assert counts["agrees"] > 0.9 * COUNT, report.table()


def test_branches_compile_for_gpus() -> None:
    """Whatever their first output is, one whose elements are computed when they are asked for, too."""
    for i in range(20):
        compiler.compile(cases.case(1, i, "bait.branches").data, gpu=True)
