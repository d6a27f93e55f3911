"""A report as one page that needs nothing else: plots are drawn by the page's own script."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from .report import Findings
from .text import document, verdict

TEMPLATE = Path(__file__).with_name("report.html")


def page(report: Findings) -> str:
    """The page. Names from the model are text in it, never markup."""
    data = {**document(report), "worst": report.worst}
    text = json.dumps(data).replace("<", "\\u003c")
    filled = {
        "TITLE": escape(f"{report.model}: {'agrees' if report.agrees else 'diverges'}"),
        "VERDICT": escape(verdict(report)),
        "DATA": text,
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    head, *rest = template.split("{{")
    return head + "".join(filled[name] + tail for name, _, tail in (part.partition("}}") for part in rest))
