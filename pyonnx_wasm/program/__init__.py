"""The Program (``PROGRAM.md``): lowering to it, its words, its file ``model.ponnx``, and their reader.

It imports ``ir``, ``op``, ``tensor`` and, for the kernels of an operator, nothing: a kernel arrives as a value of ``op.Kernel``.
"""

from .lower import Lowered, Parts, lower, partition
from .model import ARENA, INPUT, MAGIC, OUTPUT, SHAPE_OPS, VERSION, WEIGHT, Compiled, Program, Signature, Weight, homes
from .section import GpuProgram, GpuSection
from .view import ProgramView, StepRow

__all__ = [
    "ARENA",
    "INPUT",
    "MAGIC",
    "OUTPUT",
    "SHAPE_OPS",
    "VERSION",
    "WEIGHT",
    "Compiled",
    "GpuProgram",
    "GpuSection",
    "Lowered",
    "Parts",
    "Program",
    "ProgramView",
    "Signature",
    "StepRow",
    "Weight",
    "homes",
    "lower",
    "partition",
]
