"""The whole ONNX backend suite; ``python -m pyonnx_wasm.testing.conformance`` runs parts of it and rewrites the list."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.runner import Runner

from pyonnx_wasm.ir import IRError
from pyonnx_wasm.registry import OPERATORS
from pyonnx_wasm.testing import conformance, tolerance
from pyonnx_wasm.testing.suite import Notes

CONFIGS = [pytest.param(c, marks=pytest.mark.browser if c.startswith(("wasm", "webgpu")) else ()) for c in conformance.CONFIGS]

# Networks of billions of operations, which take two minutes on SwiftShader: of the GPUs of software Mesa's alone runs them here, twice
# as fast and from the same WGSL; `python -m pyonnx_wasm.testing.conformance --config webgpu` runs them all.
LARGE = {f"test_{name}" for name in ("bvlc_alexnet", "densenet121", "inception_v1", "resnet50", "vgg19", "zfnet512")}

MEASURED: dict[str, dict[str, float]] = {}  # epsilons that results are off, by configuration, of those that were run


@pytest.mark.parametrize("config", CONFIGS)
def test_suite_agrees_with_the_support_list(config: str, apart: Callable[..., Any]) -> None:
    chosen = [c for c in conformance.cases() if config != "webgpu" or c.name not in LARGE]
    names = [c.name for c in chosen]
    notes = Notes()
    failed = apart(conformance.run, config, chosen, notes=notes)
    MEASURED[config] = notes.epsilons
    wrong = conformance.against_list(config, failed, names)
    if config in conformance.ON_GPU:
        wrong += conformance.against_on_core(notes.on_core, failed, names)
    total = len(chosen)
    assert not wrong, "\n".join([f"{total - len(failed):,} of {total:,} pass", *wrong])
    print(f"{config}: {total - len(failed):,} of {total:,} cases of the ONNX backend suite pass")


def test_every_number_of_the_tolerances_is_needed() -> None:
    if set(MEASURED) != set(conformance.CONFIGS):
        pytest.skip("what is needed shows when all configurations are run, as the tests before this one do")
    wrong = conformance.against_tolerances(MEASURED, conformance.cases())
    assert not wrong, "\n".join([*wrong, conformance.needed_table(MEASURED, conformance.cases())])


def test_what_no_result_needs_contradicts_the_tolerances() -> None:
    needs = {"test_selu": 10.0, "test_elu": 2.0, "test_log": 1.0}
    on_gpu = {"test_selu": 40.0, "test_elu": 3.0, "test_log": 3.0}
    measured = {c: on_gpu if c in conformance.ON_GPU else needs for c in conformance.CONFIGS}
    chosen = [c for c in conformance.cases() if c.name in needs]
    wrong = conformance.against_tolerances(measured, chosen)
    assert "Elu may be 64 epsilons off on GPUs, but is 3" in wrong
    assert not any(line.startswith(("Selu", "Log")) for line in wrong)


@pytest.mark.parametrize(
    ("case", "backend", "factor", "passes"),
    [
        ("test_relu", "cpu", 0, True),
        ("test_relu", "cpu", 1, False),
        ("test_exp", "cpu", 3, True),
        ("test_exp", "cpu", 6, False),
        ("test_elu", "cpu", 6, False),
        ("test_elu", "gpu", 6, True),
        ("test_matmul_2d", "wasm", 6, False),
        ("test_softmax_default_axis_expanded", "webgpu", 6, False),
    ],
)
def test_a_case_is_held_to_the_epsilons_of_its_operator(case: str, backend: str, factor: int, passes: bool) -> None:
    """Results that are off by so many epsilons, which the suite itself would take."""
    [one] = [c for c in conformance.cases() if c.name == case]
    [want] = one.expected.values()
    off = (want.astype(np.float64) * (1 + factor * np.finfo(np.float32).eps)).astype(np.float32)
    Runner.assert_similar_outputs([want], [off], one.rtol, one.atol)
    if passes:
        assert conformance.compare(one, [("float32", off)], backend) <= factor + 1
    else:
        with pytest.raises(conformance.Mismatch, match="epsilons off"):
            conformance.compare(one, [("float32", off)], backend)


def test_literals_have_the_decimals_that_are_told() -> None:
    cases = {c.name: c for c in conformance.cases()}
    for name, decimals in tolerance.DECIMALS.items():
        [want] = cases[name].expected.values()
        assert np.array_equal(want, np.round(want.astype(np.float64), decimals).astype(want.dtype))
        assert not np.array_equal(want, np.round(want.astype(np.float64), decimals - 1).astype(want.dtype))


def test_the_tolerances_name_operators() -> None:
    known = {operator for _, operator in OPERATORS}
    named = tolerance.ELEMENTWISE | tolerance.FLOAT32_CONSTANTS | {o for r in tolerance.TABLE for o in r.operators.split()}
    assert not named - known - {"SequenceMap", "FlexAttention", "Optional"}
    assert not tolerance.EXACT & {o for r in tolerance.TABLE for o in r.operators.split()}


def test_the_list_is_ordered_by_reason_and_has_one_for_each_case() -> None:
    listed = conformance.read_list()
    assert all(why and where for where, why in listed.values())
    assert list(listed) == [name for _, name in sorted((why, name) for name, (_, why) in listed.items())]


def test_list_contradicts_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = frozenset(conformance.CONFIGS)
    listed = {"test_acos": (everywhere, "operator Acos is not supported"), "test_add": (everywhere, "wrong result: noise")}
    monkeypatch.setattr(conformance, "read_list", lambda: listed)
    names = [*listed, "test_abs"]
    assert conformance.against_list("cpu", {n: why for n, (_, why) in listed.items()}, names) == []
    wrong = conformance.against_list("cpu", {"test_acos": "operator Acos is not supported", "test_abs": "broken"}, names)
    assert wrong == ["test_abs fails: broken", "test_add passes, but is listed"]
    wrong = conformance.against_list("cpu", {"test_acos": "another reason", "test_add": "wrong result"}, names)
    assert wrong == ["test_acos fails: another reason; listed is: operator Acos is not supported"]
    assert conformance.against_list("wasm", {"test_acos": "another reason", "test_add": "wrong result"}, names) == []


def test_update_keeps_what_was_not_run_and_causes_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("test_a\tall\twrong result: noise\ntest_b\twasm\toperator B is not supported\n")
    conformance.write_list({"cpu": {"test_a": "wrong result", "test_c": "dtype string is not supported"}}, path)
    assert conformance.read_list(path) == {
        "test_a": (frozenset(conformance.CONFIGS), "wrong result: noise"),
        "test_b": (frozenset({"wasm"}), "operator B is not supported"),
        "test_c": (frozenset({"cpu"}), "dtype string is not supported"),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node 'n_0' (Foo): operator ai.onnx.Foo is not supported; `pyonnx-wasm operators` lists what is", "operator Foo is not supported"),
        ("input 'x': dtype string is not supported", "dtype string is not supported"),
    ],
)
def test_reasons_leave_out_what_is_particular(text: str, why: str) -> None:
    assert conformance.reason(IRError(text)) == why
