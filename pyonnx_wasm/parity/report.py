"""What a comparison found, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import narrow
from ..dtypes import DType
from ..inputs import Described
from .compare import Difference, Tolerance
from .layers import Layer


@dataclass
class Output:
    """One output of the model, and how far each backend is off."""

    name: str
    dtype: DType
    shape: tuple[int, ...] = ()
    differences: dict[str, Difference] = field(default_factory=dict)


@dataclass
class Findings:
    """What a comparison found.

    Attributes:
        reference: what the others were held against.
        backends: what ran, without the reference.
        skipped: the reason of each backend that cannot run here and was not asked for by name.
        layers: intermediate values in the order in which they are computed; None where they were not asked for.
        worst: backend, value and plot data of the output that is furthest off; None where all agree bit by bit.
        narrowed: what smaller weights cost, where they were asked for.
    """

    model: str
    reference: str
    backends: list[str]
    skipped: dict[str, str]
    inputs: list[Described]
    outputs: list[Output]
    layers: list[Layer] | None
    tolerance: Tolerance
    seed: int
    worst: dict[str, Any] | None = None
    narrowed: narrow.Report | None = None

    @property
    def agrees(self) -> bool:
        """No output exceeds the tolerance on any backend; nor does a layer, where those were compared."""
        rows: list[Output | Layer] = [*self.outputs, *(self.layers or [])]
        return all(d.agrees for row in rows for d in row.differences.values())

    def first_divergence(self, backend: str) -> Layer | None:
        """The first intermediate value, in order of computation, that a backend gets wrong."""
        return next((x for x in self.layers or [] if backend in x.differences and not x.differences[backend].agrees), None)
