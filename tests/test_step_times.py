"""What each step of a Program takes."""

from typing import Any

import numpy as np
import pytest

from pyonnx_wasm.runtimes.core import Core
from tests.assembler import chain, floats, start


def test_steps_are_timed() -> None:
    c = start(chain(links=4))
    x, y = floats(9), np.zeros(9, np.float32)
    c.bind([9], [x])
    times = c.time_steps([x], [y])
    assert [origin for origin, _ in times] == ["node"] * 4
    assert all(ns >= 0 for _, ns in times)
    np.testing.assert_array_equal(x, y)


def test_what_goes_before_a_step_is_none_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder has sixty inputs to look through, before steps that take a microsecond."""
    clock = [0.0]

    def looked(self: Core, *arrays: Any) -> Any:
        clock[0] += 1
        return arguments(self, *arrays)

    arguments = Core._arguments
    monkeypatch.setattr(Core, "_arguments", looked)
    monkeypatch.setattr("pyonnx_wasm.runtimes.core.time.perf_counter", lambda: clock[0])
    c = start(chain(links=3))
    x, y = floats(9), np.zeros(9, np.float32)
    c.bind([9], [x])
    assert [c.run_steps([x], [y], i, i + 1) for i in range(3)] == [0, 0, 0]
    np.testing.assert_array_equal(x, y)
