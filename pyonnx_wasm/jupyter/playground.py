"""``Playground``: a model to try out in the notebook, running in the browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from ..dtypes import DType, to_numpy
from ..session import InferenceSession
from .detect import completed
from .hints import look
from .page import pieces
from .panels import Choices, Panel, choose
from .preprocess import Preprocess
from .rpc import Reply, Request
from .wait import wait_async
from .widget import BACKENDS, KERNEL, Model, ModelWidget
from .wire import Tensor


def _packed(arrays: Mapping[str, np.ndarray], widget: Playground) -> dict[str, Any]:
    """Arrays as the page takes them; see ``js/widget/playground/linked.ts``."""
    dtypes = {s.name: s.dtype for s in widget._signature()[0]}
    tensors = [Tensor.of(array, name, dtypes.get(name)) for name, array in arrays.items()]
    return {t.name: {"type": t.dtype.name, "dims": list(t.dims), "data": t.data} for t in tensors}


def _unpacked(given: Mapping[str, Any], widget: Playground) -> dict[str, np.ndarray]:
    return {name: Tensor(name, DType[t["type"]], tuple(t["dims"]), memoryview(t["data"])).numpy() for name, t in given.items()}


class Playground(ModelWidget):
    """Tries a model out: inputs and outputs to play with, made from its signature. Runs in the browser.

    What the user gives (a photo, a camera's frame, a drawing, text) stays in the browser, results too: they travel to Python by ``sync``,
    ``await w.result()`` or the button, feeds where ``cpu`` among the backends runs the model, and with ``still=True`` a picture of the
    widget, with whatever it shows, goes into the notebook and is saved with it.

    ``Playground("digits.onnx", preprocess=Preprocess(resize=(8, 8), color="L"), labels="0123456789")``

    Args:
        model: path or bytes of an ``.onnx`` or ``.ponnx`` file, a compiled model, or a session.
        inputs: panels by input name, or a pandas data frame for a table; others are chosen: pictures for rank 4 with 1 or 3 channels,
            tables for [rows, few], sliders for one number, else tensors.
        outputs: a panel, or several, by output name.
        preprocess: for pictures. labels: of classes. tokenizer: makes token ids an input of text. examples: pictures or texts to choose
            from. What is not given is looked for in the model's metadata and beside its file, in ``config.json``,
            ``preprocessor_config.json``, ``tokenizer.json``, ``labels.txt``; the widget says what was found.
        before: ``before(feeds)`` changes the inputs in Python ahead of each run. after: ``after(results)`` changes the results, a dict of
            arrays, or gives a text to show. Both run in the kernel.
        dims: sizes of open dims to begin with.
        backends: where to run, in order of preference: ``webgpu`` and ``wasm`` in the browser, ``cpu`` in the kernel.
        sync: see below.
        still: keep a picture of the widget in the notebook, for whoever opens it without a kernel.
        title: shown above; by default the file's name.
    Attributes:
        inputs: arrays by input name, to be shown and run in place of what the widget's panels give, until its user changes those;
            ``{}`` gives the panels back. ``jslink((a, "value"), (b, "inputs"))`` hands results on in the browser where ``a`` has
            ``sync``; a single result goes to the single input of ``b``, several by name.
        value: the results by output name, as numpy arrays; those of the latest run if ``sync``, else of the latest that was asked for, by
            ``await w.result()`` or the button. ``w.observe(fn, names="value")`` tells of changes.
        sync: give every result to Python as it comes.
    Raises:
        ValueError: a panel does not suit the model; the text says which and why.
    """

    value = traitlets.Dict(read_only=True).tag(sync=True, to_json=lambda value, widget: {}, from_json=_unpacked)
    inputs = traitlets.Dict().tag(sync=True, to_json=_packed, from_json=_unpacked)
    sync = traitlets.Bool().tag(sync=True)

    def __init__(
        self,
        model: Model,
        *,
        inputs: Mapping[str, Panel | Any] | None = None,
        outputs: Mapping[str, Panel | Sequence[Panel]] | None = None,
        preprocess: Preprocess | None = None,
        labels: Sequence[str] = (),
        tokenizer: Any = None,
        examples: Mapping[str, Any] | Sequence[Any] = (),
        before: Callable[[dict[str, np.ndarray]], Mapping[str, Any] | None] | None = None,
        after: Callable[[dict[str, np.ndarray]], Mapping[str, Any] | str | None] | None = None,
        dims: Mapping[str, int] | None = None,
        backends: Sequence[str] = BACKENDS,
        sync: bool = False,
        still: bool = False,
        title: str | None = None,
    ) -> None:
        unknown = set(backends) - {*BACKENDS, KERNEL}
        if unknown or not backends:
            raise ValueError(f"backends {list(backends)}: choose from 'webgpu', 'wasm' and 'cpu'")
        given = Choices(inputs or {}, outputs or {}, preprocess, [str(v) for v in labels], tokenizer, examples)
        functions = {"before": before is not None, "after": after is not None}
        super().__init__(model, "playground", {"dims": dict(dims or {}), **functions}, tuple(backends), title, still)
        source = model._source if isinstance(model, InferenceSession) else model
        path = Path(source) if isinstance(source, (str, os.PathLike)) else None
        metadata = self._compiled.provenance.get("model", {}).get("metadata", {})
        self._choices, found = completed(given, look(path, metadata), *self._signature())
        panels, shows = choose(*self._signature(), self._choices, self._keep)
        self.set_trait("spec", {**self.spec, "panels": panels, "shows": shows, "found": found})
        self.sync = sync
        self._functions = {"before": before, "after": after}
        for name in ("before", "after"):
            self._rpc.handle(name, self._changed)
        self._rpc.handle("value", self._take)

    @traitlets.validate("inputs")
    def _arrays(self, proposal: Any) -> dict[str, np.ndarray]:
        known = {s.name: s for s in self._signature()[0]}
        given = {name: np.asarray(array) for name, array in proposal["value"].items()}
        # A link goes both ways: what it hands over keeps its names, and the page fits them.
        if set(given) - set(known) and not (len(given) == len(known) == 1):
            raise ValueError(f"inputs are for {sorted(given)}; the model takes {', '.join(known)}")
        fitted = {}
        for name, array in given.items():
            s = known.get(name) or next(iter(known.values()))
            dtype = to_numpy(s.dtype) if s.dtype is not DType.string else np.dtype(object)
            wrong = len(array.shape) != len(s.shape) or any(
                isinstance(want, int) and want != have for want, have in zip(s.shape, array.shape, strict=True)
            )
            if wrong:
                raise ValueError(f"input {s.name!r} takes {list(s.shape)}, not {list(array.shape)}")
            fitted[name] = array.astype(dtype, copy=False)
        return fitted

    def _compare(self, a: Any, b: Any) -> bool:
        """Whether two values of a trait are one: arrays have no truth of their own."""
        if isinstance(a, dict) and isinstance(b, dict) and any(isinstance(v, np.ndarray) for v in (*a.values(), *b.values())):
            return a.keys() == b.keys() and all(np.array_equal(np.asarray(a[k]), np.asarray(b[k])) for k in a)
        return bool(super()._compare(a, b))

    def _should_send_property(self, key: str, value: Any) -> bool:
        # Results come from the page; it has them.
        return key != "value" and bool(super()._should_send_property(key, value))

    def _changed(self, request: Request) -> Reply:
        """Inputs or results as the user's function changes them."""
        dtypes = {s.name: s.dtype for s in self._signature()[0 if request.op == "before" else 1]}
        function = self._functions[request.op]
        if function is None:
            raise LookupError(f"the playground has no function {request.op!r}")
        arrays = {t.name: t.numpy() for t in request.tensors}
        changed = function(arrays)
        if isinstance(changed, str) and request.op == "after":
            return Reply({"text": changed}, request.tensors)
        changed = arrays if changed is None else changed
        if not isinstance(changed, Mapping) or set(changed) - set(dtypes):
            raise TypeError(f"{request.op} gives a dict of arrays by {', '.join(map(repr, dtypes))}, not {type(changed).__name__}")
        return Reply(None, [Tensor.of(np.asarray(a), name, dtypes[name]) for name, a in changed.items()])

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
            ValueError: the playground needs the kernel, for all it runs or for ``before`` or ``after``, or the model is too large for a
                page (1 GiB).
        """
        if any(self._functions.values()):
            raise ValueError("a page of its own has no Python: make a playground without `before` and `after` for it")
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
