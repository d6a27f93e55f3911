"""``Compare``: one model on several backends, live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from .profile import feed_tensors
from .rpc import Reply, Request
from .widget import BACKENDS, KERNEL, Model, ModelWidget


class Compare(ModelWidget):
    """Runs a model on several backends with the same inputs and shows how far their outputs are apart.

    Args:
        model: path or bytes of a model, a compiled model, or a session.
        backends: ``cpu`` runs in the kernel, ``wasm`` and ``webgpu`` in the browser; the first is the reference. Those that do not run
            here are named, with the reason.
        feeds: inputs; by default random ones of ``seed`` and ``dims``, which can be changed in the widget.
        tolerance: greatest error accepted, as a share of the greatest value of the output.
    Attributes:
        value: of the latest run, a dict per output and backend: ``max_abs``, ``max_rel``, ``max_ulp`` (float32), ``scale`` (greatest
            value), ``unlike`` (NaN or infinity on one side only) and ``passed``.
    Raises:
        ValueError: fewer than two backends, unknown ones, or feeds for other inputs.
    """

    value: traitlets.List[Any] = traitlets.List(read_only=True)

    def __init__(
        self,
        model: Model,
        *,
        backends: Sequence[str] = (KERNEL, "wasm", "webgpu"),
        feeds: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        seed: int = 0,
        tolerance: float = 1e-5,
        title: str | None = None,
    ) -> None:
        if len(set(backends)) < 2 or set(backends) - {KERNEL, *BACKENDS}:
            raise ValueError(f"backends {list(backends)}: two or more of 'cpu', 'wasm' and 'webgpu'")
        spec = {"dims": dict(dims or {}), "seed": seed, "tolerance": tolerance, "given": feeds is not None}
        super().__init__(model, "compare", spec, tuple(backends), title)
        self._feeds = feed_tensors(self, feeds)
        self._rpc.handle("feeds", lambda request: Reply(None, self._feeds))
        self._rpc.handle("value", self._take)

    def _take(self, request: Request) -> None:
        self.set_trait("value", [dict(f) for f in request.json])


__all__ = ["Compare"]
