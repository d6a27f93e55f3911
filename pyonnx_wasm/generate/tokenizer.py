"""``python -m pyonnx_wasm.generate.tokenizer model.gguf tokenizer.json``: a GGUF file's tokenizer as pages read it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..gguf import file
from .vocabulary import described

if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(described(file.read(sys.argv[1]).metadata), ensure_ascii=False), encoding="utf-8")
