"""A channel from the page to a kernel in a worker of that page.

JupyterLite hands a kernel one message at a time, so a comm brings nothing that a cell waits for. A BroadcastChannel does: its messages
arrive whenever Python awaits.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

from ..providers import WASM


class Channel:
    """Takes frames that the page sends: ``[header as JSON, *buffers]``.

    Attributes:
        name: by which the page finds it.
    """

    def __init__(self) -> None:
        from pyodide.code import run_js

        self.name = f"pyonnx_wasm.{secrets.token_hex(16)}"
        self._channel: Any = run_js("name => new BroadcastChannel(name)")(self.name)
        self._taker: Any = None

    def listen(self, take: Callable[[Any, list[memoryview]], None]) -> None:
        """Calls ``take(header, buffers)`` with every frame."""
        from pyodide.ffi import create_proxy

        def on_message(event: Any) -> None:
            header, *buffers = event.data
            take(json.loads(header), [buffer.to_py() for buffer in buffers])

        self._taker = create_proxy(on_message)
        self._channel.onmessage = self._taker

    def close(self) -> None:
        self._channel.close()
        if self._taker is not None:
            self._taker.destroy()


def channel() -> Channel | None:
    """A new channel, or None where the kernel is no part of a page."""
    return Channel() if WASM else None
