"""What the widgets around one model share: the model, for a page to open, and runs of it in the kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..compiler import compile as compile_model
from ..program import Compiled, Signature
from ..program import file as ponnx
from ..session import InferenceSession, is_compiled
from . import feed, operators
from .kept import KeptWidget
from .rpc import Reply, Request
from .wire import Tensor

BACKENDS = ("webgpu", "wasm")
KERNEL = "cpu"
Model = str | os.PathLike[str] | bytes | Compiled | InferenceSession


class ModelWidget(KeptWidget):
    """A widget around one model. A page opens the model by itself, as the bridge does: once, from its cache if it is there."""

    def __init__(
        self, model: Model, module: str, spec: Mapping[str, Any], backends: tuple[str, ...], title: str | None, still: bool = True
    ) -> None:
        self._compiled = _compiled(model)
        self._session: InferenceSession | None = None
        self._blob = feed.model(self._compiled)
        self._files: dict[str, bytes] = {}
        inputs, outputs = self._signature()
        full = {
            "title": title or name_of(model, self._compiled),
            "model": self._blob.ref,
            "inputs": [described(s) for s in inputs],
            "outputs": [described(s) for s in outputs],
            "backends": list(backends),
            "still": still,
            **spec,
        }
        super().__init__(module, full)
        feed.serve(self._rpc)
        operators.serve(self._rpc)
        self._rpc.handle("file", self._file)
        self._rpc.handle("run", self._run)

    def _signature(self) -> tuple[list[Signature], list[Signature]]:
        return list(self._compiled.inputs), list(self._compiled.outputs)

    def _keep(self, name: str, data: bytes) -> str:
        self._files[name] = data
        return name

    def _file(self, request: Request) -> Reply:
        name = request.json.get("name") if isinstance(request.json, dict) else None
        if name not in self._files:
            raise LookupError(f"there is no file {name!r}")
        return Reply.of(None, [self._files[name]])

    def _run(self, request: Request) -> Reply:
        """Runs the model in the kernel."""
        if self._session is None:
            self._session = InferenceSession(b"".join(bytes(p) for p in ponnx.layout(self._compiled).read(0, self._blob.nbytes)))
        names = [s.name for s in self._session.signature()[1]]
        begin = time.perf_counter()
        results = self._session.run(names, {t.name: t.numpy() for t in request.tensors})
        ms = (time.perf_counter() - begin) * 1e3
        dtypes = {s.name: s.dtype for s in self._session.signature()[1]}
        return Reply({"ms": ms}, [Tensor.of(a, n, dtypes[n]) for n, a in zip(names, results, strict=True)])

    def __repr__(self) -> str:
        inputs, outputs = self._signature()
        text = ", ".join(f"{s.name} {s.dtype.name}[{', '.join(map(str, s.shape))}]" for s in inputs)
        return f"{type(self).__name__} of {self.spec.get('title', 'model')}: {text} → {', '.join(s.name for s in outputs)}"


def described(s: Signature) -> dict[str, Any]:
    return {"name": s.name, "type": s.dtype.name, "shape": [d if isinstance(d, int) else str(d) for d in s.shape]}


def name_of(model: Any, compiled: Compiled) -> str:
    source = model._source if isinstance(model, InferenceSession) else model
    if isinstance(source, (str, os.PathLike)):
        return Path(source).name
    return Path(str(compiled.provenance.get("source") or "model")).name


def _compiled(model: Model) -> Compiled:
    """The compiled form.

    Raises:
        NeedsShape: the model can only be compiled once the ranks of its inputs are known.
    """
    if isinstance(model, Compiled):
        return model
    source = model._source if isinstance(model, InferenceSession) else model
    return ponnx.load(source) if is_compiled(source) else compile_model(source, gpu=True)
