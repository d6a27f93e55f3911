"""Strings in pieces, by regular expressions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Strings, Value, dims
from ...registry import Kernel, op
from ...tensor import broadcast_to, concat, constant, contiguous, dims_of, index, map_, reduce, reshape, slice_, strings, unsqueeze
from ..regex import automaton
from ..shape import pad
from . import MICROSOFT

TOKENS = Kernel("string_tokens", ">y? >count? x pool states ranges starts", "n width rules size count least between", traits=strings.TRAITS)
MAX_RULES = 256
CHARACTER = "(?s)."


@op(domain=MICROSOFT)
def Tokenizer(
    X: Strings,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> Strings:
    """What ``tokenexp`` finds, leftmost and longest, or what lies between separators, one after the other in what the one before left:
    pieces of at least ``mincharnum`` code points along a new last axis. That axis comes for no strings at all, too."""
    if X.rank not in (1, 2):
        raise IRError(f"strings of shape [C] or [N, C] are told apart, not of rank {X.rank}")
    if mincharnum < 1:
        raise IRError(f"mincharnum is {mincharnum}, it must be positive")
    rules, between = _rules(separators, tokenexp)
    if rules == [CHARACTER] and mincharnum > 1:
        raise IRError(f"mincharnum is {mincharnum}, tokens are single characters")
    pieces, counts = _pieces(X, rules, between, mincharnum)
    (y, extra), pool = strings.common(pieces, strings.text(["\x02", "\x03", pad_value]))
    begin, end, padding = (reshape(slice_(extra, 0, k, 1), []) for k in range(3))
    if mark:  # no token in any string: no mark either
        one = dims.dmin(y.shape[-1], 1)
        none = [0] * X.rank
        y = pad(y, [*none, one], [*none, one])
    place = map_("sub", index(X.rank, y.shape), broadcast_to(unsqueeze(counts, [-1]), y.shape))  # behind the last token
    at = index(X.rank, y.shape)
    if mark:
        place = map_("sub", place, constant(np.int64(1)))
        y = map_("where", map_("eq", at, constant(np.int64(0))), begin, y)
        y = map_("where", map_("eq", place, constant(np.int64(0))), end, y)
        return Strings(map_("where", map_("lt", constant(np.int64(0)), place), padding, y), pool)
    return Strings(map_("where", map_("le", constant(np.int64(0)), place), padding, y), pool)


def _pieces(x: Strings, rules: Sequence[str], between: bool, least: int) -> tuple[Strings, Value]:
    """The pieces of strings along a new last axis, and how many there are of each."""
    states, ranges, starts = automaton(*rules)
    tables = {"states": constant(states), "ranges": constant(ranges), "starts": constant(starts)}
    ins = {"x": contiguous(x.spans), "pool": contiguous(x.pool), **tables}
    sizes = {"n": x.size, "rules": len(rules), "size": len(states), "count": len(ranges), "least": least, "between": int(between)}
    counts: Value = TOKENS({"count": (DType.int64, x.shape)}, ins, **sizes)
    every = concat([reshape(counts, [x.size]), constant(np.zeros(1, np.int64))], 0)
    width = dims_of(reduce("max", every, [0], True), "the most tokens of a string")[0]
    y: Value = TOKENS({"y": (DType.int64, [*x.shape, width])}, ins, **sizes, width=width)
    return Strings(y, x.pool), counts


def _rules(separators: Sequence[str] | None, tokenexp: str | None) -> tuple[list[str], bool]:
    """Expressions, and whether tokens lie between what they find."""
    if separators:
        if len(separators) > MAX_RULES:
            raise IRError(f"{len(separators)} separators; at most {MAX_RULES} are supported")
        return ([CHARACTER], False) if list(separators) == [""] else (list(separators), True)
    if not tokenexp:
        raise IRError("one of separators and tokenexp must be given")
    return [CHARACTER if tokenexp == "." else tokenexp], False
