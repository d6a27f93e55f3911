"""What every runtime of the core raises."""

from __future__ import annotations


class CoreError(RuntimeError):
    """The core refused a Program, a binding or data.

    Attributes:
        code: one of the codes of :mod:`pyonnx_wasm.runtimes.core`.
        step: index of the step at fault, -1 where there is none.
        origin: the ONNX node that the step came from, "" where there is none.
        text: what is wrong.
    """

    def __init__(self, code: int, step: int, origin: str, text: str) -> None:
        super().__init__(f"{origin}: {text}" if origin else text)
        self.code, self.step, self.origin, self.text = code, step, origin, text
