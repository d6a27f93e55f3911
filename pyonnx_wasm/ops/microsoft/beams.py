"""BeamSearch of com.microsoft: several sequences of each row at once, in a loop that the core runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import Graph, IRError, Value, dims
from ...ir.dims import DimLike
from ...registry import Context, op
from ...tensor import cast, concat, constant, dims_of, fill, index, like, literal, map_, reduce, reshape, slice_, unsqueeze
from ..control import subgraph
from ..gather import Gather, GatherElements
from ..loops import run_loop
from ..normalization import softmax
from ..ragged import at_node
from ..reduction import topk
from . import MICROSOFT
from .decoders import Causal, Crossed, beamed, check_room, encoded, encoder_mask, flat_rows, number, scores_of
from .generation import unended
from .scores import Rules, point
from .timestamps import Timestamps

UNLIKELY = -1e9  # where beams but the first begin, so that they do not all choose the same


@dataclass(frozen=True)
class Beams:
    """What is chosen of all beams' scores, and what has ended.

    Its state: tokens [batch * beams, length], sums of log-probabilities [batch, beams], of the best that have ended tokens
    [batch, beams, most], scores [batch, beams] and their number [batch, 1], and whether a row is done [batch, 1].
    """

    rules: Rules
    beams: DimLike
    most: DimLike
    pad: int
    early: bool
    penalty: Value | None

    def inside(self, outline: Any) -> Beams:
        def size(s: DimLike) -> DimLike:
            if isinstance(s, int) or s in outline.symbols:
                known: DimLike = outline.size(s)
                return known
            return dims_of(outline.take(literal([s])), "a size of the search")[0]

        penalty = None if self.penalty is None else outline.bring(self.penalty)
        rules = self.rules.inside(outline)
        with outline.graph:
            return replace(self, rules=rules, penalty=penalty, beams=size(self.beams), most=size(self.most))

    def begin(self, sequences: Value) -> list[Value]:
        batch, beams = sequences.shape[0] // self.beams, self.beams
        first = map_("eq", index(1, [batch, beams]), constant(np.int64(0)))
        sums = map_("where", first, constant(np.float32(0)), constant(np.float32(UNLIKELY)))
        ended = fill([batch, beams, self.most], self.pad, sequences.dtype)
        scores = fill([batch, beams], -np.inf, DType.float32)
        return [sequences, sums, ended, scores, fill([batch, 1], 0, DType.int64), fill([batch, 1], 0, DType.bool)]

    def advance(self, state: Sequence[Value], scores: Value, first: Value) -> tuple[Value, list[Value], Value, Value, Value]:
        """Whether any row goes on, the next state, tokens [batch * beams, 1], the rows that they follow, and the scores of all words."""
        sequences, sums, *_, done = state
        batch, (rows, words), beams = done.shape[0], scores.shape, self.beams
        scores = self.rules(softmax(scores, 1, log=True), sequences, first)
        scores = map_("add", scores, reshape(sums, [rows, 1]))
        best, at = topk(reshape(scores, [batch, beams * words]), 2 * beams, 1, 1)
        count = reshape(literal([words]), ())
        tokens, origin = map_("mod", at, count), map_("div", at, count)
        ends = map_("eq", tokens, constant(np.int64(self.rules.eos)))
        state = self._ended(state, slice_(best, 1, 0, beams), slice_(origin, 1, 0, beams), slice_(ends, 1, 0, beams), slice_(best, 1, 0, 1))
        place = index(1, [batch, 2 * beams])
        _, chosen = topk(map_("add", place, map_("mul", cast(ends, DType.int64), reshape(literal([2 * beams]), ()))), beams, 1, 0)
        tokens = reshape(cast(GatherElements(tokens, chosen, axis=1), sequences.dtype), [rows, 1])
        follow = flat_rows(GatherElements(origin, chosen, axis=1), beams)
        following = concat([Gather(sequences, follow), tokens], 1)
        return unended(state[-1]), [following, GatherElements(best, chosen, axis=1), *state], tokens, follow, scores

    def _score(self, sums: Value, length: DimLike) -> Value:
        """Sums of log-probabilities by the length to the power of the penalty."""
        long = cast(reshape(literal([length]), ()), DType.float32)
        return map_("div", sums, long if self.penalty is None else map_("pow", long, self.penalty))

    def _ended(self, state: Sequence[Value], sums: Value, origin: Value, ends: Value, best: Value) -> list[Value]:
        """What has ended, with those that end now: of the best beams the ones whose next token says so."""
        sequences, _, ended, scores, count, done = state
        ends = map_("and", ends, map_("not", done))
        length = sequences.shape[1]
        now = map_("where", ends, self._score(sums, length), constant(np.float32(-np.inf)))
        ended, scores = self._best([ended, self._whole(Gather(sequences, flat_rows(origin, self.beams)))], [scores, now], self.beams)
        most = reshape(literal([self.beams]), ())
        count = map_("min", map_("add", count, _sum(ends)), most)
        enough = map_("eq", count, most)
        if not self.early:  # and none that goes on can become better than the worst of them
            worst = slice_(scores, 1, self.beams - 1, 1)
            enough = map_("and", enough, map_("le", self._score(best, length), worst))
        return [ended, scores, count, map_("or", done, enough)]

    def _whole(self, sequences: Value) -> Value:
        """Tokens [batch * beams, length] as [batch, beams, most]."""
        rows, length = sequences.shape
        whole = concat([sequences, fill([rows, self.most - length], self.pad, sequences.dtype)], 1)
        return reshape(whole, [rows // self.beams, self.beams, self.most])

    def _best(self, tokens: Sequence[Value], scores: Sequence[Value], count: DimLike) -> tuple[Value, Value]:
        """Of sequences side by side those with the highest scores, the highest first."""
        every, values = concat(tokens, 1), concat(scores, 1)
        batch, each, most = every.shape
        values, at = topk(values, count, 1, 1)
        picked = Gather(reshape(every, [batch * each, most]), flat_rows(at, each))
        return reshape(picked, [batch, count, most]), values

    def finish(self, state: Sequence[Value], count: DimLike) -> tuple[Value, Value]:
        """The best of each row [batch, count, most] and their scores, among them those that did not end where the row is not done."""
        sequences, sums, ended, scores, _, done = state
        left = map_("where", done, constant(np.float32(-np.inf)), self._score(sums, sequences.shape[1]))
        return self._best([ended, self._whole(sequences)], [scores, left], count)


def _sum(mask: Value) -> Value:
    return reduce("sum", cast(mask, DType.int64), [1], True)


STATE = 6  # values of a search's state


def _run(
    ctx: Context,
    beams: Beams,
    decoder: Causal | Crossed,
    state: list[Value],
    carried: list[Value],
    first: Sequence[Value] | None,
    shown: bool,
) -> tuple[list[Value], list[Value]]:
    """The state at the end, and the scores of each step where they are asked for.

    Args:
        carried: what the decoder passes on beside the state.
        first: what another graph gave in the place of the decoder's first step.
    """
    length, shows, begun = state[0].shape[1], list[Value](), 0
    condition: DimLike = 1

    def step(
        beams: Beams, decoder: Causal | Crossed, values: Sequence[Value], given: Sequence[Value], at_first: Value
    ) -> tuple[Value, list[Value], Value]:
        going, chosen, tokens, rows, scores = beams.advance(values[:STATE], scores_of(given[0], decoder.words), at_first)
        return going, [*chosen, *decoder.next(values[STATE:], given, tokens, rows)], scores

    values = [*state, *carried]
    if first is not None:
        going, values, scores = step(beams, decoder, values, first, constant(np.array(True)))
        begun, condition = 1, dims_of(reshape(going, [1]), "whether a row goes on")[0]
        shows = [unsqueeze(scores, [0])]

    def trace(outline: Any, number: Value, going: Value, values: Sequence[Any]) -> list[Any]:
        search, within = beams.inside(outline), decoder.inside(outline)
        given = outline.trace(within.fed(outline, values[0], values[STATE:]))
        with outline.graph:
            at_first = map_("eq", map_("add", number, like(number, begun)), like(number, 0))
            more, following, scores = step(search, within, values, given, at_first)
            return [more, *following, *([scores] if shown else [])]

    made = run_loop(ctx, decoder.body, beams.most - length - begun, condition, values, trace, [0, 0])
    return list(made[:STATE]), [*shows, *made[len(values) :]] if shown else []


def _per_step(shows: Sequence[Value], steps: DimLike, beams: DimLike) -> Value:
    """Scores of each step [steps, batch, beams, words]; of those that were not made 0."""
    made = concat(shows, 0) if len(shows) > 1 else shows[0]
    rows, words = made.shape[1:]
    whole = concat([made, fill([steps - made.shape[0], rows, words], 0, made.dtype)], 0)
    return reshape(whole, [steps, rows // beams, beams, words])


def _timestamps(processor: Value | None, eos: int, start: int, given: Sequence[int]) -> Timestamps | None:
    """The rules of timestamps where they are asked for; tokens that are not given are those of Whisper's multilingual tokenizers."""
    if processor is None:
        return None
    kind = number(processor, "logits_processor")
    if not isinstance(kind, int):
        raise IRError("logits_processor must be known when the model is compiled; make it a constant")
    if kind not in (0, 1):
        raise IRError(f"logits_processor {kind} is not known; 0 and 1 (timestamps) are")
    usual = [eos + k for k in (107, 106, 105, 101, 102)]
    first, never, model, translate, transcribe = (t if t >= 0 else u for t, u in zip(given, usual, strict=True))
    return Timestamps(eos, first, (never, model), (start, translate, transcribe)) if kind else None


