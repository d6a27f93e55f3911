"""``View``: a model as a graph, in a cell."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from ..lab.worker import answer
from ..session import InferenceSession
from .kept import KeptWidget
from .rpc import Reply, Request

Source = str | os.PathLike[str] | bytes | InferenceSession
METHODS = ("graph", "shapes", "weight", "plane", "npy", "digests", "operator", "run")


class View(KeptWidget):
    """Shows the graph of a model: groups, shapes, weights, documentation of operators, runs; of two models, what differs.

    Nothing is compiled until it is run; a model of any size is shown from its file.

    Args:
        model: path or address (``https://...``) of an ``.onnx`` or ``.ponnx`` file, its bytes, or a session. What is no path is kept in
            a temporary file as long as the widget lives.
        against: a second model, shown beside the first.
        height: of the widget, in pixels.
        boxes: groups are opened at first as long as there are no more boxes than this.
        still: keep a picture of the graph in the notebook, for whoever opens it without a kernel.
    Raises:
        OSError: there is no such file, or the address gives none.
    """

    def __init__(self, model: Source, against: Source | None = None, *, height: int = 560, boxes: int = 240, still: bool = True) -> None:
        self._folder: str | None = None
        sources = [model] if against is None else [model, against]
        self._paths = [self._located(source, k) for k, source in enumerate(sources)]
        names = [Path(path).name for path in self._paths]
        super().__init__("view", {"models": names, "title": " · ".join(names), "height": height, "boxes": boxes, "still": still})
        self._rpc.handle("ask", self._ask)

    def _located(self, source: Source, index: int) -> str:
        """The path of a file with the model."""
        if isinstance(source, InferenceSession):
            given = source._source
            if not isinstance(given, (str, os.PathLike, bytes)):
                raise TypeError("this session was made of a compiled model: save it, then show the file")
            source = given
        if isinstance(source, (str, os.PathLike)) and not str(source).startswith(("http://", "https://")):
            path = os.path.abspath(os.fspath(source))
            if not os.path.isfile(path):
                raise FileNotFoundError(f"there is no file {os.fspath(source)}")
            return path
        self._folder = self._folder or tempfile.mkdtemp(prefix="pyonnx-wasm-")
        name = Path(urllib.request.url2pathname(str(source).partition("?")[0])).name if not isinstance(source, bytes) else "model.onnx"
        path = os.path.join(self._folder, f"{index}", name or "model.onnx")
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as out:
            if isinstance(source, bytes):
                out.write(source)
            else:
                _fetch(str(source), out)
        return path

    def _ask(self, request: Request) -> Reply:
        method, which, given = (request.json[key] for key in ("method", "which", "given"))
        if method not in METHODS:
            raise LookupError(f"the viewer has no method {method!r}")
        arguments = {**given} if method == "operator" else {**given, "path": self._paths[which]}
        if method == "run":
            beside = os.path.dirname(self._paths[which])
            files = {name: v for name, v in arguments["inputs"].items() if "file" in v}
            arguments["inputs"] = {**arguments["inputs"], **{n: {"file": os.path.join(beside, v["file"])} for n, v in files.items()}}
            arguments["threads"] = 1 if sys.platform == "emscripten" else os.cpu_count() or 1
        return Reply(answer(method, arguments))

    def close(self) -> None:
        super().close()
        if getattr(self, "_folder", None):
            shutil.rmtree(self._folder, ignore_errors=True)  # type: ignore[arg-type]

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        return f"View of {self.spec.get('title', 'a model')}"


def _fetch(address: str, out: Any) -> None:
    if sys.platform != "emscripten":
        with urllib.request.urlopen(address) as answer:
            shutil.copyfileobj(answer, out)
        return
    from js import XMLHttpRequest  # type: ignore[attr-defined]

    # Pyodide's worker may wait for a request.
    request = XMLHttpRequest.new()
    request.open("GET", address, False)
    request.responseType = "arraybuffer"
    request.send()
    if request.status != 200:
        raise OSError(f"{address}: {request.status} {request.statusText}")
    out.write(request.response.to_bytes())


__all__ = ["View"]
