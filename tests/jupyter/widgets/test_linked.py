"""Playgrounds that are set from Python and linked with one another."""

from __future__ import annotations

import numpy as np
import pytest
from desk import Desk
from playwright.sync_api import expect
from waiting import until

from pyonnx_wasm.jupyter import Playground

pytestmark = pytest.mark.browser


def test_inputs_are_set_and_results_handed_on(desk: Desk) -> None:
    double = repr(str(desk.models / "double.onnx"))
    notebook = desk.open(
        f"a, b = Playground({double}, sync=True), Playground({double})\nfrom ipywidgets import jslink, VBox\nVBox([a, b])",
        "link = jslink((a, 'value'), (b, 'inputs'))\na.inputs = {'x': [[1, 2, 3], [4, 5, 6]]}",
        "a.value['y'].tolist()",
    )
    first, second = (notebook.output(0).locator(".pwx").nth(k) for k in (0, 1))
    for view in (first, second):
        expect(view.locator(".pwx-badge")).to_have_attribute("data-state", "ready")
    notebook.run(1)
    cells = second.get_by_role("group", name="Results").locator("td")
    expect(cells.filter(has_text="24")).to_have_count(1)
    expect(second).to_contain_text("Set from outside: x float32[2, 3]")
    until(lambda: notebook.run(2) == "[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]")


def test_inputs_that_do_not_fit_are_refused(desk: Desk) -> None:
    shown = Playground(desk.models / "double.onnx")
    with pytest.raises(ValueError, match=r"input 'x' takes \['rows', 3\], not \[2\]"):
        shown.inputs = {"x": np.zeros(2)}
    shown.inputs = {"x": np.zeros((1, 3))}
    assert shown.inputs["x"].dtype == np.float32
    with pytest.raises(ValueError, match="inputs are for"):
        shown.inputs = {"x": np.zeros((1, 3)), "z": np.zeros((1, 3))}
    shown.close()
