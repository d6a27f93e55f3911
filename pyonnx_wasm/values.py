"""Tensors that a session owns or binds, with onnxruntime's names. All live in the memory of this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DType, from_numpy, to_numpy
from .program import Signature
from .runtimes.state import Held

if TYPE_CHECKING:
    from .session import InferenceSession

Array = np.ndarray[Any, Any]
SPELLED = {"float32": "float", "float64": "double"}


def type_name(dtype: DType) -> str:
    """A tensor type as onnxruntime spells it: ``tensor(float)``."""
    return f"tensor({SPELLED.get(dtype.name, dtype.name)})"


def _host(device_type: str) -> None:
    if device_type.lower() not in ("cpu", ""):
        raise ValueError(f"device {device_type!r}: values live in memory (device 'cpu'); backends with a GPU copy what they need")


def _dtype_of(array: Array) -> DType:
    return DType.string if array.dtype.kind in "OUST" else from_numpy(array.dtype)


#: Types that an array tells by its own.
_NUMPY_HAS = frozenset(d for d in DType if d is DType.string or from_numpy(to_numpy(d)) is d)


class OrtSparseFormat(Enum):
    """How a sparse tensor says where its values are: by index, by row, or not at all."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtValue:
    """A tensor, as sessions take and give it.

    One that a session holds for its next run (``runtimes/STATE.md``) is read through copies; written to, it becomes one of its own.
    """

    def __init__(self, array: Array | Held, dtype: DType | None = None) -> None:
        self._held: Held | None = None
        self._copy: Array | None = None
        if isinstance(array, Held):
            self._held, self._dtype = array, array.dtype
        else:
            self._own, self._dtype = np.ascontiguousarray(array).reshape(np.shape(array)), dtype or _dtype_of(np.asarray(array))

    @property
    def _array(self) -> Array:
        """The value's memory, its own from now on."""
        if self._held is not None:
            self._own, self._held, self._copy = self._held.array(), None, None
        return self._own

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Array, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A copy of an array."""
        _host(device_type)
        return OrtValue(np.array(numpy_obj))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Array, onnx_element_type: int) -> OrtValue:
        """A tensor of a type that numpy lacks, over its bits."""
        return OrtValue(data, DType(onnx_element_type))

    @staticmethod
    def from_dlpack(data: Any) -> OrtValue:
        """A tensor of another library, in memory, by the DLPack protocol; the two share it where it is contiguous."""
        return OrtValue(np.from_dlpack(data))

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """An uninitialised tensor: of zeros."""
        _host(device_type)
        dtype = DType(element_type) if isinstance(element_type, int) else from_numpy(np.dtype(element_type))
        if dtype is DType.string:
            return OrtValue(np.full(tuple(shape), "", object), dtype)
        return OrtValue(np.zeros(tuple(shape), to_numpy(dtype)), dtype)

    def numpy(self) -> Array:
        """The elements; the array shares the value's memory, or is a copy that cannot be written to where a session holds it."""
        if self._held is None or self._held.room.owner is None:
            return self._array
        if self._copy is None:
            self._copy = self._held.array()
            self._copy.flags.writeable = False
        return self._copy

    async def numpy_async(self) -> Array:
        """As :meth:`numpy`, where a page's GPU holds the value and this Python cannot block."""
        read = getattr(self._held and self._held.room, "read", None)
        return self.numpy() if read is None or self._copy is not None else await read()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype) if copy or dtype is not None else self.numpy()

    def own(self, dtype: DType) -> Array | None:
        """The value's memory, where it is of this dtype and no session holds it."""
        return self._own if self._held is None and self._dtype is dtype else None

    @property
    def held(self) -> Held | None:
        """Where a session holds it."""
        return self._held

    def update_inplace(self, np_arr: Array) -> None:
        """Writes an array of the same shape and dtype into the value's memory."""
        array = np.asarray(np_arr)
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise ValueError(f"the value holds {self._array.dtype}{list(self._array.shape)}, got {array.dtype}{list(array.shape)}")
        self._array[...] = array

    def shape(self) -> list[int]:
        return list(self._own.shape if self._held is None else self._held.shape)

    def data_type(self) -> str:
        return type_name(self._dtype)

    def element_type(self) -> int:
        return int(self._dtype)

    def device_name(self) -> str:
        return "cpu"

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        return int(self._own.nbytes if self._held is None else self._dtype.nbytes(self._held.size))

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_tensor_sequence(self) -> bool:
        return False

    def is_sparse_tensor(self) -> bool:
        return False


