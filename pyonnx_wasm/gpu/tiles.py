"""Which tiles a product is cut into: the numbers of ``kernels/wgsl/lib/tiles.wgsl``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..ir import dims
from ..ir.dims import DimLike

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
SMALL = Tile(32, 32, 16, 4, 4, 4)
TINY = Tile(16, 16, 8, 4, 4, 16)
ENOUGH = 64  # small tiles from which on tiny ones, which read the operands twice as often, gain nothing


class Tiling(NamedTuple):
    """A product in tiles: over which grid, and where it fits (:class:`~pyonnx_wasm.gpu.Case`)."""

    tile: Tile
    grid: tuple[DimLike, DimLike, DimLike]
    guard: DimLike
    busy: bool


def tilings(rows: DimLike, columns: DimLike, products: DimLike = 1) -> Iterator[Tiling]:
    """The ways to cut products of this size, best first: large tiles where they keep the adapter busy, tiny ones for few outputs."""
    for tile, fewest, busy in ((LARGE, 0, True), (SMALL, ENOUGH, False), (TINY, 0, False)):
        grid = (dims.ceildiv(columns, tile.bn), dims.ceildiv(rows, tile.bm), products)
        yield Tiling(tile, grid, dims.le(fewest, dims.product(grid)) if fewest else 1, busy)
