"""``InferenceSession``: a model ready to run, with onnxruntime's surface."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import interface
from . import source as files
from .elsewhere import SESSIONS
from .feeds import Outputs, Slots, execute, execute_async, fed
from .ir import Face, NeedsShape, NeedsSizes, face_of
from .onward import Chain, Onward
from .options import ModelMetadata, RunOptions, SessionOptions
from .pending import declared
from .program import Compiled, Signature
from .program import file as ponnx
from .providers import ALIASES, PROVIDERS, WASM, choose, names_of, paired, settings_of
from .runtimes import Runtime, chance
from .runtimes.cpu import Executor
from .runtimes.profile import Enough, Profile, combined
from .runtimes.state import Held
from .runtimes.weights import load_weights
from .values import IOBinding, OrtValue, plain, values_of
from .variants import named_axes, shapes_of, shared_axes, sizes_of

VARIANTS = 4 if WASM else 64  # kept of a model whose structure depends on contents; in Pyodide each has weights of its own


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``type`` as onnxruntime spells it (``tensor(float)``), dims are sizes or symbols' names."""

    name: str
    shape: list[int | str]
    type: str


class InferenceSession:
    """Runs one model. Safe to share between threads (runs are serialised) and picklable (path and options travel, not weights).

    Args:
        path_or_bytes: an ``.onnx``, ``.gguf`` or ``.ponnx`` file, or its bytes.
        sess_options: see :class:`SessionOptions`.
        provider_options: one mapping per provider, as onnxruntime takes them.
        enable_fallback: a provider that cannot run the model makes way for the next one.
        providers: backends in order of preference; the first available is used. With ``["gpu", "cpu"]`` a model that the GPU
            cannot run, or no GPU at all, is a RuntimeWarning, and the cpu runs the model. ``("wasmtime", {"max_memory": bytes})``
            bounds what the model may take.
    Raises:
        ReadError, ponnx.FileError, ir.IRError: the file cannot be read or compiled; the text names what and where.
        ValueError: no such provider.
    """

    def __new__(
        cls, path_or_bytes: Any = None, sess_options: Any = None, providers: Any = None, provider_options: Any = None, **_: Any
    ) -> InferenceSession:
        chosen = choose(providers)
        return super().__new__(SESSIONS[chosen]() if cls is InferenceSession and chosen in SESSIONS else cls)

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        enable_fallback: bool = True,
        disabled_optimizers: Sequence[str] | None = None,
    ) -> None:
        if disabled_optimizers:
            raise ValueError(f"disabled_optimizers {list(disabled_optimizers)}: onnxruntime's passes; here it is all or none of them")
        providers = paired(providers, provider_options)
        self._source, self._options = path_or_bytes, sess_options or SessionOptions()
        self._asked, self._enabled = providers, enable_fallback
        self._provider = choose(providers)
        self._traces: list[Profile] = []
        self._began = time.time_ns()
        self._model: dict[str, Any] | None = None
        self._settings = settings_of(providers, self._provider)
        self._spare = enable_fallback and self._provider == "gpu" and "cpu" in (ALIASES.get(n, n) for n in names_of(providers))
        #: Why the model does not run on the backend that was preferred.
        self.fallback: str | None = None
        self._lock = threading.Lock()
        self._variants: dict[Any, Runtime] = {}
        self._unranked: tuple[str, ...] = ()
        self._symbols: tuple[str, ...] = ()  # whose sizes decide ranks: each run is compiled for its own
        self._rooms: dict[str, weakref.ref[Any]] = {}  # by input, of what fitted when it came the last time
        try:
            compiled = self._compile({}, {})
        except (NeedsShape, NeedsSizes) as need:
            self._unranked = need.inputs if isinstance(need, NeedsShape) else ()
            self._symbols = need.symbols if isinstance(need, NeedsSizes) else ()
            self._faces = declared(path_or_bytes, **self._options.reading)
            self._inputs, outputs = (interface.signatures(faces) for faces in self._faces)
        else:
            self._inputs, outputs = compiled.inputs, compiled.outputs
            self._faces = compiled.faces or (interface.plain_faces(self._inputs), interface.plain_faces(outputs))
            self._variants[()] = self._executor(compiled)
            del compiled
            _forget()
        self._outputs = Slots(outputs)
        self._names = ([f.name for f in self._faces[0]], [f.name for f in self._faces[1]])
        self._plain = [all(face.plain for face in faces) for faces in self._faces]  # all inputs, all outputs are tensors
        self._plain_outputs = {face.name for face in self._faces[1] if face.plain}
        self._precompiled = is_compiled(path_or_bytes)
        self._named, self._onward = named_axes(self._inputs), Onward()

    def _compile(self, shapes: Mapping[str, Sequence[int | str | None]], sizes: Mapping[str, int]) -> Compiled:
        if is_compiled(self._source):
            compiled = ponnx.load(self._source)
            self._model = compiled.provenance
            return compiled
        from .compiler import compile

        options, gpu = self._options, self._provider in ("gpu", "webgpu", "browser")
        compiled = compile(
            self._source, shapes=shapes, optimise=options.enable_optimisation, gpu=gpu,
            sizes={**options.free_dimension_overrides, **sizes}, initializers=plain(options.initializers), external=options.external,
        )  # fmt: skip
        self._model = compiled.provenance
        return compiled

    def _executor(self, compiled: Compiled) -> Runtime:
        if compiled.on_core and self._provider in ("gpu", "webgpu"):
            self._provider, self.fallback = PROVIDERS[0], compiled.on_core
            warnings.warn(f"running on {self._provider}: {compiled.on_core}", RuntimeWarning, stacklevel=3)
        options = self._options
        threads = options.intra_op_num_threads
        if self._provider == "wasm":
            from .runtimes import pyodide

            return _seeded(pyodide.Executor(compiled.main, compiled.init, compiled.weights, threads, options.limits))
        if self._provider == "webgpu":
            from .runtimes import pyodide_gpu

            return pyodide_gpu.GpuExecutor(compiled, chance.fresh(), options.limits)
        if self._provider == "wasmtime":
            from .runtimes import wasmtime

            return _seeded(wasmtime.Executor(compiled.main, compiled.init, compiled.weights, self._settings, options.limits))
        threads = threads or os.cpu_count() or 1
        if self._provider == "gpu":
            from .runtimes import wgpu

            try:
                if compiled.gpu is None:
                    raise ponnx.FileError("this compiled model has no part for GPUs: compile it again, with --gpu")
                weights = load_weights(compiled.gpu.init, compiled.weights, threads, limits=options.limits)
                return _seeded(wgpu.GpuExecutor(compiled.gpu, weights, compiled.weights, threads, options.limits))
            except (wgpu.GpuError, ponnx.FileError) as error:
                if not self._spare:
                    raise
                self._provider, self.fallback = "cpu", str(error)
                warnings.warn(f"running on cpu: {error}", RuntimeWarning, stacklevel=3)
        return _seeded(Executor(compiled.main, compiled.init, compiled.weights, threads, limits=options.limits))

    def get_inputs(self) -> list[NodeArg]:
        return [_arg(f) for f in self._faces[0]]

    def get_outputs(self) -> list[NodeArg]:
        return [_arg(f) for f in self._faces[1]]

    def signature(self) -> tuple[list[Signature], list[Signature]]:
        """Inputs and outputs with their dtypes; of sequences and optionals, the tensors that they are made of."""
        return self._inputs, self._outputs

    @property
    def unranked(self) -> tuple[str, ...]:
        """Inputs that the model declares no rank of: each run is compiled for the ranks that it is given."""
        return self._unranked

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that the model lists as inputs; ``SessionOptions.add_initializer`` puts others in their place."""
        if is_compiled(self._source):
            return []
        return [_arg(face_of(i)) for i in files.read(self._source, **self._options.reading).graph.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        given = self._model or {}
        about = given.get("model", {})
        producer = str(given.get("producer", "")).rpartition(" ")[0] or str(given.get("producer", ""))
        return ModelMetadata(
            producer, about.get("graph", ""), about.get("domain", ""), about.get("description", ""), "", about.get("version", 0),
            dict(about.get("metadata", {})),
        )  # fmt: skip

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_providers(self) -> list[str]:
        """The backends in use, first the one that runs, by the names by which they were asked for."""
        asked = next((n for n in names_of(self._asked) if ALIASES.get(n, n) == self._provider), self._provider)
        return [asked]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        return {self.get_providers()[0]: dict(self._settings)}

    def set_providers(
        self, providers: Sequence[str | tuple[str, Any]] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Opens the model again on other backends."""
        self.__init__(self._source, self._options, providers, provider_options, enable_fallback=self._enabled)  # type: ignore[misc]

    def enable_fallback(self) -> None:
        self._enabled = True

    def disable_fallback(self) -> None:
        """From the next ``set_providers`` on a backend that cannot run the model is an error."""
        self._enabled = False

    def io_binding(self) -> IOBinding:
        """Inputs and outputs bound for many runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        iobinding.run(run_options)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: RunOptions | None = None
    ) -> list[OrtValue]:
        """As :meth:`run`, on values; what a later run takes as it is given here stays with the session (``runtimes/STATE.md``)."""
        names = list(output_names or self._names[1])
        return values_of(names, self.run_values(names, input_dict_ort_values, names, run_options), self._outputs)

    async def run_with_ort_values_async(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[OrtValue]:
        """As :meth:`run_with_ort_values`, without blocking the event loop. In Pyodide a cache stays on the GPU here, too."""
        names = list(output_names or self._names[1])
        if self._provider == "webgpu":
            return values_of(names, await self._values_async(names, input_dict_ort_values, names), self._outputs)
        found = await self.run_async(names, input_dict_ort_values, run_options)
        return values_of(names, dict(zip(names, found, strict=True)), self._outputs)

    def get_profiling_start_time_ns(self) -> int:
        return self._began

    def end_profiling(self) -> str:
        """Writes what was measured since the session began, with ``enable_profiling``, and gives the file's path."""
        if not self._options.enable_profiling:
            raise RuntimeError("the session does not measure: set SessionOptions.enable_profiling before it is created")
        path = f"{self._options.profile_file_prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        Profile([step for trace in self._traces for step in trace], "").save(path)
        return path

    @property
    def providers(self) -> list[str]:
        """The backends in use, first the one that runs."""
        return [self._provider]

    def kernels_on_core(self) -> tuple[str, ...]:
        """The kernels that the core runs beside a GPU, or in its place; none where everything runs on the GPU, or on another backend."""
        found: set[str] = set()
        for executor in self._variants.values():
            found.update(getattr(executor, "kernels_on_core", ()))
            if self.fallback and isinstance(executor, Executor):
                found.update(row.name for row in executor.core.view.kernels)
        return tuple(sorted(found))

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """Runs the model.

        Args:
            output_names: outputs wanted, in that order; None or none: all.
            input_feed: an array, or an ``OrtValue`` or ``SparseTensor``, per input name; a list of arrays for a sequence, None for an
                optional without a value. Outputs come likewise.
        Raises:
            ValueError: a name, dtype, rank or size does not fit; the text names the input and what it takes.
        """
        by_name = self.run_values(output_names, input_feed, (), run_options)
        return [by_name[n] for n in output_names or self._names[1]]

    def run_values(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        keep: Collection[str],
        run_options: Any = None,
        away: Collection[str] = (),
    ) -> dict[str, Any]:
        """As :meth:`run`; outputs by name, of which those in ``keep`` may come as ``Held``, in the session's own memory.

        Args:
            away: outputs that are to stay on the GPU although no run goes on from them.
        """
        if run_options is None and not away and (alike := self._onward.again(self._lock, output_names, input_feed)) is not None:
            return alike
        if self._options.enable_profiling:
            self._traces.append(self._profiled(plain(input_feed)))
        asked = list(output_names or self._names[1]), list(keep)
        with self._lock:
            if not away and (found := self._onward.run(self, asked, input_feed, run_options)) is not None:
                return found
        arrays, wanted = self._request(output_names, input_feed)
        with self._lock:
            executor = self._variant(arrays)
            with (run_options or RunOptions()).ending(getattr(executor, "cancel", None)):
                stays = self._plain_outputs.intersection(keep), self._plain_outputs.intersection(away)
                outputs = execute(executor, arrays, self._inputs, self._outputs, self._tensors_of(wanted), *stays)
            by_name = self._by_name(outputs)
            self._onward.remember(self, executor, asked, input_feed, by_name)
        return {n: by_name[n] for n in wanted}

    def chain(self, presents: Mapping[str, OrtValue]) -> Chain | None:
        """Runs that go on from the last one, which gave these outputs; None where there are none such."""
        with self._lock:
            return None if self._options.enable_profiling else self._onward.chain(self, self._lock, presents)

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Of inputs and outputs."""
        return self._names

    def runs_plainly(self, executor: Any) -> bool:
        """Whether this is what all runs of the usual axes are executed by, with a tensor for each input and output."""
        return all(self._plain) and self._outputs.as_they_are and not self._symbols and executor is self._variants.get(())

    def places_of(self, names: Collection[str]) -> set[int]:
        """Which outputs these are."""
        return self._outputs.places(names)

    def shared_axes(self) -> list[list[tuple[int, int]]]:
        """Axes of the inputs that have one size in these runs, as input and axis."""
        return [] if self._precompiled else shared_axes(self._named)

    def profile(self, input_feed: Mapping[str, Any], runs: int | None = None) -> Profile:
        """Runs the model step by step and says what each step, and each copy between the core and a GPU, took.

        Args:
            runs: how many are measured, after one that warms up; by default five to a hundred, about a quarter of a second.
        Raises:
            ValueError: an input does not fit, as for :meth:`run`; ``runs`` is below 1.
            NotImplementedError: this backend does not measure steps.
        """
        enough = Enough(runs)
        first = self._profiled(input_feed)
        measured = []
        enough.begin = time.perf_counter()
        while enough.again():
            measured.append(self._profiled(input_feed).steps)
        return Profile(combined(measured), first.model, len(measured), first.ms)

    def _profiled(self, input_feed: Mapping[str, Any]) -> Profile:
        """One run, step by step."""
        arrays, _ = self._request(None, input_feed)
        with self._lock:
            executor = self._variant(arrays)
            if not hasattr(executor, "profile"):
                raise NotImplementedError(f"the backend {self._provider} does not measure steps; cpu and gpu do")
            shapes, feeds = fed(arrays, self._inputs)
            made = Outputs(self._outputs)
            outputs = made.bound(executor.bind(shapes, feeds))
            source = self._source if isinstance(self._source, (str, os.PathLike)) else ""
            steps = executor.profile(feeds, outputs, made.empty)
            return Profile(steps, os.path.basename(os.fspath(source)))

    def _request(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
        """The inputs, checked and in order, and the names of the outputs wanted."""
        input_feed = plain(input_feed, True, self._inputs)
        inputs, names = self._names
        missing = [n for n in inputs if n not in input_feed]
        if missing:
            raise ValueError(f"input {missing[0]!r} is missing; the model takes {', '.join(map(repr, inputs))}")
        unknown = set(input_feed) - set(inputs)
        if unknown:
            raise ValueError(f"no input is named {sorted(unknown)[0]!r}; the model takes {', '.join(map(repr, inputs))}")
        feed = input_feed if self._plain[0] else interface.to_tensors(self._faces[0], input_feed)
        arrays = [self.checked(s, feed) for s in self._inputs]
        wanted, known = list(output_names or names), set(names)
        for name in wanted:
            if name not in known:
                raise ValueError(f"no output is named {name!r}; the model gives {', '.join(map(repr, names))}")
        return arrays, wanted

    async def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """Like :meth:`run`, without blocking the event loop; in Pyodide, whose only thread it is, after what is due in the loop."""
        if self._provider == "webgpu":
            found = await self._values_async(output_names, input_feed)
            return [found[n] for n in output_names or found]
        import asyncio

        if WASM:
            await asyncio.sleep(0)
            return self.run(output_names, input_feed, run_options)
        return await asyncio.get_running_loop().run_in_executor(None, self.run, output_names, input_feed, run_options)

    async def _values_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], keep: Collection[str] = ()
    ) -> dict[str, Any]:
        """As :meth:`run_values`, where Python waits for the GPU of its page."""
        arrays, wanted = self._request(output_names, input_feed)
        kept = self._plain_outputs.intersection(keep)
        tensors = self._tensors_of(wanted)
        outputs = await execute_async(self._variant(arrays), arrays, self._inputs, self._outputs, tensors, kept)
        by_name = self._by_name(outputs)
        return {n: by_name[n] for n in wanted}

    def _tensors_of(self, names: Collection[str]) -> set[str]:
        """What outputs are made of; of those that are made of several, all, since they are put together."""
        asked = set(names)
        if self._plain[1]:
            return asked
        return {tensor[0] for face in self._faces[1] if face.name in asked or not face.plain for tensor in face.tensors()}

    def _by_name(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """What the model gives, of the tensors of its outputs."""
        if self._plain[1]:
            return dict(zip(self._names[1], outputs, strict=True))
        return interface.to_values(self._faces[1], outputs)

    def _variant(self, arrays: Sequence[np.ndarray]) -> Runtime:
        """The executor for these inputs: one for all, unless ranks are not declared or hang on sizes, or axes of one name differ."""
        shapes = {} if self._precompiled or self._alike(arrays) else shapes_of(self._faces[0], self._inputs, self._unranked, arrays)
        sizes = sizes_of(self._inputs, self._symbols, arrays, shapes)
        key = (*shapes.items(), *sizes.items())
        if key not in self._variants:
            while len(self._variants) >= VARIANTS:
                del self._variants[next(iter(self._variants))]
            try:
                compiled = self._compile(shapes, sizes)
            except NeedsSizes as need:
                if not set(need.symbols) - set(self._symbols):
                    raise
                self._symbols += need.symbols
                return self._variant(arrays)
            self._outputs = Slots(replace(s, dtype=c.dtype) for s, c in zip(self._outputs, compiled.outputs, strict=True))
            self._variants[key] = self._executor(compiled)
            del compiled
            _forget()
        return self._variants[key]

    def _alike(self, arrays: Sequence[Any]) -> bool:
        """Whether all ranks are declared, and axes of one name have one size."""
        sizes: dict[str, int] = {}
        plain_ones = self._plain[0] and not self._unranked
        return plain_ones and all(sizes.setdefault(name, n := arrays[i].shape[axis]) == n for i, axis, name in self._named)

    def checked(self, s: Signature, feed: Mapping[str, Any]) -> Any:
        """What is fed to an input: an array that fits, or what is held."""
        given = feed[s.name]
        if isinstance(given, Held) and s.name in self._rooms and self._rooms[s.name]() is given.room:
            return given
        held = isinstance(given, Held) and given.dtype is s.dtype
        array = given if held else interface.typed(given, s.dtype, f"input {s.name!r}")
        if s.name in self._unranked:
            return array
        if array.ndim != len(s.shape):
            raise ValueError(f"input {s.name!r} takes rank {len(s.shape)} {list(s.shape)}, got shape {list(array.shape)}")
        for axis, (have, want) in enumerate(zip(array.shape, s.shape, strict=True)):
            if have != want and isinstance(want, int):
                raise ValueError(f"input {s.name!r}: axis {axis} must be {want}, got shape {list(array.shape)}, takes {list(s.shape)}")
        if held and s.shape and not isinstance(s.shape[given.room.axis], int):  # with any number of rows
            self._rooms[s.name] = weakref.ref(given.room)
        return array

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self._source, "options": self._options, "provider": (self._provider, self._settings)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["source"], state["options"], [state["provider"]])  # type: ignore[misc]


def is_compiled(source: str | os.PathLike[str] | bytes) -> bool:
    """True for a ``.ponnx`` file or bytes: a JSON header behind an 8-byte length."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        head = bytes(source[:10])
    else:
        with open(source, "rb") as f:
            head = f.read(10)
    return len(head) == 10 and head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 40


def _seeded(executor: Any) -> Runtime:
    executor.seed(chance.fresh())
    made: Runtime = executor
    return made


def _forget() -> None:
    """In Pyodide the weights are in the core by now: the graph's cycles would keep the file's bytes in memory that never shrinks."""
    if WASM:
        gc.collect()


def _arg(face: Face) -> NodeArg:
    return NodeArg(face.name, list(face.shape or ()), interface.type_of(face))