def _search(
    ctx: Context,
    rules: Rules,
    kind: int,
    graphs: Sequence[Any],
    inputs: Sequence[Value | None],
    lengths: Sequence[Value | None],
    penalty: Value | None,
    pad: int,
    start_token: int,
    words: int,
    early: bool,
) -> tuple[Value, ...]:
    """Of each row the best sequences [batch, n, max_length], their scores [batch, n], and the scores of all words at each step.

    Args:
        graphs: decoder, init_decoder and encoder.
        inputs: tokens or frames, the attention mask, the decoder's first tokens.
        lengths: max_length, num_beams and num_return_sequences.
    """
    most, width, count = (number(v, n) for v, n in zip(lengths, ("max_length", "num_beams", "num_return_sequences"), strict=True))
    Graph.current().check(dims.le(count, width), at_node("num_return_sequences exceeds num_beams"))
    beams, (given, mask, tokens) = Beams(rules, width, most, pad, early, point(penalty)), inputs
    decoder, init_decoder, encoder = graphs
    assert given is not None
    decoders: Causal | Crossed
    if kind == 0:
        decoders, start, first = Causal(decoder, words), given, None
        carried = decoders.begin(start, mask, pad, width)
        if init_decoder is not None:
            first = subgraph(ctx, init_decoder, carried[:-1])
    else:
        start = fill([given.shape[0], 1], start_token, DType.int32) if tokens is None or kind == 1 else tokens
        feeds = [given, start]
        if kind == 1:
            feeds.insert(1, encoder_mask(given, pad) if mask is None else mask)
        decoders, pasts, first = encoded(ctx, encoder, decoder, feeds, width, words)
        carried = [beamed(start, width), *pasts]
    check_room(most, start.shape[1])
    state, shows = _run(ctx, beams, decoders, beams.begin(beamed(start, width)), carried, first, ctx.wants(2))
    sequences, scores = beams.finish(state, count)
    return sequences, scores, *([_per_step(shows, most - start.shape[1], width)] if ctx.wants(2) else [])


