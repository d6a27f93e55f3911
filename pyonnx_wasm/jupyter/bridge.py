"""The bridge: one widget per kernel, through which pages run models. Its display is a small badge with the state of both ends."""

from __future__ import annotations

import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

from ..program import Compiled
from . import feed, operators
from .rpc import STALL_SECONDS, Call, Rpc
from .subshell import outlive, reply_through_stream

SCRIPTS = Path(__file__).resolve().parents[1] / "lib" / "widget"


def script(name: str) -> str:
    """The module of a widget.

    Raises:
        FileNotFoundError: it is not built.
    """
    path = SCRIPTS / f"{name}.js"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not built: run `make build` in a checkout, or install a wheel")
    return path.read_text("utf-8")


@cache
def widget_class() -> Any:
    """The class of the bridge's widget; made when it is first wanted, because anywidget is an optional dependency.

    Raises:
        ImportError: anywidget is not installed.
    """
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError('the bridge to the browser needs anywidget: pip install "pyonnx-wasm[jupyter]"') from error

    class BridgeWidget(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
        _esm = traitlets.Unicode().tag(sync=True)

        def __repr__(self) -> str:
            return "<pyonnx_wasm bridge>"

    return BridgeWidget


class Bridge:
    """This kernel's end.

    Attributes:
        widget: an anywidget; displaying it shows the badge.
        rpc: calls to pages.
    """

    def __init__(self, widget: Any) -> None:
        self.widget = widget
        outlive(getattr(widget, "comm", None))
        reply_through_stream()
        self.rpc = Rpc(widget)
        feed.serve(self.rpc)
        operators.serve(self.rpc)

    @property
    def info(self) -> dict[str, Any] | None:
        """What the page that runs models said of its browser: adapter, limits, features, isolation; None before it said anything."""
        peer = self.rpc.active
        return dict(peer.info) if peer is not None and isinstance(peer.info, dict) else None

    def open(self, compiled: Compiled, backends: list[str], stall: float = STALL_SECONDS) -> RemoteModel:
        """Makes a compiled model known and, if a page is there, lets it load the model ahead of the first run."""
        return RemoteModel(self, compiled, backends, stall)


class RemoteModel:
    """A compiled model that pages can run. The page that has it open closes it when this goes."""

    def __init__(self, bridge: Bridge, compiled: Compiled, backends: list[str], stall: float) -> None:
        self.bridge, self.stall = bridge, stall
        self.blob = feed.model(compiled)
        name = compiled.provenance.get("source") or "model"
        self.ref = {**self.blob.ref, "providers": backends, "name": name}
        bridge.rpc.call("open", self.ref, repeat=True).add_done_callback(_ignore)
        weakref.finalize(self, _close, bridge, self.ref)

    def run(self, feeds: list[Any], wanted: list[str]) -> Call:
        """Starts a run: ``feeds`` are wire tensors with the inputs' names; the reply's tensors are the outputs wanted, in order."""
        return self.bridge.rpc.call("run", {"model": self.ref, "outputs": wanted}, feeds, repeat=True, stall=self.stall)

    def profile(self, feeds: list[Any], runs: int | None) -> Call:
        """Starts the measuring of a model's steps; the reply says ``steps``, and ``first`` and ``times`` in milliseconds: a row per run."""
        return self.bridge.rpc.call("profile", {"model": self.ref, "runs": runs}, feeds, repeat=True, stall=self.stall)


def _ignore(call: Any) -> None:
    """A load that fails ahead of time fails again, and is reported, at the run."""
    if not call.cancelled():
        call.exception()


def _close(bridge: Bridge, ref: dict[str, Any]) -> None:
    if bridge.rpc.active is not None:
        bridge.rpc.call("close", ref).add_done_callback(_ignore)


_bridge: Bridge | None = None


def bridge() -> Bridge:
    """This kernel's bridge.

    Raises:
        RuntimeError: there is no kernel.
        ImportError: anywidget is not installed.
    """
    global _bridge
    if _bridge is None:
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython else None
        if getattr(shell, "kernel", None) is None:
            raise RuntimeError('providers=["browser"] runs the model in the browser that shows the notebook: use it in a Jupyter kernel')
        _bridge = Bridge(widget_class()(_esm=script("bridge")))
    return _bridge
