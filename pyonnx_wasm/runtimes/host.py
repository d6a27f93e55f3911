"""What a run on a core asks of the host: operators in WebAssembly, and functions that are registered."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..callbacks import FUNCTIONS, Asked, Callback, CallbackError, perform
from . import UNLIMITED, Limits


class Host:
    """Answers the calls of one session; keeps the modules that its operators are in.

    Args:
        callbacks: those of the Program.
        limits: what a call may take.
    """

    def __init__(self, callbacks: Sequence[Callback] = (), limits: Limits = UNLIMITED) -> None:
        self.callbacks, self.limits = callbacks, limits
        self._modules: dict[int, Any] = {}

    def answer(self, asked: Asked) -> list[np.ndarray | None]:
        """The outputs, None for those that nobody wants.

        Raises:
            CallbackError: nothing here runs the operator, or it failed.
        """
        if not 0 <= asked.number < len(self.callbacks):
            raise CallbackError(f"the file has no callback {asked.number}: it is damaged")
        callback = self.callbacks[asked.number]
        if callback.wasm is None or (find_spec("wasmtime") is None and (callback.domain, callback.name) in FUNCTIONS):
            return perform(callback, asked)
        from .wasm_operator import WasmOperator

        operator = self._modules.get(asked.number)
        if not isinstance(operator, WasmOperator):
            operator = self._modules[asked.number] = WasmOperator(callback, callback.wasm, self.limits)
        return operator.run(asked)

    def cancel(self) -> None:
        """From any thread: what runs in WebAssembly ends."""
        for operator in list(self._modules.values()):
            operator.cancel()
