"""Which tiles a product of bytes is cut into: the numbers of ``kernels/wgsl/lib/byte_tiles.wgsl``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..ir import dims
from ..ir.dims import DimLike

DOT = "packed_4x8_integer_dot_product"
DEEP = 4  # words along k of a step
MANY = 1024  # tiles that keep a GPU busy without sharing their sums
SOME = 128  # tiles below which smaller ones are better
SHALLOW = 32  # terms of a sum that is not worth sharing


class ByteTiling(NamedTuple):
    """A product in tiles: over which grid, and where it fits (:class:`~pyonnx_wasm.gpu.Case`)."""

    grid: tuple[DimLike, DimLike, DimLike]
    guard: DimLike
    holes: dict[str, str]
    defines: set[str]


def byte_tilings(rows: DimLike, columns: DimLike, depth: DimLike, products: DimLike) -> Iterator[ByteTiling]:
    """The ways to cut products of this size, best first."""
    for side, slices in ((32, 1), (32, 4), (16, 16)):
        grid = (dims.ceildiv(columns, side), dims.ceildiv(rows, side), products)
        tiles = dims.product(grid)
        fits: DimLike = 1
        if side == 32:
            fits = dims.le(SOME, tiles) if slices > 1 else dims.ne(dims.le(MANY, tiles) + dims.le(depth, SHALLOW), 0)
        team = side * side // 16
        words = slices * 2 * side * DEEP
        holes = {
            "side": side, "slices": slices, "lanes": team * slices, "loads": side * DEEP // team,
            "tile_words": max(words, slices // 2 * team * 16),
        }  # fmt: skip
        yield ByteTiling(grid, fits, {n: str(v) for n, v in holes.items()}, {"sliced"} if slices > 1 else set())
