"""Runs of tokens: hashes of them that index tables (Engram), and where the last one was seen before (aggressive decoding)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import Context, op
from ...tensor import broadcast_to, cast, concat, constant, contiguous, fill, index, like, map_, reduce, reshape, slice_, unsqueeze
from ..gather import Gather
from . import MICROSOFT
from .attend import length_of, scalar

WIDE = DType.int64


def _number(value: int) -> Value:
    return constant(np.int64(value))


@dataclass(frozen=True)
class Rows:
    """Rows of tokens, one behind the other.

    Attributes:
        row, place: int64 [tokens]: the row of each token, and where in it the token lies.
        start, length: int64 [rows].
        kept: how many tokens of the past of each row are known.
    """

    row: Value
    place: Value
    start: Value
    length: Value
    kept: int

    @staticmethod
    def of(batch: DimLike, length: DimLike, kept: int) -> Rows:
        """Of one length."""
        row, place = (reshape(index(axis, [batch, length]), [batch * length]) for axis in (0, 1))
        return Rows(row, place, map_("mul", index(0, [batch]), scalar(length)), broadcast_to(scalar(length), [batch]), kept)

    @staticmethod
    def between(bounds: Value, tokens: DimLike, kept: int) -> Rows:
        """Each from one of ``bounds`` [rows + 1] to the next."""
        count = bounds.shape[0] - 1
        ends, start = (slice_(cast(bounds, WIDE), 0, first, count) for first in (1, 0))
        past = cast(map_("le", unsqueeze(ends, [0]), index(0, [tokens, count])), WIDE)
        row = map_("min", reduce("sum", past, [1]), scalar(count - 1))
        return Rows(row, map_("sub", index(0, [tokens]), Gather(start, row)), contiguous(start), map_("sub", ends, start), kept)

    def at(self, tokens: Value, past: Value, row: Value, place: Value) -> Value:
        """What stands at places of rows; places below 0 lie in ``past`` [rows, kept], whose last is at -1."""
        behind = map_("add", scalar(tokens.size), map_("mul", map_("add", row, _number(1)), _number(self.kept)))
        there = map_("where", map_("le", _number(0), place), Gather(self.start, row), behind)
        both = concat([contiguous(tokens), reshape(past, [past.size])], 0)
        return Gather(both, map_("add", there, place))  # type: ignore[no-any-return]

    def segments(self, given: Value, past: Value | None) -> Value:
        """Those of the past; where they are not told, those that the rows begin with."""
        if past is not None:
            return past
        return broadcast_to(unsqueeze(Gather(given, self.start), [1]), [self.start.shape[0], self.kept])

    def last(self, tokens: Value, past: Value) -> Value:
        """What the next call gets as ``past``."""
        return self.ending(tokens, past, unsqueeze(self.length, [1]))

    def ending(self, tokens: Value, past: Value, ends: Value) -> Value:
        """The tokens before places [rows, n] of each row: [rows, n * kept] for n 1, [rows, n, kept] else."""
        rows, count = ends.shape
        shape = [rows, count, self.kept]
        place = map_("add", unsqueeze(ends, [2]), map_("sub", index(2, shape), _number(self.kept)))
        found = self.at(tokens, past, index(0, shape), place)
        return reshape(found, [rows, self.kept]) if dims.same(count, 1) else found


@dataclass(frozen=True)
class Hashing:
    """What both operators share: xor of products of the last tokens, modulo the sizes of tables.

    Attributes:
        blank: a scalar that stands for tokens that are not there.
        reset: what ends a run, or None.
    """

    order: int
    heads: int
    multipliers: Value
    sizes: Value
    offsets: Value | None
    blank: Value
    reset: Value | None

    def past(self, given: Value | None, rows: DimLike) -> Value:
        return broadcast_to(self.blank, [rows, self.order - 1]) if given is None else given

    def __call__(self, rows: Rows, ids: Value, past: Value, segments: Value | None, past_segments: Value | None) -> Value:
        """[tokens, (order - 1) * heads]."""
        hidden: Value | None = None
        mix = map_("mul", ids, slice_(self.multipliers, 0, 0, 1))
        given, newer = [], segments
        for back in range(1, self.order):
            place = map_("sub", rows.place, _number(back))
            token = rows.at(ids, past, rows.row, place)
            ends = None if self.reset is None else map_("eq", token, self.reset)
            if segments is not None and newer is not None:
                older = rows.at(segments, rows.segments(segments, past_segments), rows.row, place)
                other = map_("not", map_("eq", older, newer))
                newer, ends = older, other if ends is None else map_("or", ends, other)
            if ends is not None:
                hidden = ends if hidden is None else map_("or", hidden, ends)
                token = map_("where", hidden, self.blank, token)
            mix = map_("bitxor", mix, map_("mul", token, slice_(self.multipliers, 0, back, 1)))
            given.append(map_("mod", unsqueeze(mix, [1]), slice_(self.sizes, 0, (back - 1) * self.heads, self.heads)))
        hashes = concat(given, 1)
        return hashes if self.offsets is None else map_("add", hashes, self.offsets)


def _hashing(
    ids: Value, multipliers: Value, sizes: Value, offsets: Value | None, eos: Value | None, order: int, heads: int, pad: int, reset: int
) -> Hashing:
    if order < 2 or heads < 1:
        raise IRError(f"max_ngram_size {order} must be 2 at least, n_head_per_ngram {heads} must be 1 at least")
    blank = like(ids, pad) if eos is None else reshape(eos, ())
    return Hashing(order, heads, multipliers, sizes, offsets, blank, blank if eos is not None and reset else None)


@op(domain=MICROSOFT)
def NGramHashMapping(
    input_ids: Value, multipliers: Value, vocab_sizes: Value, past_ids: Value | None = None, head_offsets: Value | None = None,
    eos_token_id: Value | None = None, segment_ids: Value | None = None, *,
    max_ngram_size: int, n_head_per_ngram: int, pad_id: int, reset_on_eos: int = 0,
) -> tuple[Value, Value]:  # fmt: skip
    """Hashes of the last 2 to ``max_ngram_size`` ids [batch, length] at each place, and the ids that the next call takes as its past."""
    batch, length = input_ids.shape
    hashing = _hashing(
        input_ids, multipliers, vocab_sizes, head_offsets, eos_token_id, max_ngram_size, n_head_per_ngram, pad_id, reset_on_eos
    )
    rows = Rows.of(batch, length, max_ngram_size - 1)
    ids, past = reshape(input_ids, [batch * length]), hashing.past(past_ids, batch)
    segments = None if segment_ids is None else reshape(segment_ids, [batch * length])
    hashes = hashing(rows, ids, past, segments, None)
    return reshape(hashes, [batch, length, hashes.shape[1]]), rows.last(ids, past)


@op(domain=MICROSOFT)
def VarlenNGramHashMapping(
    input_ids: Value, multipliers: Value, vocab_sizes: Value, cumulative_sequence_length: Value, past_ids: Value | None = None,
    head_offsets: Value | None = None, eos_token_id: Value | None = None, segment_ids: Value | None = None,
    past_segment_ids: Value | None = None, capture_count: Value | None = None, *,
    max_ngram_size: int, n_head_per_ngram: int, pad_id: int, reset_on_eos: int = 0, state_update_capacity: int = 0, ctx: Context,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The same over rows of many lengths that lie one behind the other; and the pasts behind the first tokens of each row."""
    tokens, count = input_ids.shape[0], cumulative_sequence_length.shape[0] - 1
    hashing = _hashing(
        input_ids, multipliers, vocab_sizes, head_offsets, eos_token_id, max_ngram_size, n_head_per_ngram, pad_id, reset_on_eos
    )
    rows, past = Rows.between(cumulative_sequence_length, tokens, max_ngram_size - 1), hashing.past(past_ids, count)
    hashes = hashing(rows, input_ids, past, segment_ids, past_segment_ids)
    present, update = None, None
    if ctx.wants(2):
        if segment_ids is None:
            raise IRError("present_segment_ids needs the input segment_ids")
        present = rows.last(segment_ids, rows.segments(segment_ids, past_segment_ids))
    if ctx.wants(3):
        update = _captured(rows, input_ids, past, capture_count, state_update_capacity, pad_id)
    return hashes, rows.last(input_ids, past), present, update


