"""Calls that Ctrl-C ends: Python hears of signals in the main thread only, and not while that is inside another language."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def interruptible(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Calls what may take long; in the main thread Ctrl-C cancels it, again and again until it has ended."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: list[T] = []
    errors: list[BaseException] = []
    given_up, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            if not given_up.is_set():
                results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, name="pyonnx-wasm-run")
    try:
        thread.start()
        while not ended.wait(0.1):  # a wait without an end cannot be interrupted on Windows
            pass
    except BaseException:
        # It may come while the thread begins, and a run that begins forgets that it was cancelled.
        given_up.set()
        while not ended.wait(0.02) and thread.ident is not None:
            cancel()
        raise
    if errors:
        raise errors[0]
    return results[0]
