"""Waiting for what happens elsewhere."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Returns as soon as a condition holds; fails where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)
