"""The whole ONNX backend suite; ``python -m pyonnx_wasm.testing.conformance`` runs parts of it and rewrites the list."""

import pytest

from pyonnx_wasm.testing import conformance

CONFIGS = [pytest.param(c, marks=pytest.mark.browser if c.startswith("wasm") else ()) for c in conformance.CONFIGS]


@pytest.mark.parametrize("config", CONFIGS)
def test_suite_agrees_with_the_support_list(config: str) -> None:
    failed = conformance.run(config)
    wrong = conformance.against_list(config, failed, [c.name for c in conformance.cases()])
    total = len(conformance.cases())
    assert not wrong, "\n".join([f"{total - len(failed):,} of {total:,} pass", *wrong])
    print(f"{config}: {total - len(failed):,} of {total:,} cases of the ONNX backend suite pass")


def test_the_list_is_ordered_by_reason_and_has_one_for_each_case() -> None:
    listed = conformance.read_list()
    assert all(why and where for where, why in listed.values())
    assert list(listed) == [name for _, name in sorted((why, name) for name, (_, why) in listed.items())]
