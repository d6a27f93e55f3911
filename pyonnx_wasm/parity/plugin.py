"""The pytest plugin: a fixture ``parity`` that holds a model's backends against each other, and a marker with its defaults.

.. code-block:: python

    @pytest.mark.parity(backends=["cpu", "wasm"], layers=True)
    def test_my_model(parity):
        parity("model.onnx", {"image": image})
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .backends import Backend
    from .run import Report

OPTIONS = ("backends", "against", "layers", "sizes", "ranges", "seed", "rtol", "atol")


class Parity:
    """What the fixture ``parity`` is: a function that compares and fails the test where backends diverge.

    Attributes:
        reports: one per call, in order.
    """

    def __init__(self, request: pytest.FixtureRequest, start: Callable[[str], Backend]) -> None:
        self.reports: list[Report] = []
        self._start, self._node = start, request.node
        folder = request.config.getoption("--parity-html")
        self._folder = Path(folder) if folder else None
        self._defaults: dict[str, Any] = {}
        for marker in reversed(list(request.node.iter_markers("parity"))):
            self._defaults |= marker.kwargs

    def __call__(self, model: Any, inputs: Mapping[str, Any] | None = None, **options: Any) -> Report:
        """Compares.

        Args:
            model: path or bytes of an ``.onnx`` or ``.ponnx`` file, or an ``onnx.ModelProto``.
            inputs: contents by name; inputs that are not given are made up, the same each time.
            options: those of the marker and of :func:`pyonnx_wasm.parity.run`: ``backends``, ``against``, ``layers``, ``sizes``,
                ``ranges``, ``seed``, ``rtol``, ``atol``.
        """
        from .run import run

        report = run(model, inputs, **{**self._defaults, **options}, start=self._start)
        self.reports.append(report)
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]+", "_", f"{self._node.nodeid}-{len(self.reports)}")
            (self._folder / f"{name}.html").write_text(report.html(), encoding="utf-8")
        if not report.agrees:
            pytest.fail(report.table(), pytrace=False)
        return report


@pytest.fixture(scope="session")
def _parity_backends() -> Iterator[Callable[[str], Any]]:
    """Starts backends when they are first needed and keeps them until the end."""
    from .backends import start

    with ExitStack() as stack:
        running: dict[str, Backend] = {}

        def started(name: str) -> Backend:
            if name not in running:
                running[name] = stack.enter_context(start(name))
            return running[name]

        yield started


@pytest.fixture
def parity(request: pytest.FixtureRequest, _parity_backends: Callable[[str], Any]) -> Parity:
    """Runs a model on several backends and fails where they diverge: ``parity(model, inputs, backends=["cpu", "wasm"])``."""
    return Parity(request, _parity_backends)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parity", "models on several backends")
    group.addoption("--parity-html", metavar="DIR", help="write each comparison as a page with plots into this folder")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"parity({', '.join(f'{name}=...' for name in OPTIONS)}): what the fixture `parity` compares, see pyonnx_wasm.parity.run"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("parity"):
            unknown = sorted(set(marker.kwargs) - set(OPTIONS))
            if marker.args or unknown:
                what = f"no option {unknown[0]!r}" if unknown else "no positional arguments"
                raise pytest.UsageError(f"{item.nodeid}: the marker parity takes {what}, only {', '.join(OPTIONS)}")
