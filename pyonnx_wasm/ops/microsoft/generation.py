"""GreedySearch and Sampling of com.microsoft: a decoder in a loop that the core runs. Behind sequences that end early lies padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...dtypes import DType
from ...ir import IRError, Value
from ...ir.dims import DimLike
from ...registry import Context, op
from ...tensor import cast, concat, constant, dims_of, fill, like, map_, reduce, reshape
from ..control import subgraph
from ..loops import run_loop
from ..reduction import ArgMax
from . import MICROSOFT
from .decoders import Causal, check_room, number, scores_of
from .sampling import Chance, numbers
from .scores import Rules, point


@dataclass(frozen=True)
class Single:
    """A search that goes on with one token of each row, the most probable one or one by chance.

    Its state: tokens [batch, length], whether they have ended [batch, 1], the scores that the last ones were chosen of where they are
    asked for, what the decoder takes, and the position of what follows.
    """

    causal: Causal
    rules: Rules
    pad: int
    chance: Chance | None = None
    shown: int = 0

    def inside(self, outline: Any) -> Single:
        chance = None if self.chance is None else self.chance.inside(outline)
        return replace(self, rules=self.rules.inside(outline), chance=chance)

    def fed(self, state: Sequence[Value]) -> Sequence[Value]:
        """The decoder's inputs."""
        return state[2 + self.shown : -1]

    def advance(self, state: Sequence[Value], given: Sequence[Value], step: Value) -> list[Value]:
        """Whether a row goes on, and the next state, of what the decoder gave."""
        sequences, done = state[:2]
        scores = self.rules(scores_of(given[0], self.causal.words), sequences, map_("eq", step, like(step, 0)))
        if self.chance is None:
            tokens = ArgMax(scores, axis=1, keepdims=1)
        else:
            scores = self.chance.kept(scores)
            tokens = self.chance.drawn(scores, step)
        done = map_("or", done, map_("eq", tokens, like(tokens, self.rules.eos)))
        tokens = map_("where", done, like(sequences, self.pad), cast(tokens, sequences.dtype))
        following = self.causal.next(state[2 + self.shown :], given, tokens, None)
        return [unended(done), concat([sequences, tokens], 1), done, *[scores][: self.shown], *following]


def unended(done: Value) -> Value:
    """Whether any is not done."""
    return map_("eq", reshape(reduce("min", cast(reshape(done, [done.size]), DType.int32), [0]), ()), constant(np.int32(0)))


def _searched(ctx: Context, search: Single, state: Sequence[Value], most: DimLike, first: Any) -> tuple[Value, ...]:
    """Tokens [batch, most], and the scores that the last were chosen of."""
    body, length = search.causal.body, state[0].shape[1]
    begun = 0
    condition: DimLike = 1
    if first is not None:
        going, *state = search.advance(state, subgraph(ctx, first, search.fed(state)), constant(np.int64(0)))
        begun, condition = 1, dims_of(reshape(going, [1]), "whether a row goes on")[0]

    def trace(outline: Any, step: Value, going: Value, carried: Sequence[Any]) -> list[Any]:
        within = search.inside(outline)
        given = outline.trace(within.fed(carried))
        with outline.graph:
            return within.advance(carried, given, map_("add", step, like(step, begun)))

    sequences, _, *rest = run_loop(ctx, body, most - length - begun, condition, state, trace, [0, 0])
    padding = fill([sequences.shape[0], most - sequences.shape[1]], search.pad, sequences.dtype)
    return concat([sequences, padding], 1), *rest[: search.shown]


def only_causal(kind: str, model_type: int) -> None:
    if model_type != 0:
        raise IRError(
            f"{kind} has decoders without an encoder alone (model_type 0), this one is {model_type}; use BeamSearch with num_beams 1"
        )


@op(domain=MICROSOFT)
def GreedySearch(
    input_ids: Value, max_length: Value, min_length: Value | None = None, repetition_penalty: Value | None = None,
    vocab_mask: Value | None = None, prefix_vocab_mask: Value | None = None, attention_mask: Value | None = None, *,
    decoder: Any, eos_token_id: int, pad_token_id: int, init_decoder: Any = None, encoder: Any = None, model_type: int = 0,
    no_repeat_ngram_size: int = 0, vocab_size: int = -1, decoder_start_token_id: int = -1, ctx: Context,
) -> Value:  # fmt: skip
    """Tokens [batch, max_length]: those given, the most probable ones, and padding from the end on."""
    only_causal("GreedySearch", model_type)
    rules = Rules(
        eos_token_id, no_repeat_ngram_size, repetition=point(repetition_penalty), vocabulary=vocab_mask, prefix=prefix_vocab_mask,
        shortest=point(min_length),
    )  # fmt: skip
    search = Single(Causal(decoder, vocab_size), rules, pad_token_id)
    most = number(max_length, "max_length")
    check_room(most, input_ids.shape[1])
    begun = search.causal.begin(input_ids, attention_mask, pad_token_id, 1)
    return _searched(ctx, search, [input_ids, fill([input_ids.shape[0], 1], 0, DType.bool), *begun], most, init_decoder)[0]


@op(domain=MICROSOFT)
def Sampling(
    input_ids: Value, max_length: Value, min_length: Value | None = None, repetition_penalty: Value | None = None,
    vocab_mask: Value | None = None, prefix_vocab_mask: Value | None = None, attention_mask: Value | None = None,
    presence_mask: Value | None = None, seed: Value | None = None, *,
    decoder: Any, eos_token_id: int, pad_token_id: int, init_decoder: Any = None, encoder: Any = None, model_type: int = 0,
    no_repeat_ngram_size: int = 0, vocab_size: int = -1, decoder_start_token_id: int = -1, temperature: float = 1.0, top_p: float = 0.0,
    min_tokens_to_keep: int = 0, filter_value: float = -1e20, custom: int = 0, presence_penalty: float = 0.0, ctx: Context,
) -> tuple[Value, ...]:  # fmt: skip
    """Tokens [batch, max_length], drawn from the most probable words; the last step's scores, ``filter_value`` of words that were not kept.

    A seed gives the same tokens in each run and on each backend; they are not those of onnxruntime, whose generator is C++'s own.
    """
    only_causal("Sampling", model_type)
    rules = Rules(
        eos_token_id, no_repeat_ngram_size, temperature, presence_penalty, point(repetition_penalty), vocab_mask, prefix_vocab_mask,
        point(min_length), presence_mask,
    )  # fmt: skip
    most, (batch, length) = number(max_length, "max_length"), input_ids.shape
    check_room(most, length)
    chance = Chance(top_p, min_tokens_to_keep, filter_value, bool(custom), numbers(most - length, batch, seed))
    shown = int(ctx.wants(1))
    search = Single(Causal(decoder, vocab_size), rules, pad_token_id, chance, shown)
    state = [input_ids, fill([batch, 1], 0, DType.bool)]
    if shown:
        state.append(fill([batch, search.causal.vocabulary], 0, DType.float32))
    return _searched(ctx, search, [*state, *search.causal.begin(input_ids, attention_mask, pad_token_id, 1)], most, init_decoder)
