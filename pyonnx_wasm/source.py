"""Model files of every kind, read as one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from .gguf import decoder
from .gguf.file import MAGIC
from .onnxfile import reader


def read(
    source: str | os.PathLike[str] | bytes | memoryview,
    *,
    external: Mapping[str, bytes | memoryview] | None = None,
    replaced: Collection[str] = (),
) -> reader.Model:
    """Reads an ``.onnx`` or a ``.gguf`` file, by path or by its bytes; ``external`` and ``replaced`` as :func:`reader.read`.

    Raises:
        reader.ReadError: the file is damaged or asks for what is not supported.
        OSError: the file cannot be opened.
    """
    if isinstance(source, str | os.PathLike):
        if not os.path.isfile(source):
            return reader.read(source, external=external, replaced=replaced)
        with open(source, "rb") as stream:
            head = stream.read(4)
    else:
        head = bytes(source[:4])
    return decoder.read(source) if head == MAGIC else reader.read(source, external=external, replaced=replaced)
