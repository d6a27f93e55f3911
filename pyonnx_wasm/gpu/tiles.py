"""Which tiles a product is cut into: the numbers of ``kernels/wgsl/lib/tiles.wgsl``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VECTOR = 4


@dataclass(frozen=True)
class Tile:
    """A workgroup's share of a product.

    Attributes:
        bm, bn: rows and columns.
        bk: how much of the sum one step takes in.
        rows, columns: of them, a lane's.
        slices: teams of lanes that share the sum.
    """

    bm: int
    bn: int
    bk: int
    rows: int
    columns: int
    slices: int

    @property
    def team(self) -> int:
        """Lanes that hold the outputs."""
        return self.bm * self.bn // (self.rows * self.columns)

    @property
    def holes(self) -> dict[str, str]:
        found = {
            "bm": self.bm, "bn": self.bn, "bk": self.bk, "rows": self.rows, "columns": self.columns, "slices": self.slices,
            "bands": self.columns // VECTOR, "vectors": self.slices * self.bk * (self.bm + self.bn) // VECTOR,
            "lanes": self.team * self.slices, "left_loads": self.bm * self.bk // VECTOR // self.team,
            "right_loads": self.bn * self.bk // VECTOR // self.team,
        }  # fmt: skip
        return {name: str(value) for name, value in found.items()}


LARGE = Tile(64, 64, 8, 8, 8, 1)
SMALL = Tile(32, 32, 8, 4, 4, 4)


def tiles() -> Iterator[tuple[Tile, bool]]:
    """The tiles to choose from, and whether one is for products that have enough of them to keep the adapter busy."""
    yield LARGE, True
    yield SMALL, False
