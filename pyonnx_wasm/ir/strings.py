"""Strings: two plain tensors that operators carry as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..dtypes import DType
from . import dims
from .dims import DimLike
from .graph import Shape, Value


@dataclass(frozen=True)
class Strings:
    """A tensor of strings, which exists only while a graph is traced.

    Attributes:
        spans: int64, of the tensor's shape: where in the pool a string's bytes begin, times 2**32, plus how many they are. 0 is the
            empty string.
        pool: uint8 ``[bytes]``, UTF-8. Strings may share bytes, and the pool may hold more than they use.
        packed: the pool holds the bytes of the strings, in their order, and nothing else.
    """

    spans: Value
    pool: Value
    packed: bool = False
    dtype: ClassVar[DType] = DType.string

    @property
    def shape(self) -> Shape:
        return self.spans.shape

    @property
    def rank(self) -> int:
        return self.spans.rank

    @property
    def size(self) -> DimLike:
        return dims.product(self.shape)
