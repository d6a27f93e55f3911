"""The registry that the files of PyTorch networks fill, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

Feeds = list[dict[str, np.ndarray]]
BOTH = ("dynamo", "script")


@dataclass(frozen=True)
class Network:
    """One network: axes whose sizes differ between the two feeds are exported as dynamic.

    Attributes:
        make: gives the module and its inputs, by the names of ``forward``'s parameters, in order.
    """

    make: Callable[[np.random.Generator], tuple[nn.Module, Feeds]]
    exporters: tuple[str, ...] = BOTH
    tolerance: tuple[float, float] = (1e-4, 1e-4)


NETWORKS: dict[str, Network] = {}
Maker = Callable[[np.random.Generator], tuple[nn.Module, Feeds]]


def network(*exporters: str, tolerance: tuple[float, float] = (1e-4, 1e-4)) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        add(make.__name__.strip("_"), make, exporters or BOTH, tolerance)
        return make

    return register


def add(name: str, make: Maker, exporters: tuple[str, ...] = BOTH, tolerance: tuple[float, float] = (1e-4, 1e-4)) -> None:
    assert name not in NETWORKS, name
    NETWORKS[name] = Network(make, exporters, tolerance)


def on(module: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Maker:
    """A module of one input, at the shapes."""
    return lambda rng: (module(), floats(rng, *({"x": s} for s in shapes)))


def floats(rng: np.random.Generator, *shapes: dict[str, tuple[int, ...]]) -> Feeds:
    return [{k: rng.normal(size=s).astype(np.float32) for k, s in feed.items()} for feed in shapes]


def tokens(rng: np.random.Generator, count: int, *shapes: tuple[int, ...]) -> Feeds:
    return [{"ids": rng.integers(0, count, s)} for s in shapes]


class Of(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Callable[[Tensor], Tensor | tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.function(x)


class OfTwo(Of):
    def forward(self, x: Tensor, y: Tensor) -> Tensor | tuple[Tensor, ...]:  # type: ignore[override]
        return self.function(x, y)  # type: ignore[call-arg]


class OfThree(Of):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor | tuple[Tensor, ...]:  # type: ignore[override]
        return self.function(x, y, z)  # type: ignore[call-arg]


def spread(module: nn.Module) -> nn.Module:
    """Statistics of normalisations that are no ones and zeros, as training leaves them."""
    generator = torch.Generator().manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1, generator=generator)
            part.running_var.uniform_(0.8, 1.2, generator=generator)
    return module
