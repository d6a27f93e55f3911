"""``Playground``: a model to try out in the notebook, running in the browser."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from .page import pieces
from .panels import Choices, Panel, choose
from .preprocess import Preprocess
from .rpc import Reply, Request
from .wait import wait_async
from .widget import BACKENDS, KERNEL, Model, ModelWidget


class Playground(ModelWidget):
    """Tries a model out: inputs and outputs to play with, made from its signature. Runs in the browser.

    What the user gives (a photo, a camera's frame, a drawing, text) stays in the browser, results too: they travel to Python by ``sync``,
    ``await w.result()`` or the button, feeds where ``cpu`` among the backends runs the model, and with ``still=True`` a picture of the
    widget, with whatever it shows, goes into the notebook and is saved with it.

    ``Playground("digits.onnx", preprocess=Preprocess(resize=(8, 8), color="L"), labels="0123456789")``

    Args:
        model: path or bytes of an ``.onnx`` or ``.ponnx`` file, a compiled model, or a session.
        inputs: panels by input name; others are chosen: pictures for rank 4 with 1 or 3 channels, tables for [rows, few], sliders for one
            number, else tensors.
        outputs: a panel, or several, by output name.
        preprocess: for pictures. labels: of classes. tokenizer: makes token ids an input of text. examples: pictures to choose from.
        dims: sizes of open dims to begin with.
        backends: where to run, in order of preference: ``webgpu`` and ``wasm`` in the browser, ``cpu`` in the kernel.
        sync: see below.
        still: keep a picture of the widget in the notebook, for whoever opens it without a kernel.
        title: shown above; by default the file's name.
    Attributes:
        value: the results by output name, as numpy arrays; those of the latest run if ``sync``, else of the latest that was asked for, by
            ``await w.result()`` or the button. ``w.observe(fn, names="value")`` tells of changes.
        sync: give every result to Python as it comes.
    Raises:
        ValueError: a panel does not suit the model; the text says which and why.
    """

    value = traitlets.Dict(read_only=True)
    sync = traitlets.Bool().tag(sync=True)

    def __init__(
        self,
        model: Model,
        *,
        inputs: Mapping[str, Panel] | None = None,
        outputs: Mapping[str, Panel | Sequence[Panel]] | None = None,
        preprocess: Preprocess | None = None,
        labels: Sequence[str] = (),
        tokenizer: Any = None,
        examples: Mapping[str, Any] | Sequence[Any] = (),
        dims: Mapping[str, int] | None = None,
        backends: Sequence[str] = BACKENDS,
        sync: bool = False,
        still: bool = False,
        title: str | None = None,
    ) -> None:
        unknown = set(backends) - {*BACKENDS, KERNEL}
        if unknown or not backends:
            raise ValueError(f"backends {list(backends)}: choose from 'webgpu', 'wasm' and 'cpu'")
        self._choices = Choices(inputs or {}, outputs or {}, preprocess, [str(v) for v in labels], tokenizer, examples)
        super().__init__(model, "playground", {"dims": dict(dims or {})}, tuple(backends), title, still)
        panels, shows = choose(*self._signature(), self._choices, self._keep)
        self.set_trait("spec", {**self.spec, "panels": panels, "shows": shows})
        self.sync = sync
        self._rpc.handle("value", self._take)

    def _take(self, request: Request) -> None:
        self._set(request)

    def _set(self, reply: Reply) -> dict[str, np.ndarray]:
        results = {t.name: t.numpy() for t in reply.tensors}
        self.set_trait("value", results)
        return results

    def save_html(self, path: str | os.PathLike[str], *, title: str | None = None, text: str = "") -> Path:
        """Writes the playground as one page, with the model in it, for anyone to open: from a disk, a mail or any web server.

        The page needs no Python, no server and no network; what its user gives stays in it. It runs in browsers of 2023 and newer.

        Args:
            path: of the page, ``.html``.
            title: its heading; by default the playground's title.
            text: shown below the heading; line breaks are kept.
        Returns:
            the path.
        Raises:
            ValueError: the playground runs in the kernel only, or the model is too large for a page (1 GiB).
        """
        backends = [b for b in self.spec["backends"] if b != KERNEL]
        if not backends:
            raise ValueError("a page of its own has no kernel: give the playground 'webgpu' or 'wasm' among its backends")
        spec = {**self.spec, "backends": backends}
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            for piece in pieces(spec, self._blob, self._files, title or self.spec["title"], text):
                out.write(piece)
        return Path(path)

    async def result(self) -> dict[str, np.ndarray]:
        """The results of what the page shows now; ``value`` holds them too.

        Raises:
            NoBrowser: no page answers. RemoteError: the widget is not displayed, or the run fails.
        """
        return self._set(await wait_async(self._rpc.call("current")))


__all__ = ["Playground"]
