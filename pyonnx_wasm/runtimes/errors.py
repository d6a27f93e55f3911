"""What every runtime of the core raises."""

from __future__ import annotations

from collections.abc import Sequence

from ..program import ProgramView
from .build import other_build

MORE = -1  # no error: a run stopped where the sizes of further outputs became known
PAUSE = -3  # likewise: a run stopped as it took the operations of a slice
MALFORMED, UNKNOWN_KERNEL, CHECK_FAILED, BAD_BIND, NO_MEMORY, BAD_DATA, MISUSE, LIMIT, CANCELLED = range(1, 10)


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


def core_error(
    code: int, step: int, message: int, text: str, view: ProgramView, messages: Sequence[str], origins: Sequence[str], built: int = 0
) -> CoreError:
    """The error that the core reported.

    Args:
        step, message, text: as in its record (``PROGRAM.md`` section 8).
        messages, origins: the Program's.
        built: the core's ``pwx_build``.
    """
    if code in (MALFORMED, UNKNOWN_KERNEL):
        text += other_build(built)
    if code == CHECK_FAILED and 0 <= message < len(messages):
        text = messages[message]
    return CoreError(code, step, origin_of(step, view, origins), text)


def origin_of(step: int, view: ProgramView, origins: Sequence[str]) -> str:
    """The nodes behind a step; "" for -1."""
    at = view.origin(step) if step >= 0 else len(origins)
    return origins[at] if at < len(origins) else ""
