"""Text from decoders with a cache, behind an encoder too: ``Generator`` over a GGUF file, an export with its folder, or a session.

``sampling`` chooses tokens, ``cache`` feeds a model and keeps what it remembers, ``encoder`` reads what a text is about, ``text`` holds
tokenizers and templates, ``loop`` is the order of things without a model; ``several`` writes texts together, ``beams`` searches, ``ahead``
foretells. It imports sessions and what lies below them. A kind of export is added in ``cache``.
"""

from .beams import Beams
from .generator import Generation, Generator
from .loop import ContextError, Statistics, Token
from .sampling import Sampling
from .several import Together
from .text import Template
from .vocabulary import TextError

__all__ = ["Beams", "ContextError", "Generation", "Generator", "Sampling", "Statistics", "Template", "TextError", "Together", "Token"]
