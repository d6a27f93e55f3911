"""Products of bytes on the backend gpu."""

import numpy as np
import pytest
from byte_models import convolutions, products, quantised_products
from gpu_model import Array, assert_same, both, node, section

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


def test_the_range_of_the_data_and_its_codes_are_two_steps() -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(n) * 3 + off for n in (1, 3, 16, 255, 257, 2048, 2049, 5000) for off in (0, 4, -4)]
    special = [[0, 0], [5], [-5], [np.nan, 1], [1, 2, np.inf], [-np.inf, 2], [3e38, -3e38], [-1, 254, 0.5, 1.5]]
    feeds = [{"x": np.array(x, np.float32)} for x in (*drawn, *special)]
    model = node("DynamicQuantizeLinear", feeds[0], 3)
    assert [row["kernel"] for row in section(model).pipelines] == ["dynamic_quantize", "map"]
    for pairs in both(model, *feeds):
        assert_same(pairs, rtol=0, atol=0)


def test_products_have_tiles_with_and_without_the_dot_product_of_the_language() -> None:
    found = section(MODELS[0][1])
    needs = [[v["needs"] for v in row["variants"]] for row in found.pipelines if row["kernel"] == "qmatmul"]
    assert [["packed_4x8_integer_dot_product"], []] in needs
    assert any("dot4I8Packed" in m for m in found.modules)
