"""Values that are more than one tensor: sequences, optionals and maps, and the tensors that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from .graph import IRError, Value
from .strings import Strings

if TYPE_CHECKING:
    from ..onnxfile.graph import ValueInfo

Ranks = frozenset[int]


@dataclass(frozen=True)
class Items:
    """A sequence whose length is known when the model is compiled.

    Attributes:
        dtype: of an empty one, where it is known.
        whole: gives the same as a :class:`Packed`, where one need not be made of the values.
    """

    values: tuple[Value | Strings, ...]
    dtype: DType | None = None
    whole: Callable[[], Packed] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        dtypes = {v.dtype.name for v in self.values} | ({self.dtype.name} if self.dtype else set())
        if len(dtypes) > 1:
            raise IRError(f"a sequence holds tensors of one dtype, not of {' and '.join(sorted(dtypes))}")


@dataclass(frozen=True, eq=False)
class Packed:
    """A sequence whose length is data.

    Attributes:
        elements: of all tensors, row-major, one tensor behind the other.
        shapes: int64 [length, :data:`ROW`]; a row holds the tensor's rank and its sizes, 1 beyond them.
        ranks: those that the tensors may have; None: any.
        unranked: the input of the model that would have to declare its rank.
        grew: the sequence that it was made of, and the tensors, and sequences, that were put behind that.
    """

    elements: Value | Strings
    shapes: Value
    ranks: Ranks | None = None
    unranked: str = ""
    grew: tuple[Packed, tuple[Value | Strings | Packed, ...]] | None = None

    @property
    def dtype(self) -> DType:
        return self.elements.dtype


@dataclass(frozen=True, eq=False)
class Maybe:
    """An optional whose presence is data; without a value the tensors behind it mean nothing.

    Attributes:
        present: bool [].
    """

    present: Value
    value: Any  # Value | Items | Packed


@dataclass(frozen=True, eq=False)
class Map:
    """A map, which may enter a model, and goes to operators that make a tensor of it.

    Attributes:
        keys: different ones, int64 or strings [n].
        values: [n].
    """

    keys: Value | Strings
    values: Value | Strings


@dataclass(frozen=True, eq=False)
class Maps:
    """A sequence of maps over the same keys, which are constants; it may leave a model, and nothing else.

    Attributes:
        values: [maps, keys].
    """

    values: Value
    keys: tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class Single:
    """A tensor of one element whose rank is data: what branches give that disagree in it.

    Attributes:
        value: of the highest rank that it may have, sizes 1.
        least: the lowest.
    """

    value: Value
    least: int


COMPOUND = (Items, Packed, Maybe, Map, Maps, Single)
ROW = 9  # a rank and eight sizes


@dataclass(frozen=True)
class Face:
    """An input or output of a model.

    Attributes:
        shape: of a tensor, or of those of a sequence; None: of any rank.
        keys: of a sequence of maps: the rows of a matrix, an element per key.
        key: of one map: the dtype of its keys; ``dtype`` is that of its values.
    """

    name: str
    sequence: bool
    optional: bool
    dtype: DType
    shape: tuple[int | str, ...] | None
    keys: tuple[int | str, ...] | None = None
    key: DType | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a tensor."""
        return not self.sequence and not self.optional and self.keys is None and self.key is None

    def tensors(self) -> list[tuple[str, DType, tuple[int | str, ...]]]:
        """Name, dtype and shape of the tensors that it is made of."""
        found: list[tuple[str, DType, tuple[int | str, ...]]] = []
        if self.key is not None:
            size = (f"{self.name}/length",)
            return [(f"{self.name}/keys", self.key, size), (self.name, self.dtype, size)]
        if self.optional:
            found.append((f"{self.name}/present", DType.bool, ()))
        if not self.sequence:
            return [*found, (self.name, self.dtype, self.shape or ())]
        return [
            *found,
            (self.name, self.dtype, (f"{self.name}/elements",)),
            (f"{self.name}/shapes", DType.int64, (f"{self.name}/length", ROW)),
        ]


