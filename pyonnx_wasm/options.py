"""What sessions and runs may be told, with onnxruntime's names; what could not do what it says is refused by its name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from .runtimes import Limits
from .values import OrtValue

_ending = threading.Lock()  # a run that has ended is not cancelled any more, which would end the next one


class GraphOptimizationLevel(IntEnum):
    """How much a session rewrites its graph: nothing with ``ORT_DISABLE_ALL``, else all that keeps its meaning."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Steps run one after the other, each on all threads, in either mode."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Steps run in the order of the compiled Program, whatever is asked."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Known:
    """Only declared attributes can be set, so that a name spelt wrongly is an error."""

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dataclass_fields__  # type: ignore[attr-defined]
        if name not in known and not isinstance(getattr(type(self), name, None), property):
            raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(sorted(known))}")
        object.__setattr__(self, name, value)


@dataclass
class SessionOptions(_Known):
    """What a session may be told; names and meaning as in onnxruntime.

    Attributes:
        intra_op_num_threads: threads of one run; 0: one per core.
        enable_optimisation: run the fusing passes; ``graph_optimization_level`` says the same in onnxruntime's words.
        free_dimension_overrides: sizes of symbolic dimensions by name; names that the model lacks are ignored.
        enable_profiling: every run is measured step by step; ``end_profiling`` writes the trace to ``profile_file_prefix`` and a time.
        max_memory: bytes of intermediate tensors, scratch and outputs that a run on the core may take; None: the core's own bound.
        max_operations: elementary operations that a run on the core may take; likewise, and for each call of a WebAssembly module of
            one's own, which without it may take 2^31 and 2^12 more for each byte of its inputs and outputs.
        initializers: values by the name of the initializer whose place they take.
        external: contents of external data files by the locations that the model has for them.
        entries: what ``add_session_config_entry`` was given; none changes a result.

    The options of memory (arena, pattern, reuse) hold always, as do threads of a session's own; threads between operators, execution mode
    and order, log levels and ``logid`` change nothing, as steps run one after the other and nothing is logged.
    """

    intra_op_num_threads: int = 0
    enable_optimisation: bool = True
    log_severity_level: int = -1
    free_dimension_overrides: dict[str, int] = field(default_factory=dict)
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    logid: str = ""
    log_verbosity_level: int = 0
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_cpu_mem_arena: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    max_memory: int | None = None
    max_operations: int | None = None
    initializers: dict[str, OrtValue] = field(default_factory=dict)
    external: dict[str, memoryview] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> Limits:
        """What a run on the core may take."""
        given = {"max_memory": self.max_memory, "max_operations": self.max_operations}
        return Limits(**{name: value for name, value in given.items() if value is not None})

    @property
    def reading(self) -> dict[str, Any]:
        """How the model's file is read."""
        return {"external": self.external, "replaced": list(self.initializers)}

    @property
    def graph_optimization_level(self) -> GraphOptimizationLevel:
        return GraphOptimizationLevel.ORT_ENABLE_ALL if self.enable_optimisation else GraphOptimizationLevel.ORT_DISABLE_ALL

    @graph_optimization_level.setter
    def graph_optimization_level(self, level: int) -> None:
        self.enable_optimisation = GraphOptimizationLevel(level) is not GraphOptimizationLevel.ORT_DISABLE_ALL

    @property
    def optimized_model_filepath(self) -> str:
        return ""

    @optimized_model_filepath.setter
    def optimized_model_filepath(self, path: str) -> None:
        if path:
            raise NotImplementedError("optimized_model_filepath: optimised models are Programs, not ONNX; pyonnx_wasm.save writes them")

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self.free_dimension_overrides[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        raise NotImplementedError(f"overrides by denotation ({denotation!r}) are not supported: override the dimension by its name")

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        if key not in self.entries:
            raise RuntimeError(f"session config entry {key!r} was never added")
        return self.entries[key]

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Puts a value in the place of the initializer of that name."""
        self.initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Gives the initializers whose data lie outside the file."""
        if len(names) != len(values):
            raise ValueError(f"{len(names)} names for {len(values)} values")
        self.initializers.update(zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[bytes | bytearray | memoryview | np.ndarray], lengths: Sequence[int]
    ) -> None:
        """Gives the contents of external data files, in place of those beside the model.

        Args:
            names: of the files, as the model's locations have them.
            buffers: their bytes, which are not copied: they must not change while the session lives.
            lengths: how many of them, of each.
        Raises:
            ValueError: the sequences are of different lengths, or a buffer is shorter than its length.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise ValueError(f"{len(names)} names for {len(buffers)} buffers and {len(lengths)} lengths")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            view = memoryview(buffer.data if isinstance(buffer, np.ndarray) else buffer).cast("B")
            if not 0 <= length <= len(view):
                raise ValueError(f"{name!r}: the buffer has {len(view)} bytes, not {length}")
            self.external[os.fspath(name)] = view[:length]

    def register_custom_ops_library(self, path: str) -> None:
        raise NotImplementedError(
            f"{path}: libraries built for onnxruntime cannot be loaded; write the operator as an ONNX function in the model, "
            "or register it: pyonnx_wasm.op for what decomposes, pyonnx_wasm.callback for what does not"
        )


@dataclass
class RunOptions(_Known):
    """What one run may be told.

    Attributes:
        terminate: set before a run, or from another thread while one is under way: it ends with an error.
        only_execute_path_to_fetches: always so.
    """

    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    logid: str = ""
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    entries: dict[str, str] = field(default_factory=dict)
    _cancels: list[Callable[[bool], None]] = field(default_factory=list, repr=False, compare=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "terminate":
            super().__setattr__(name, value)
            return
        with _ending:
            super().__setattr__(name, value)
            for cancel in getattr(self, "_cancels", ()) if value else ():
                cancel(True)

    @contextmanager
    def ending(self, cancel: Callable[[bool], None] | None) -> Iterator[None]:
        """What ends the run that is under way inside the block, should ``terminate`` be set.

        Raises:
            RuntimeError: it is set already.
        """
        with _ending:
            if self.terminate:
                raise RuntimeError("the run was terminated: RunOptions.terminate is set")
            self._cancels += [cancel] if cancel else []
        try:
            yield
        finally:
            if cancel:
                with _ending:
                    self._cancels.remove(cancel)
                    cancel(False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        self.entries[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        if key not in self.entries:
            raise RuntimeError(f"run config entry {key!r} was never added")
        return self.entries[key]


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
