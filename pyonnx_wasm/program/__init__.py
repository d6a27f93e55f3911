"""The Program (``PROGRAM.md``): lowering to it, its words, its file ``model.ponnx``, and their reader.

It imports ``ir``, ``op``, ``tensor`` and, for the kernels of an operator, nothing: a kernel arrives as a value of ``op.Kernel``.
"""

from .lower import lower
from .model import ARENA, HEADER_WORDS, INPUT, MAGIC, OUTPUT, SHAPE_OPS, VERSION, WEIGHT, Lowered, Program, Weight
from .view import StepRow, step_bytes, step_rows

__all__ = [
    "ARENA",
    "HEADER_WORDS",
    "INPUT",
    "MAGIC",
    "OUTPUT",
    "SHAPE_OPS",
    "VERSION",
    "WEIGHT",
    "Lowered",
    "Program",
    "StepRow",
    "Weight",
    "lower",
    "step_bytes",
    "step_rows",
]
