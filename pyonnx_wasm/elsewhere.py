"""Providers that run a model in another place than this process, found by name when a session asks for one.

The package fills the table; sessions read it, so that they know of no front end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What gives the class of a provider's sessions, a subclass of ``InferenceSession``.
SESSIONS: dict[str, Callable[[], type[Any]]] = {}
