"""Text from decoders with a cache: ``Generator`` over a GGUF file, an export with its folder, or a session.

``sampling`` chooses tokens, ``cache`` feeds a model and keeps what it remembers, ``text`` holds tokenizers and templates, ``loop`` is the
order of things without a model. It imports sessions and what lies below them. A kind of export is added in ``cache``.
"""

from .generator import Generation, Generator
from .loop import ContextError, Statistics, Token
from .sampling import Sampling
from .text import Template, TextError

__all__ = ["ContextError", "Generation", "Generator", "Sampling", "Statistics", "Template", "TextError", "Token"]
