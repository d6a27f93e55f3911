"""com.microsoft's operators on runs of tokens and on paths: against onnxruntime, at several shapes in one session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_case import Array, Feed, check, normal, whole
from test_microsoft_attention import DOMAIN

ORDER = ["past", "offsets", "eos", "segments", "past_segments", "count"]


def hashed(op: str, feeds: list[dict[str, Array]], outputs: list[str], first: list[str], **attributes: Any) -> None:
    given = [n for n in ORDER if n != "past_segments" or op.startswith("Varlen")]
    names = [*first, *(n if n in feeds[0] else "" for n in given)]
    while not names[-1]:
        names.pop()
    check(op, feeds, outputs=outputs, inputs=names, domain=DOMAIN, max_ngram_size=3, n_head_per_ngram=2, pad_id=1, **attributes)


def tables(dtype: Any) -> dict[str, Array]:
    """Multipliers whose products wrap, and sizes of tables."""
    limits = np.iinfo(dtype)
    return {
        "multipliers": whole(limits.min, limits.max, 3, dtype=dtype),
        "sizes": np.array([7, 11, 13, 5], dtype),
        "offsets": np.array([0, 7, 18, 31], dtype),
        "eos": np.array(3, dtype),
    }


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("extra", [[], ["past"], ["offsets", "eos"], ["past", "eos", "segments"], ["segments"]])
@pytest.mark.parametrize("reset", [0, 1])
def test_hashes(dtype: Any, extra: list[str], reset: int) -> None:
    feeds = []
    for b, n in ((2, 6), (1, 1), (3, 2)):
        given = {**tables(dtype), "ids": whole(0, 6, b, n, dtype=dtype), "past": whole(0, 6, b, 2, dtype=dtype)}
        given["segments"] = np.sort(whole(0, 3, b, n, dtype=np.int32), 1)
        feeds.append({k: given[k] for k in ("ids", "multipliers", "sizes", *extra)})
    hashed("NGramHashMapping", feeds, ["y", "present"], ["ids", "multipliers", "sizes"], reset_on_eos=reset)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "extra", [[], ["past", "offsets"], ["past", "eos", "segments"], ["segments"], ["past", "segments", "past_segments", "eos"]]
)
@pytest.mark.parametrize("reset", [0, 1])
def test_hashes_of_rows_of_many_lengths(dtype: Any, extra: list[str], reset: int) -> None:
    feeds = []
    for lengths in ((2, 5, 1), (1, 3, 3), (4,)):
        b, n = len(lengths), sum(lengths)
        given = {**tables(dtype), "ids": whole(0, 6, n, dtype=dtype), "past": whole(0, 6, b, 2, dtype=dtype)}
        given |= {"segments": np.sort(whole(0, 3, n, dtype=np.int32)), "past_segments": np.sort(whole(0, 2, b, 2, dtype=np.int32), 1)}
        given |= {"bounds": np.cumsum([0, *lengths]).astype(np.int32), "count": whole(0, 5, b, dtype=np.int32)}
        feeds.append({k: given[k] for k in ("ids", "multipliers", "sizes", "bounds", *extra, "count")})
    outputs = ["y", "present", "segments_out" if "segments" in extra else "", "update"]
    first = ["ids", "multipliers", "sizes", "bounds"]
    hashed("VarlenNGramHashMapping", feeds, outputs, first, reset_on_eos=reset, state_update_capacity=3)


def guesses(count: int) -> list[dict[str, Array]]:
    """Predictions that agree with the source for a while, or not at all."""
    rng = np.random.default_rng(1)
    feeds = []
    for _ in range(count):
        source = rng.integers(0, 4, int(rng.integers(1, 9)))
        begin = int(rng.integers(0, len(source) + 1))
        predicted = rng.integers(0, 4, len(source) + 1 - begin)
        agrees = min(len(source) - begin, int(rng.integers(0, 6)))
        predicted[:agrees] = source[begin : begin + agrees]
        current = rng.integers(0, 4, int(rng.integers(1, 6)))
        feeds.append({"source": source, "current": current, "begin": np.array([begin]), "predicted": predicted})
    return feeds


@pytest.mark.parametrize("sizes", [(1, 3), (2, 4), (1, 1)])
@pytest.mark.parametrize("predicted", [True, False])
def test_bifurcation(sizes: tuple[int, int], predicted: bool) -> None:
    feeds: list[Feed] = [{k: v for k, v in f.items() if predicted or k != "predicted"} for f in guesses(30)]
    check("BifurcationDetector", feeds, outputs=["t", "i"], domain=DOMAIN, min_ngram_size=sizes[0], max_ngram_size=sizes[1])


def test_dynamic_time_warping() -> None:
    """Costs that differ, and such that many paths cost the same."""
    sizes = ((4, 5), (1, 1), (7, 3), (1, 6), (6, 1), (20, 31))
    check("DynamicTimeWarping", [{"x": normal(*s)} for s in sizes], domain=DOMAIN)
    check("DynamicTimeWarping", [{"x": whole(0, 3, 1, *s).astype(np.float32)} for s in sizes], domain=DOMAIN)
    flat = [{"x": np.full(s, v, np.float32)} for s in sizes for v in (0, np.inf)]
    check("DynamicTimeWarping", flat, domain=DOMAIN)
