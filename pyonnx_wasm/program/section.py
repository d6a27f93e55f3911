"""The GPU section of a compiled model: how a GPU runs the steps of its Program (``PROGRAM.md`` section 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .model import Program
from .view import CONTROL, ProgramView

MOST_WORKGROUPS = 128  # so many keep any adapter busy
# Of loops in one lane: llvmpipe leaves out what is beyond, and says nothing (https://github.com/ggml-org/llama.cpp/pull/13813).
MOST_ROUNDS = 65_000


@dataclass
class GpuPlan:
    """How a GPU runs the steps of a Program; JSON in the file.

    Attributes:
        steps: per step None (runs on the core), a list of cases ``{pipeline, guard, busy, rounds, grid, uniforms}``, of which the first is
            used whose guard register is not 0, one with ``busy`` only if its workgroups keep the adapter busy, one with ``rounds`` on
            llvmpipe only if that register, of loops in one lane, is at most MOST_ROUNDS (``grid`` and ``uniforms`` are registers,
            ``~register`` where it holds the bits of an f64), or for a branch or a loop ``{on_core: [k, ...]}``, the inputs that are in the
            core's memory.
        schedule: ``["gpu" | "core", first, last]``, ``["upload" | "download", [storage, ...]]``, ``["control", step]``,
            ``["stage", number, [register, ...]]``, the registers that read the core's memory.
        on_core: outputs that end up in the core's memory.
        bodies: plans of the Programs within.
        goes_on: a loop over this Program need not look at the condition that it gives.
    """

    steps: list[Any]
    schedule: list[list[Any]]
    on_core: list[int]
    bodies: list[GpuPlan]
    goes_on: bool

    def json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "schedule": self.schedule,
            "on_core": self.on_core,
            **({"bodies": [body.json() for body in self.bodies]} if self.bodies else {}),
            **({"goes_on": True} if self.goes_on else {}),
        }

    @staticmethod
    def plan(json: dict[str, Any]) -> GpuPlan:
        bodies = [GpuPlan.plan(body) for body in json.get("bodies", ())]
        return GpuPlan(json["steps"], json["schedule"], json["on_core"], bodies, bool(json.get("goes_on")))

    def check(self, view: ProgramView, pipelines: list[dict[str, Any]]) -> None:
        """Raises ValueError naming what does not fit the Program."""
        registers, storages, steps = map(view.count, ("registers", "storages", "steps"))

        def demand(holds: object, what: str) -> None:
            if not holds:
                raise ValueError(what)

        def register(r: object) -> bool:
            return isinstance(r, int) and -registers <= r < registers

        demand(len(self.steps) == steps, f"{len(self.steps)} steps, the Program has {steps}")
        for found, step in zip(self.steps, view.steps, strict=True):
            demand(isinstance(found, dict) == (step.kernel in CONTROL), f"a step of {step.kernel}")
            if isinstance(found, list):
                for case in found:
                    demand(0 <= case["pipeline"] < len(pipelines), f"no pipeline {case['pipeline']}")
                    demand(pipelines[case["pipeline"]]["bindings"] == len(step.present), f"a step of {step.kernel}: its buffers")
                    single = case["guard"], case.get("rounds", -1)
                    demand(len(case["grid"]) == 3 and all(map(register, [*case["grid"], *case["uniforms"], *single])), "no such register")
        self._check_schedule(view, storages, demand)
        demand(len(self.bodies) == len(view.programs), f"{len(self.bodies)} plans for the Programs within, there are {len(view.programs)}")
        for body, words in zip(self.bodies, view.programs, strict=True):
            body.check(ProgramView(words), pipelines)

    def _check_schedule(self, view: ProgramView, storages: int, demand: Callable[[object, str], None]) -> None:
        at, stage, ends = 0, 0, view.stages
        for action, *what in self.schedule:
            if action in ("gpu", "core", "control"):
                last = at + 1 if action == "control" else what[1]
                demand(what[0] == at < last <= ends[stage].steps, f"the schedule leaves out step {at}")
                kind = list if action == "gpu" else dict if action == "control" else type(None)
                demand(all(isinstance(self.steps[i], kind) for i in range(at, last)), f"step {at} runs elsewhere")
                at = last
            elif action == "stage":
                demand(at == ends[stage].steps and what[0] == stage + 1 < len(ends), f"stage {what[0]} begins at step {at}")
                stage += 1
            else:
                demand(action in ("upload", "download") and all(0 <= s < storages for s in what[0]), "no such storage")
        demand(at == len(self.steps) and stage + 1 == len(ends), f"the schedule ends at step {at} of {len(self.steps)}")

    def plans(self) -> Iterator[GpuPlan]:
        """This one and those within."""
        yield self
        for body in self.bodies:
            yield from body.plans()

    @property
    def on_gpu(self) -> int:
        """Steps that run on the GPU, those of the Programs within too."""
        return sum(isinstance(step, list) for plan in self.plans() for step in plan.steps)

    def kernels_on_core(self, view: ProgramView) -> set[str]:
        """The kernels without a shader for their call, the host's among them, those of the Programs within too."""
        found = {row.kernel for row, step in zip(view.steps, self.steps, strict=True) if step is None or row.kernel == "host"}
        return found.union(*(body.kernels_on_core(ProgramView(words)) for body, words in zip(self.bodies, view.programs, strict=True)))


@dataclass
class GpuSection(GpuPlan):
    """What a GPU host needs beside the Program's words; JSON in the file.

    Attributes:
        modules: shader texts, each once.
        pipelines: ``{kernel, outputs, bindings, variants: [{needs, module}]}``, the first variant whose needs the adapter has is used.
    """

    modules: list[str]
    pipelines: list[dict[str, Any]]

    def json(self) -> dict[str, Any]:
        return {"modules": self.modules, "pipelines": self.pipelines, **super().json()}

    @staticmethod
    def read(json: dict[str, Any], program: Program) -> GpuSection:
        """Checks a section against its Program; raises ValueError naming what is wrong."""
        plan = GpuPlan.plan(json)
        section = GpuSection(**vars(plan), modules=json["modules"], pipelines=json["pipelines"])
        if not all(isinstance(m, str) for m in section.modules):
            raise ValueError("a module is no text")
        for row in section.pipelines:
            if not 0 < row["outputs"] <= row["bindings"] <= 16:
                raise ValueError(f"pipeline {row['kernel']!r}: its bindings")
            if not all(0 <= v["module"] < len(section.modules) for v in row["variants"]):
                raise ValueError(f"pipeline {row['kernel']!r}: no such module")
        section.check(ProgramView(program.code), section.pipelines)
        return section


@dataclass
class GpuProgram:
    """A Program whose steps never write what they read, and how a GPU runs them.

    Attributes:
        init: computes derived weights before it.
    """

    program: Program
    section: GpuSection
    init: Program | None = None
