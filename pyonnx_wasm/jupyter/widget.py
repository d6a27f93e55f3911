"""What the widgets share: a module, calls between its page and this kernel, and a picture that stays in the saved notebook."""

from __future__ import annotations

import os
import secrets
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError('widgets need anywidget: pip install "pyonnx-wasm[jupyter]"') from error

from ..compiler import compile as compile_model
from ..program import Compiled, Signature
from ..program import file as ponnx
from ..session import InferenceSession, is_compiled
from . import feed, operators
from .bridge import script
from .channel import channel
from .rpc import Reply, Request, Rpc
from .subshell import outlive
from .wire import Tensor

BACKENDS = ("webgpu", "wasm")
KERNEL = "cpu"
_LARGEST_STILL = 4 << 20
# While the widget lives, its picture is hidden; once it cannot be found, the line that says so is. The outputs follow one another.
_RULES = """<style>
.jp-OutputArea-child:has(.pwx-rules) { display: none }
.jp-OutputArea-child:has(.pwx-rules) + .jp-OutputArea-child:has(.pwx) + .jp-OutputArea-child { display: none }
.jp-OutputArea-child:has(.pwx-rules) + .jp-OutputArea-child:not(:has(.pwx)):has(+ .jp-OutputArea-child img) { display: none }
</style><span class="pwx-rules"></span>"""
# The picture for dark themes, where style sheets are kept; elsewhere the light one shows, on a card of its own.
_DARK = """<style>
[data-jp-theme-light="false"] :is(:has(> * > .pwx-{id}) + *, :has(> * > .pwx-{id}) + * + *) .jp-RenderedImage img {{
  content: url(data:image/png;base64,{png})
}}
</style><span class="pwx-{id}"></span>"""

Model = str | os.PathLike[str] | bytes | Compiled | InferenceSession


class ModelWidget(anywidget.AnyWidget):
    """A widget around one model. A page opens the model by itself, as the bridge does: once, from its cache if it is there."""

    _esm = traitlets.Unicode().tag(sync=True)
    _channel = traitlets.Unicode().tag(sync=True)
    spec = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(
        self, model: Model, module: str, spec: Mapping[str, Any], backends: tuple[str, ...], title: str | None, still: bool = True
    ) -> None:
        self._compiled = _compiled(model)
        self._session: InferenceSession | None = None
        self._blob = feed.model(self._compiled)
        self._files: dict[str, bytes] = {}
        self._display_id: str | None = None
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
        line = channel()
        super().__init__(_esm=script(module), _channel=line.name if line else "")
        outlive(self.comm)
        self.set_trait("spec", full)
        self._rpc = Rpc(self, line)
        feed.serve(self._rpc)
        operators.serve(self._rpc)
        self._rpc.handle("file", self._file)
        self._rpc.handle("still", self._still)
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

    def _still(self, request: Request) -> None:
        """Puts the picture that the page made into the notebook, if it is to have one."""
        if not self.spec["still"]:
            raise PermissionError("this widget keeps no picture: still=False")
        looks = [bytes(png) for png in request.buffers]
        width = request.json.get("width") if isinstance(request.json, dict) else None
        pngs = all(png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) <= _LARGEST_STILL for png in looks)
        if len(looks) != 2 or not pngs or not isinstance(width, int):
            raise ValueError("a still is two PNGs of at most 4 MB, light and dark, with their width")
        if self._display_id is not None:
            light, dark = (b64encode(png).decode() for png in looks)
            self._publish("", {"image/png": light, "text/plain": repr(self)}, {"image/png": {"width": width}}, update=True)
            self._publish("rules", {"text/html": _RULES + _DARK.format(id=self._display_id, png=dark), "text/plain": ""}, update=True)

    def _publish(self, part: str, data: dict[str, Any], metadata: dict[str, Any] | None = None, update: bool = False) -> None:
        from IPython.display import display

        name = f"{self._display_id}{part}"
        display(data, raw=True, metadata=metadata or {}, display_id=name, update=update)  # type: ignore[no-untyped-call]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._display_id = secrets.token_hex(8)
        self._publish("rules", {"text/html": _RULES, "text/plain": ""})
        bundle = self._repr_mimebundle_()
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        display(data, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
        self._publish("", {"text/plain": repr(self)})

    def close(self) -> None:
        """Ends the widget in all pages; they free the model."""
        if hasattr(self, "_rpc"):
            self._rpc.close()
        super().close()

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