def face_of(info: ValueInfo, shape: Sequence[int | str | None] | None = None) -> Face:
    """An input or output as the file declares it; ``shape``: of a tensor, or of those of a sequence, in place of the declared one."""
    kind, optional, sequence = info.type, False, False
    if kind.kind == "map" and kind.dtype is not None and kind.elem is not None and kind.elem.kind == "tensor":
        return Face(info.name, False, False, kind.elem.dtype or DType.float32, None, key=kind.dtype)
    if kind.kind == "optional" and kind.elem is not None:
        kind, optional = kind.elem, True
    if kind.kind == "sequence" and kind.elem is not None:
        kind, sequence = kind.elem, True
    if kind.kind != "tensor":
        raise IRError(f"input or output {info.name!r}: values of type {kind.kind} are not supported")
    declared = kind.shape if shape is None else list(shape)
    own = None if declared is None else tuple(d if isinstance(d, int) else d or f"{info.name}[{axis}]" for axis, d in enumerate(declared))
    return Face(info.name, sequence, optional, kind.dtype or DType.float32, own)


def parts(x: Any) -> list[Value]:
    """The tensors that a value is made of."""
    if isinstance(x, Maybe):
        return [x.present, *parts(x.value)]
    if isinstance(x, Packed):
        return [*parts(x.elements), x.shapes]
    if isinstance(x, Items):
        return [part for v in x.values for part in parts(v)]
    if isinstance(x, Strings):
        return [x.spans, x.pool]
    return [x.value if isinstance(x, Single) else x]


def members(x: Any) -> list[Value | Strings]:
    """The same, where a tensor of strings is one."""
    if isinstance(x, Maybe):
        return [x.present, *members(x.value)]
    if isinstance(x, Packed):
        return [x.elements, x.shapes]
    return [x.value if isinstance(x, Single) else x]


def rebuilt(x: Any, tensors: Iterator[Value]) -> Any:
    """A value of the same form over other tensors."""
    if isinstance(x, Maybe):
        return Maybe(next(tensors), rebuilt(x.value, tensors))
    if isinstance(x, Packed):
        return replace(x, elements=rebuilt(x.elements, tensors), shapes=next(tensors), grew=None)
    if isinstance(x, Items):
        return Items(tuple(rebuilt(v, tensors) for v in x.values), x.dtype)
    if isinstance(x, Strings):
        return replace(x, spans=next(tensors), pool=next(tensors))
    return Single(next(tensors), x.least) if isinstance(x, Single) else next(tensors)


@dataclass(frozen=True)
class Form:
    """What is alike in values that one name may stand for.

    Attributes:
        sequence: None where nothing but an absent optional is known.
        ranks: those that its tensors may have; None: any.
    """

    sequence: bool | None
    optional: bool
    dtype: DType | None
    ranks: Ranks | None
    unranked: str = ""

    def __or__(self, other: Form) -> Form:
        """The form of what may be either."""
        if None not in (self.sequence, other.sequence) and self.sequence != other.sequence:
            raise IRError("a sequence and a tensor cannot stand for each other")
        if None not in (self.dtype, other.dtype) and self.dtype is not other.dtype:
            raise IRError(f"{self.dtype.name} and {other.dtype.name} cannot stand for each other")  # type: ignore[union-attr]
        return Form(
            other.sequence if self.sequence is None else self.sequence,
            self.optional or other.optional,
            self.dtype or other.dtype,
            None if self.ranks is None or other.ranks is None else self.ranks | other.ranks,
            self.unranked or other.unranked,
        )


def form_of(x: Any) -> Form:
    """The form of a value; None is an optional without one."""
    if isinstance(x, (Map, Maps)):
        raise IRError("maps do not pass through branches and loops, and leave a model as those of ZipMap alone")
    if x is None:
        return Form(None, True, None, frozenset())
    if isinstance(x, Maybe):
        return replace(form_of(x.value), optional=True)
    if isinstance(x, Items):
        return Form(True, False, x.values[0].dtype if x.values else x.dtype, frozenset(v.rank for v in x.values))
    if isinstance(x, Packed):
        return Form(True, False, x.dtype, x.ranks, x.unranked)
    if isinstance(x, Single):
        return Form(False, False, x.value.dtype, frozenset([x.least, x.value.rank]))
    return Form(False, False, x.dtype, frozenset([x.rank]))
