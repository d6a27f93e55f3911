"""Products of bytes on the backend gpu."""

import pytest
from byte_models import convolutions, products, quantised_products
from gpu_model import Array, assert_same, both, section

MODELS = [*products(), *quantised_products()]
CONVOLUTIONS = list(convolutions())


@pytest.mark.parametrize(("name", "model", "feeds"), MODELS, ids=[name for name, *_ in MODELS])
def test_products_are_the_cores(name: str, model: bytes, feeds: list[dict[str, Array]]) -> None:
    for pairs in both(model, *feeds, wholly=False):
        assert_same(pairs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "model", "feeds"), CONVOLUTIONS, ids=[name for name, *_ in CONVOLUTIONS])
def test_convolutions_are_the_cores(name: str, model: bytes, feeds: list[dict[str, Array]]) -> None:
    for pairs in both(model, *feeds):
        assert_same(pairs)


def test_products_have_tiles_with_and_without_the_dot_product_of_the_language() -> None:
    found = section(MODELS[0][1])
    needs = [[v["needs"] for v in row["variants"]] for row in found.pipelines if row["kernel"] == "qmatmul"]
    assert [["packed_4x8_integer_dot_product"], []] in needs
    assert any("dot4I8Packed" in m for m in found.modules)
