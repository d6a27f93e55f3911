"""Times that mean something: profiles warm up, repeat, and take medians, or means where the clock is coarse."""

import time
from pathlib import Path

import numpy as np
import pytest

import pyonnx_wasm as ort
from pyonnx_wasm.runtimes.profile import Enough, StepTime, combined

MODEL = Path(__file__).parent / "data" / "mobilenet.onnx"


def run(*times: float) -> list[StepTime]:
    return [StepTime(f"node {i}", "map", "cpu", 0.0, ms, 8) for i, ms in enumerate(times)]


def test_the_median_leaves_out_what_disturbs() -> None:
    found = combined([run(1.0, 2.0), run(1.2, 2.1), run(90.0, 2.2), run(1.1, 2.3), run(0.001, 500.0)])
    assert [s.ms for s in found] == [1.1, 2.2]
    assert [s.start_ms for s in found] == [0.0, 1.1]
    assert (found[0].low_ms, found[0].high_ms) == (0.001, 90.0)


def test_a_coarse_clock_is_read_by_its_mean() -> None:
    """A step of 0.03 ms on a clock that ticks every 0.1 ms reads 0 seven times of ten."""
    rng = np.random.default_rng(0)
    times = np.array([0.03, 0.21, 5.0])
    runs = [run(*(np.floor((times + rng.random(3) * 0.1) / 0.1) * 0.1)) for _ in range(100)]
    np.testing.assert_allclose([s.ms for s in combined(runs)], times, atol=0.02)


def test_a_step_that_ticked_once_took_time() -> None:
    runs = [run(0.0, 1.0), run(0.0, 1.0), run(0.1, 1.0), run(0.0, 1.0), run(0.0, 1.0)]
    np.testing.assert_allclose([s.ms for s in combined(runs)], [0.02, 1.0])


def test_runs_of_different_steps_are_not_mixed() -> None:
    assert combined([run(1.0, 2.0), run(3.0)]) == run(3.0)


def test_how_often_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(seconds: float, runs: int | None = None) -> int:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])
        enough = Enough(runs)
        while enough.again():
            now[0] += seconds
        return enough.done

    assert [count(s) for s in (0.0001, 0.01, 0.1, 0.9, 60)] == [100, 25, 5, 3, 1]
    assert [count(60, 7), count(0.0001, 2)] == [7, 2]
    with pytest.raises(ValueError, match="runs must be at least 1"):
        Enough(0)


def test_a_session_measures_more_than_once() -> None:
    session = ort.InferenceSession(MODEL)
    feeds = {i.name: np.zeros([d if isinstance(d, int) else 1 for d in i.shape], np.float32) for i in session.get_inputs()}
    profile = session.profile(feeds, runs=9)
    assert profile.runs == 9
    assert profile.first_ms > 0
    assert all(s.low_ms <= s.high_ms for s in profile)
    assert all(s.low_ms <= s.ms <= s.high_ms for s in profile if s.ms > 0.01)
    assert "over 9 runs after a first of" in repr(profile)
    assert {"low_ms", "high_ms"} < set(profile.rows()[0])
    assert session.profile(feeds).runs > 1