def _captured(rows: Rows, ids: Value, past: Value, capture_count: Value | None, capacity: int, pad: int) -> Value:
    """[rows, capacity, kept]: what the past would be behind the first token, the first two and so on, as many as are asked for."""
    if capture_count is None or capacity < 1:
        raise IRError("state_update needs the input capture_count and a positive state_update_capacity")
    at = index(1, [rows.start.shape[0], capacity])
    wanted = map_("lt", at, unsqueeze(map_("min", cast(capture_count, WIDE), rows.length), [1]))
    ends = map_("where", wanted, map_("add", at, _number(1)), _number(0))
    states = reshape(rows.ending(ids, past, ends), [rows.start.shape[0], capacity, rows.kept])
    return map_("where", unsqueeze(wanted, [2]), states, like(ids, pad))


@op(domain=MICROSOFT)
def BifurcationDetector(
    src_tokens: Value, cur_tokens: Value, prev_suffix_match_idx: Value, pred_tokens: Value | None = None, *,
    max_ngram_size: int = 3, min_ngram_size: int = 1,
) -> tuple[Value, Value]:  # fmt: skip
    """Tokens with the prediction up to where it leaves the source, and where in the source what follows their last run begins, or -1."""
    if not 0 < min_ngram_size <= max_ngram_size:
        raise IRError(f"min_ngram_size {min_ngram_size} must be positive and at most max_ngram_size {max_ngram_size}")
    tokens = cur_tokens if pred_tokens is None else concat([cur_tokens, _agreed(src_tokens, prev_suffix_match_idx, pred_tokens)], 0)
    found, ended = _number(-1), constant(np.array(False))
    source, count = src_tokens, src_tokens.shape[0]
    for size in range(min_ngram_size, max_ngram_size + 1):
        room = concat([source, fill([size], 0, WIDE)], 0)
        windows = room.view([count, size], room.offset, [room.strides[0], room.strides[0]])
        last = slice_(concat([fill([size], 0, WIDE), tokens], 0), 0, tokens.shape[0], size)
        hits = reduce("min", cast(map_("eq", windows, unsqueeze(last, [0])), DType.int32), [1])
        at = index(0, [count])
        fits = map_("le", map_("add", at, _number(size)), scalar(count))
        hit = map_("and", map_("eq", hits, constant(np.int32(1))), fits)
        place = map_("add", at, _number(size))
        after = _least(map_("where", hit, place, scalar(count + 1)), scalar(count + 1))
        times = reduce("sum", concat([cast(hit, WIDE), fill([1], 0, WIDE)], 0), [0])
        none = map_("or", map_("eq", times, _number(0)), map_("lt", scalar(tokens.shape[0]), _number(size)))
        ended = map_("or", ended, none)
        fresh = map_("where", map_("lt", _number(1), times), _number(-1), after)
        found = map_("where", ended, found, fresh)
        ended = map_("or", ended, map_("le", scalar(count), after))
    return tokens, reshape(found, prev_suffix_match_idx.shape)


def _least(x: Value, otherwise: Value) -> Value:
    return reduce("min", concat([x, reshape(otherwise, [1])], 0), [0])


def _agreed(source: Value, begin: Value, predicted: Value) -> Value:
    """The prediction for what follows a place of the source, up to the first token that differs."""
    start = length_of(reshape(begin, [begin.size]), "prev_suffix_match_idx")
    rest = source.shape[0] - start
    expected = slice_(source, 0, start, rest)
    differs = map_("not", map_("eq", expected, slice_(predicted, 0, 0, rest)))
    same = _least(map_("where", differs, index(0, [rest]), scalar(rest)), scalar(rest))
    return slice_(predicted, 0, 0, length_of(reshape(same, [1]), "how much of pred_tokens agrees") + 1)
