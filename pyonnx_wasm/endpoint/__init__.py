"""A language model behind HTTP, as OpenAI's API has it: ``pyonnx-wasm serve --model model.gguf``. Needs the extra ``pyonnx-wasm[serve]``.

``engine`` writes all texts in one thread, ``asked`` reads requests, ``told`` forms answers, ``app`` joins them as an ASGI application.
It imports ``generate`` and ``server`` (whose names it answers to). A route is added in ``app``, a setting in ``asked``.
"""

from .app import application, run
from .engine import Engine, Full

__all__ = ["Engine", "Full", "application", "run"]
