"""Cases in the player, in a page of headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...dtypes import DType
from .. import browser
from ..suite import Case as Single
from .judge import Answer, Answers
from .sketch import Case
from .values import shown


@contextmanager
def answers_in_page(provider: str) -> Iterator[Answers]:
    """The answers of the player with one provider; optimised models."""
    gpu = provider == "webgpu"
    with browser.player_page(gpu) as page:

        def answers(case: Case) -> Sequence[Answer]:
            try:
                single = Single(case.name, "", case.data, case.runs[0], {}, 0, 0)
                job = browser.job(single, True, gpu, case.runs[1:]) | {"executionProviders": [provider]}
            except Exception as error:
                return [Answer(None, error, False)]
            (told,) = page.evaluate("batch => window.runBatch(batch)", [job])
            if "error" in told:
                return [Answer(None, browser.PlayerError(told["error"]))]
            return [Answer([[shown(browser.output(o), DType[o["type"]]) for o in run] for run in (told["outputs"], *told["later"])])]

        yield answers
