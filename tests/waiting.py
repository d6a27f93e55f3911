"""Waiting for what happens elsewhere."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Returns as soon as a condition holds; fails where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def given_up(session: Any, feeds: Mapping[str, Any], options: Any) -> str:
    """What a run says that another thread gives up as soon as it has begun."""
    faults: list[Exception] = []

    def run() -> None:
        try:
            session.run(None, feeds, options)
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not options._cancels and thread.is_alive():
        thread.join(0.01)
    options.terminate = True
    thread.join(60)
    assert not thread.is_alive()
    return str(faults[0])