@op(domain=MICROSOFT)
def BeamSearch(
    input_ids: Value, max_length: Value, min_length: Value | None, num_beams: Value, num_return_sequences: Value,
    length_penalty: Value | None = None, repetition_penalty: Value | None = None, vocab_mask: Value | None = None,
    prefix_vocab_mask: Value | None = None, attention_mask: Value | None = None, decoder_input_ids: Value | None = None,
    logits_processor: Value | None = None, *, decoder: Any, eos_token_id: int, pad_token_id: int, init_decoder: Any = None,
    encoder: Any = None, model_type: int = 0, no_repeat_ngram_size: int = 0, vocab_size: int = -1, decoder_start_token_id: int = -1,
    early_stopping: int = 0, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    """model_type 0: a decoder; 1: one behind an encoder; 2: Whisper."""
    if model_type not in (0, 1, 2):
        raise IRError(f"model_type {model_type} is not known; 0 (a decoder), 1 (behind an encoder) and 2 (whisper) are")
    stamps = _timestamps(logits_processor, eos_token_id, decoder_start_token_id, [-1] * 5) if model_type == 2 else None
    rules = Rules(
        eos_token_id, no_repeat_ngram_size, repetition=point(repetition_penalty), vocabulary=vocab_mask, prefix=prefix_vocab_mask,
        shortest=point(min_length), timestamps=stamps,
    )  # fmt: skip
    return _search(
        ctx, rules, model_type, [decoder, init_decoder, encoder], [input_ids, attention_mask, decoder_input_ids],
        [max_length, num_beams, num_return_sequences], length_penalty, pad_token_id, decoder_start_token_id, vocab_size,
        bool(early_stopping),
    )  # fmt: skip


@op(domain=MICROSOFT)
def WhisperBeamSearch(
    input_ids: Value, max_length: Value, min_length: Value | None, num_beams: Value, num_return_sequences: Value,
    length_penalty: Value | None = None, repetition_penalty: Value | None = None, vocab_mask: Value | None = None,
    prefix_vocab_mask: Value | None = None, attention_mask: Value | None = None, decoder_input_ids: Value | None = None,
    logits_processor: Value | None = None, cross_qk_layer_head: Value | None = None, extra_decoding_ids: Value | None = None,
    temperature: Value | None = None, *, decoder: Any, eos_token_id: int, pad_token_id: int, init_decoder: Any = None,
    encoder: Any = None, model_type: int = 2, no_repeat_ngram_size: int = 0, vocab_size: int = -1, decoder_start_token_id: int = -1,
    early_stopping: int = 0, decoder_output_cross_qk: int = 0, translate_token_id: int = -1, no_speech_token_id: int = -1,
    transcribe_token_id: int = -1, start_of_lm_token_id: int = -1, no_timestamps_token_id: int = -1,
    beginning_timestamp_token_id: int = -1, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    """BeamSearch of Whisper, with the tokens of its tokenizer."""
    if decoder_output_cross_qk or ctx.wants(3) or ctx.wants(4):
        raise IRError("cross_qk and non_speech_probs are onnxruntime's CUDA provider's alone; convert the model without them")
    given = [beginning_timestamp_token_id, no_timestamps_token_id, start_of_lm_token_id, translate_token_id, transcribe_token_id]
    rules = Rules(
        eos_token_id, no_repeat_ngram_size, repetition=point(repetition_penalty), vocabulary=vocab_mask, prefix=prefix_vocab_mask,
        shortest=point(min_length), heat=point(temperature),
        timestamps=_timestamps(logits_processor, eos_token_id, decoder_start_token_id, given),
    )  # fmt: skip
    return _search(
        ctx, rules, 2, [decoder, init_decoder, encoder], [input_ids, attention_mask, decoder_input_ids],
        [max_length, num_beams, num_return_sequences], length_penalty, pad_token_id, decoder_start_token_id, vocab_size,
        bool(early_stopping),
    )  # fmt: skip
