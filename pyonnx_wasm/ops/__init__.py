"""Operators, one file per family, found by presence; other domains in folders of their own.

A family imports ``ir``, ``registry``, ``tensor`` and other families, and is imported by passes alone, for the kernels that it declares.
"""

from __future__ import annotations

import importlib
import pkgutil


def load_all() -> None:
    """Imports every family, which registers its operators and kernels."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
