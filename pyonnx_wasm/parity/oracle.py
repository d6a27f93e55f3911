"""The reference from outside: onnxruntime on the processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..onnxfile.protobuf import scan, text
from ..testing.peer import exact

_GRAPH, _NODE, _NODE_OUTPUT, _GRAPH_OUTPUT = 0x3A, 0x0A, 0x12, 0x62  # keys of onnx.proto


class Onnxruntime:
    """Runs a model with onnxruntime.

    Raises:
        ValueError: it is not installed.
    """

    name = "onnxruntime"

    def __init__(self) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ValueError("comparing with onnxruntime needs it: pip install onnxruntime") from None
        self.module: Any = onnxruntime

    def run(self, source: str | bytes, feed: Mapping[str, np.ndarray], values: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """The model's outputs; or the values named, without those that the file's main graph does not have."""
        options = exact(self.module.SessionOptions())
        options.log_severity_level = 3
        model: str | bytes = source
        if values is not None:
            model, values = giving(Path(source).read_bytes() if isinstance(source, str) else source, values)
            if isinstance(source, str):
                options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(Path(source).parent))
        session = self.module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        wanted = [o.name for o in session.get_outputs()] if values is None else list(values)
        taken = {i.name for i in session.get_inputs()}
        return dict(zip(wanted, session.run(wanted, {n: a for n, a in feed.items() if n in taken}), strict=True)) if wanted else {}


def giving(model: bytes, values: Sequence[str]) -> tuple[bytes, list[str]]:
    """The model with these values among its outputs, and those of them that it has.

    Protobuf joins a message that occurs twice, so the outputs are a second, short graph after the first.
    """
    computed, given = set(), set()
    for key, a, b in scan(model, 0, len(model)):
        for field, c, d in scan(model, a, b) if key == _GRAPH else ():
            if field == _NODE:
                computed |= {text(model, e, f) for kind, e, f in scan(model, c, d) if kind == _NODE_OUTPUT}
            elif field == _GRAPH_OUTPUT:
                given |= {text(model, e, f) for kind, e, f in scan(model, c, d) if kind == 0x0A}
    kept = [name for name in values if name in computed]
    outputs = b"".join(_message(_GRAPH_OUTPUT, _message(0x0A, name.encode())) for name in kept if name not in given)
    return model + (_message(_GRAPH, outputs) if outputs else b""), kept


def _message(key: int, payload: bytes) -> bytes:
    size, n = b"", len(payload)
    while n > 127:
        size += bytes([n & 127 | 128])
        n >>= 7
    return bytes([key]) + size + bytes([n]) + payload
