"""The whole ONNX backend suite; ``python -m pyonnx_wasm.testing.conformance`` runs parts of it and rewrites the list."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyonnx_wasm.ir import IRError
from pyonnx_wasm.testing import conformance

CONFIGS = [pytest.param(c, marks=pytest.mark.browser if c.startswith(("wasm", "webgpu")) else ()) for c in conformance.CONFIGS]


@pytest.mark.parametrize("config", CONFIGS)
def test_suite_agrees_with_the_support_list(config: str, apart: Callable[..., Any]) -> None:
    names = [c.name for c in conformance.cases()]
    on_core: dict[str, tuple[str, ...]] = {}
    failed = apart(conformance.run, config, on_core=on_core)
    wrong = conformance.against_list(config, failed, names)
    if config in conformance.ON_GPU:
        wrong += conformance.against_on_core(on_core, failed, names)
    total = len(conformance.cases())
    assert not wrong, "\n".join([f"{total - len(failed):,} of {total:,} pass", *wrong])
    print(f"{config}: {total - len(failed):,} of {total:,} cases of the ONNX backend suite pass")


def test_the_list_is_ordered_by_reason_and_has_one_for_each_case() -> None:
    listed = conformance.read_list()
    assert all(why and where for where, why in listed.values())
    assert list(listed) == [name for _, name in sorted((why, name) for name, (_, why) in listed.items())]


def test_list_contradicts_both_ways() -> None:
    listed = conformance.read_list()
    name, other = next(iter(listed)), "test_abs"
    failing = {n: why for n, (where, why) in listed.items() if "cpu" in where and n != name} | {other: "broken"}
    wrong = conformance.against_list("cpu", failing, [*listed, other])
    assert wrong == ["test_abs fails: broken", f"{name} passes, but is listed"]
    (changed, why) = next((n, why) for n, why in failing.items() if n in listed and not why.startswith("wrong"))
    wrong = conformance.against_list("cpu", failing | {changed: "another reason"}, [*listed, other])
    assert f"{changed} fails: another reason; listed is: {why}" in wrong


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
