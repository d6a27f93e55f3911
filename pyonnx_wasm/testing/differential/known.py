"""What is known to be refused or to differ, and why. Strict: each entry has an example, and a test holds it to its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sketch import Case


@dataclass(frozen=True)
class Known:
    """A finding that is expected.

    Attributes:
        operator: some node of the model has this type.
        status: ``refused``, ``failed`` or ``wrong``.
        text: regular expression of the error or of the difference.
        why: the reason that it stays.
        example: a model in onnx's text form that shows it.
    """

    operator: str
    status: str
    text: str
    why: str
    example: str


def example(entry: Known) -> Case:
    """The case of an entry's example, fed ones."""
    import numpy as np
    from onnx import helper, parser

    from .sketch import Case

    model = parser.parse_model(entry.example)
    stored = {t.name for t in model.graph.initializer}
    feeds = {
        i.name: np.ones(
            [d.dim_value or 2 for d in i.type.tensor_type.shape.dim], helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        )
        for i in model.graph.input
        if i.name not in stored
    }
    return Case(entry.operator, model, (feeds,))


KNOWN: tuple[Known, ...] = ()


def reason(case: Case, status: str, detail: str) -> str | None:
    """Why a finding is expected, None if it is not."""
    operators = case.operators()
    for entry in KNOWN:
        if entry.status == status and entry.operator in operators and re.search(entry.text, detail):
            return entry.why
    return None
