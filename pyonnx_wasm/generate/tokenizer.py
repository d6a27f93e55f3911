"""``python -m pyonnx_wasm.generate.tokenizer model.gguf tokenizer.json``: a GGUF file's tokenizer as pages read it."""

from __future__ import annotations

import sys

from ..gguf import file
from .text import from_gguf

if __name__ == "__main__":
    from_gguf(file.read(sys.argv[1])).save(sys.argv[2])
