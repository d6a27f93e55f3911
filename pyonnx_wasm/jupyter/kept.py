"""What all widgets share: a module, calls between its page and this kernel, and a picture that stays in the saved notebook."""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError('widgets need anywidget: pip install "pyonnx-wasm[jupyter]"') from error

from .bridge import script
from .channel import channel
from .rpc import Request, Rpc
from .subshell import outlive

_LARGEST_STILL = 4 << 20
# While the widget lives, its picture is hidden; once it cannot be found, the line that says so is. The outputs follow one another.
_RULES = """<style>
.jp-OutputArea-child:has(.pwx-rules) { display: none }
.jp-OutputArea-child:has(.pwx-rules) + .jp-OutputArea-child:has(.pwx) + .jp-OutputArea-child { display: none }
.jp-OutputArea-child:has(.pwx-rules) + .jp-OutputArea-child:not(:has(.pwx)):has(+ .jp-OutputArea-child img) { display: none }
</style><span class="pwx-rules"></span>"""
# The picture for dark themes; elsewhere the light one shows, on a card of its own.
_DARK = """<style>
[data-jp-theme-light="false"] :is(:has(> * > .pwx-{id}) + *, :has(> * > .pwx-{id}) + * + *) .jp-RenderedImage img {{
  content: url(data:image/png;base64,{png})
}}
</style><span class="pwx-{id}"></span>"""
# Both are for pages that have scripts: where there are none (Markdown, reStructuredText, LaTeX, GitHub) they must not show as text, as HTML
# would whose style sheets are escaped.
_SCRIPT = """((element) => {{
  if (element) element.innerHTML = {html};
}})(typeof element === "undefined" ? document.currentScript?.parentElement : (element[0] ?? element));"""


class KeptWidget(anywidget.AnyWidget):
    """A widget of one module. Its ``spec`` says in ``still`` whether a notebook keeps a picture of it."""

    _esm = traitlets.Unicode().tag(sync=True)
    _channel = traitlets.Unicode().tag(sync=True)
    spec = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(self, module: str, spec: Mapping[str, Any]) -> None:
        self._display_id: str | None = None
        line = channel()
        super().__init__(_esm=script(module), _channel=line.name if line else "")
        outlive(self.comm)
        self.set_trait("spec", dict(spec))
        self._rpc = Rpc(self, line)
        self._rpc.handle("still", self._still)

    def _still(self, request: Request) -> None:
        """Puts the picture that the page made into the notebook, if it is to have one."""
        if not self.spec["still"]:
            raise PermissionError("this widget keeps no picture: still=False")
        looks = [bytes(png) for png in request.buffers]
        width = request.json.get("width") if isinstance(request.json, dict) else None
        pngs = all(png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) <= _LARGEST_STILL for png in looks)
        if len(looks) != 2 or not pngs or not isinstance(width, int):
            raise ValueError("a still is two PNGs of at most 4 MB, light and dark, with their width")
        if self._display_id is not None:
            light, dark = (b64encode(png).decode() for png in looks)
            self._publish("", {"image/png": light, "text/plain": self._text()}, {"image/png": {"width": width}}, update=True)
            self._publish("rules", rules(self._display_id, dark), update=True)

    def _text(self) -> str:
        """What stands beside the picture, for whoever sees none."""
        return repr(self)

    def _publish(self, part: str, data: dict[str, Any], metadata: dict[str, Any] | None = None, update: bool = False) -> None:
        from IPython.display import display

        name = f"{self._display_id}{part}"
        display(data, raw=True, metadata=metadata or {}, display_id=name, update=update)  # type: ignore[no-untyped-call]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._display_id = secrets.token_hex(8)
        self._publish("rules", rules())
        bundle = self._repr_mimebundle_()
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        display(data, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
        self._publish("", {"text/plain": repr(self)})

    def close(self) -> None:
        """Ends the widget in all pages; they free the model."""
        if hasattr(self, "_rpc"):
            self._rpc.close()
        super().close()


def rules(id: str = "", dark: str = "") -> dict[str, Any]:
    """The output before a kept picture: hides it while the widget lives; dark themes show ``dark`` (a PNG in base64) in its place."""
    html = _RULES + (_DARK.format(id=id, png=dark) if dark else "")
    return {"application/javascript": _SCRIPT.format(html=json.dumps(html)), "text/plain": ""}
