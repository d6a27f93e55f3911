"""The Program (``PROGRAM.md``): lowering to it, its words, its file ``model.ponnx``, and their reader.

It imports ``ir``, ``registry``, ``tensor`` and, for the kernels of an operator, nothing: a kernel arrives as a ``registry.Kernel``.
What lowers is in ``.lower``, apart from what reads, which a session over a compiled model needs alone.
A table of the Program is added in ``assemble``, ``view``, the core's ``verify.cpp`` and ``PROGRAM.md``, with another ``VERSION``.
"""

from .model import ARENA, INPUT, MAGIC, OUTPUT, SHAPE_OPS, SLOT, VERSION, WEIGHT, Compiled, Program, Signature, Weight, homes
from .section import GpuPlan, GpuProgram, GpuSection
from .view import ProgramView, StepRow

__all__ = [
    "ARENA",
    "INPUT",
    "MAGIC",
    "OUTPUT",
    "SHAPE_OPS",
    "SLOT",
    "VERSION",
    "WEIGHT",
    "Compiled",
    "GpuPlan",
    "GpuProgram",
    "GpuSection",
    "Program",
    "ProgramView",
    "Signature",
    "StepRow",
    "Weight",
    "homes",
]
