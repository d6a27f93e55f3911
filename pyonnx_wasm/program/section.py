"""The GPU section of a compiled model: how a GPU runs the steps of its Program (``PROGRAM.md`` section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .model import Program
from .view import ProgramView

MOST_WORKGROUPS = 128  # so many keep any adapter busy


@dataclass
class GpuSection:
    """What a GPU host needs beside the Program's words; JSON in the file.

    Attributes:
        modules: shader texts, each once.
        pipelines: ``{kernel, outputs, bindings, variants: [{needs, module}]}``, the first variant whose needs the adapter has is used.
        steps: per step None (runs on the core) or a list of cases ``{pipeline, guard, busy, grid, uniforms}``: the first whose guard
            register is not 0 is used, one with ``busy`` only if its workgroups keep the adapter busy; ``grid`` and ``uniforms`` are
            registers, ``~register`` where it holds the bits of an f64.
        schedule: ``["gpu" | "core", first, last]``, ``["upload" | "download", [storage, ...]]``.
        on_core: outputs that end up in the core's memory.
    """

    modules: list[str]
    pipelines: list[dict[str, Any]]
    steps: list[list[dict[str, Any]] | None]
    schedule: list[list[Any]]
    on_core: list[int]

    def json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("modules", "pipelines", "steps", "schedule", "on_core")}

    @staticmethod
    def read(json: dict[str, Any], program: Program) -> GpuSection:
        """Checks a section against its Program; raises ValueError naming what is wrong."""
        section = GpuSection(*(json[name] for name in ("modules", "pipelines", "steps", "schedule", "on_core")))
        registers, storages, steps = map(ProgramView(program.code).count, ("registers", "storages", "steps"))

        def demand(holds: object, what: str) -> None:
            if not holds:
                raise ValueError(what)

        def register(r: object) -> bool:
            return isinstance(r, int) and -registers <= r < registers

        demand(all(isinstance(m, str) for m in section.modules), "a module is no text")
        for row in section.pipelines:
            demand(0 < row["outputs"] <= row["bindings"] <= 16, f"pipeline {row['kernel']!r}: its bindings")
            demand(all(0 <= v["module"] < len(section.modules) for v in row["variants"]), f"pipeline {row['kernel']!r}: no such module")
        demand(len(section.steps) == steps, f"{len(section.steps)} steps, the Program has {steps}")
        for case in (c for cases in section.steps if cases is not None for c in cases):
            demand(0 <= case["pipeline"] < len(section.pipelines), f"no pipeline {case['pipeline']}")
            demand(len(case["grid"]) == 3 and all(map(register, [*case["grid"], *case["uniforms"], case["guard"]])), "no such register")
        at = 0
        for action, *what in section.schedule:
            if action in ("gpu", "core"):
                demand(what[0] == at < what[1] <= steps, f"the schedule leaves out step {at}")
                demand(all((section.steps[i] is None) == (action == "core") for i in range(*what)), f"step {at} runs elsewhere")
                at = what[1]
            else:
                demand(action in ("upload", "download") and all(0 <= s < storages for s in what[0]), "no such storage")
        demand(at == steps, f"the schedule ends at step {at} of {steps}")
        return section

    @property
    def on_gpu(self) -> int:
        """Steps that run on the GPU."""
        return sum(step is not None for step in self.steps)


@dataclass
class GpuProgram:
    """A Program whose steps never write what they read, and how a GPU runs them."""

    program: Program
    section: GpuSection
