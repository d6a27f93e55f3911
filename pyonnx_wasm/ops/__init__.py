"""Operators, one file per family, found by presence."""

from __future__ import annotations

import importlib
import pkgutil


def load_all() -> None:
    """Imports every family, which registers its operators and kernels."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
