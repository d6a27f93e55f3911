"""Jupyter: the bridge from a kernel to the user's browser, and widgets. Needs the extra ``pyonnx-wasm[jupyter]``.

It imports ``session`` and what lies below, and is imported where the user asks for it: the provider ``browser`` is registered in
``elsewhere``. A widget is added as a subclass of ``kept.KeptWidget`` or ``widget.ModelWidget`` and a folder of its name in ``js/widget``;
``WIRE.md`` says how the two sides speak.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chat import Chat as Chat
    from .compare import Compare as Compare
    from .panels import Audio as Audio
    from .panels import Boxes as Boxes
    from .panels import HeatMap as HeatMap
    from .panels import Image as Image
    from .panels import Picture as Picture
    from .panels import Slider as Slider
    from .panels import Sound as Sound
    from .panels import Table as Table
    from .panels import Tensor as Tensor
    from .panels import Text as Text
    from .panels import TopK as TopK
    from .playground import Playground as Playground
    from .preprocess import Preprocess as Preprocess
    from .profile import Profile as Profile
    from .view import View as View

# Loaded when first used: widgets need anywidget, the bridge's wire does not.
_HOMES = {
    **dict.fromkeys(("Audio", "Boxes", "HeatMap", "Image", "Picture", "Slider", "Sound", "Table", "Tensor", "Text", "TopK"), "panels"),
    "Chat": "chat",
    "Compare": "compare",
    "Playground": "playground",
    "Preprocess": "preprocess",
    "Profile": "profile",
    "View": "view",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