class IOBinding:
    """Inputs and outputs of a session, bound once for many runs; values bound as outputs are written in place."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._names = {"input": [a.name for a in session.get_inputs()], "output": [a.name for a in session.get_outputs()]}
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._away: set[str] = set()
        self._results: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Binds an array; what is written into it later is read by later runs."""
        self._inputs[self._known(name, "input")] = OrtValue(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._inputs[self._known(name, "input")] = ortvalue

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int) -> None:
        raise NotImplementedError(f"input {name!r} by address: bind an array (bind_cpu_input) or a value (bind_ortvalue_input)")

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None, shape: Any = None, buffer_ptr: Any = None
    ) -> None:
        """Wants an output, in memory that the run provides; with the device ``"gpu"`` or ``"webgpu"`` on the GPU, where the session runs on
        one: it is read when it is asked for."""
        there = device_type.lower() in ("gpu", "webgpu") and self._session.providers[0] in ("gpu", "webgpu")
        if not there:
            _host(device_type)
        if buffer_ptr is not None:
            raise NotImplementedError(f"output {name!r} by address: bind a value (bind_ortvalue_output)")
        self._outputs[self._known(name, "output")] = None
        self._away.discard(name)
        if there:
            self._away.add(name)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._outputs[self._known(name, "output")] = ortvalue

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._away.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing is under way between runs."""

    def synchronize_outputs(self) -> None:
        """Nothing is under way between runs."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the latest run, in the order in which they were bound."""
        return list(self._results.values())

    def copy_outputs_to_cpu(self) -> list[Array]:
        return [np.array(v.numpy()) for v in self.get_outputs()]

    def run(self, run_options: Any = None) -> None:
        """Runs the session on what is bound; outputs that were not bound are not given."""
        names = list(self._outputs)
        if not names:
            raise ValueError("no output is bound: bind_output(name) says which are wanted")
        keep = [name for name, bound in self._outputs.items() if bound is None]
        how: dict[str, Any] = {"away": self._away.intersection(keep)} if self._away else {}
        given = self._session.run_values(names, self._inputs, keep, run_options, **how)
        made = dict(zip(keep, values_of(keep, given, self._session.signature()[1]), strict=True))
        for name, bound in self._outputs.items():
            if bound is not None:
                bound.update_inplace(given[name])
            self._results[name] = made[name] if bound is None else bound

    def _known(self, name: str, what: str) -> str:
        if name not in self._names[what]:
            raise ValueError(f"the model has no {what} {name!r}; it has {', '.join(map(repr, self._names[what]))}")
        return name


class CooView:
    """Where the values of a sparse tensor are: ``indices()``, flat [n] or [n, 2], int64."""

    def __init__(self, indices: Array) -> None:
        self._indices = indices

    def indices(self) -> Array:
        return self._indices


class CsrView:
    """Likewise by row: ``inner()``, the column of each value, and ``outer()``, where each row begins, int64."""

    def __init__(self, inner: Array, outer: Array) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> Array:
        return self._inner

    def outer(self) -> Array:
        return self._outer


class SparseTensor:
    """A sparse tensor as onnxruntime spells it; sessions take it densified."""

    def __init__(self, shape: Sequence[int], values: Array, flat: Array, layout: OrtSparseFormat, places: Mapping[str, Array]) -> None:
        self._shape, self._values, self._flat, self._layout = tuple(shape), np.asarray(values), np.asarray(flat, np.int64), layout
        self._places = {name: np.asarray(indices, np.int64) for name, indices in places.items()}

    @staticmethod
    def sparse_coo_from_numpy(dense_shape: Sequence[int], values: Array, coo_indices: Array, ort_device: Any = None) -> SparseTensor:
        """Values at indices: flat [n], or a row and a column each [n, 2]."""
        indices = np.asarray(coo_indices, np.int64)
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), tuple(dense_shape))
        return SparseTensor(dense_shape, values, flat, OrtSparseFormat.ORT_SPARSE_COO, {"indices": indices})

    @staticmethod
    def sparse_csr_from_numpy(
        dense_shape: Sequence[int], values: Array, inner_indices: Array, outer_indices: Array, ort_device: Any = None
    ) -> SparseTensor:
        """Values by rows: the column of each, and where each row begins."""
        starts = np.asarray(outer_indices, np.int64)
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        flat = rows * dense_shape[1] + np.asarray(inner_indices, np.int64)
        return SparseTensor(dense_shape, values, flat, OrtSparseFormat.ORT_SPARSE_CSRC, {"inner": inner_indices, "outer": starts})

    def values(self) -> Array:
        return self._values

    def dense_shape(self) -> list[int]:
        return list(self._shape)

    def format(self) -> OrtSparseFormat:
        return self._layout

    def as_coo_view(self) -> CooView:
        """Where the values of a tensor by index are."""
        return CooView(self._placed("indices"))

    def as_csrc_view(self) -> CsrView:
        """Where the values of a tensor by row are."""
        return CsrView(self._placed("inner"), self._placed("outer"))

    def _placed(self, name: str) -> Array:
        if name not in self._places:
            raise ValueError(f"the sparse tensor is {self._layout.name}: it has no {name}")
        return self._places[name]

    def data_type(self) -> str:
        return "sparse_" + type_name(from_numpy(self._values.dtype))

    def device_name(self) -> str:
        return "cpu"

    def densify(self) -> Array:
        """The dense array."""
        out = np.zeros(self._shape, self._values.dtype)
        out.reshape(-1)[self._flat] = self._values
        return out


def plain(feed: Mapping[str, Any], held: bool = False, inputs: Iterable[Signature] = ()) -> dict[str, Any]:
    """Feeds as arrays: values and sparse tensors unwrapped; with ``held``, what a session holds as that.

    Raises:
        ValueError: a value is of a type that its array does not tell, and its input of another.
    """

    def unwrapped(name: str, v: Any) -> Any:
        if isinstance(v, OrtValue):
            if v._dtype not in _NUMPY_HAS:
                takes = next((s.dtype for s in inputs if s.name == name), v._dtype)
                if takes is not v._dtype:
                    raise ValueError(f"input {name!r} takes {takes.name}, got {v._dtype.name}")
            return v._held if held and v._held is not None else v.numpy()
        return v.densify() if isinstance(v, SparseTensor) else v

    return {name: unwrapped(name, v) for name, v in feed.items()}


def values_of(names: Iterable[str], found: Mapping[str, Any], outputs: Iterable[Signature]) -> list[OrtValue]:
    """What a run gave as values, of their own types where arrays have others."""
    dtypes = {s.name: s.dtype for s in outputs}
    return [OrtValue(found[name], dtypes.get(name)) for name in names]
