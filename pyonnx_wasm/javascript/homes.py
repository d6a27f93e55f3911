"""What the build finds out by running the compiler: which module registers what, and constants of its sources."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

#: Tables of ``registry`` that modules of operators write themselves into.
TABLES = ("OPERATORS", "REFUSED", "ADJOINTS")
#: Functions without parameters that say the same for as long as the sources are the same.
CONSTANT = (("pyonnx_wasm.program.file", "abi"),)


class _Watched(dict[Any, Any]):
    """A table that notes which module was being imported when a key was written."""

    def __init__(self) -> None:
        super().__init__()
        self.homes: dict[Any, list[str]] = {}

    def _note(self, key: Any) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_name != "<module>":
            assert frame.f_back is not None
            frame = frame.f_back
        modules = self.homes.setdefault(key, [])
        name = str(frame.f_globals["__name__"])
        if name not in modules:
            modules.append(name)

    def setdefault(self, key: Any, value: Any = None) -> Any:
        self._note(key)
        return super().setdefault(key, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._note(key)
        super().__setitem__(key, value)

    def update(self, found: Mapping[Any, Any]) -> None:  # type: ignore[override]
        for key, value in found.items():
            self._note(key)
            super().__setitem__(key, value)


def registered() -> dict[str, dict[str, list[Any]]]:
    """Of each table: the keys that each module writes. To be asked before anything else imports operators."""
    from .. import registry

    if registry.OPERATORS:
        raise RuntimeError("operators were imported before this could watch them")
    watched = {name: _Watched() for name in TABLES}
    for name, table in watched.items():
        setattr(registry, name, table)
    from .. import ops

    ops.load_all()
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in TABLES}
    for name, table in watched.items():
        for key, modules in table.homes.items():
            for module in modules:
                found[name].setdefault(module, []).append(list(key) if isinstance(key, tuple) else key)
    return found


def constants() -> dict[tuple[str, str], str]:
    """What the functions of ``CONSTANT`` say, by module and name."""
    return {(module, name): getattr(import_module(module), name)() for module, name in CONSTANT}
