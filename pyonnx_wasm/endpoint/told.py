"""Answers in the forms of OpenAI's API."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from typing import Any

from ..generate import Generation, Generator, Token
from .asked import Asked

_REASONS = {"end": "stop", "stop": "stop", "length": "length"}


class Teller:
    """Forms the answer to one request.

    Args:
        name: of the model.
    """

    def __init__(self, asked: Asked, generator: Generator, name: str) -> None:
        self.asked, self.generator = asked, generator
        self.tokens: list[list[Token]] = [[] for _ in asked.texts]
        kind = ("chat.completion" if asked.chat else "text_completion", "chat.completion.chunk" if asked.chat else "text_completion")
        number = f"{'chatcmpl' if asked.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._head = {"id": number, "object": kind[asked.stream], "created": int(time.time()), "model": name}

    def whole(self) -> dict[str, Any]:
        """All of it."""
        choices = []
        for i, text in enumerate(self.asked.texts):
            choice: dict[str, Any] = {"index": i, "logprobs": self._likely(self.tokens[i]), "finish_reason": reason(text)}
            if self.asked.chat:
                choice["message"] = {"role": "assistant", "content": text.text, "refusal": None}
            else:
                choice["text"] = text.text
            choices.append(choice)
        return {**self._head, "choices": choices, "usage": self.usage()}

    def part(self, i: int, token: Token | None, first: bool = False) -> dict[str, Any]:
        """What a token adds to the i-th text; None: its end."""
        text = token.text if token is not None else ""
        choice: dict[str, Any] = {"index": i, "logprobs": None if token is None else self._likely([token])}
        choice["finish_reason"] = reason(self.asked.texts[i]) if token is None and not first else None
        if self.asked.chat:
            choice["delta"] = {"role": "assistant", "content": ""} if first else {"content": text} if token is not None else {}
        else:
            choice["text"] = text
        return {**self._head, "choices": [choice], **({"usage": None} if self.asked.usage else {})}

    def last(self) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """Tokens of all prompts, each counted once, and of all texts."""
        prompts = {tuple(t.prompt): t for t in self.asked.texts}
        given = sum(map(len, prompts))
        made = sum(t.statistics.new_tokens for t in self.asked.texts)
        cached = sum(t.statistics.reused_tokens for t in prompts.values())
        return {
            "prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made,
            "prompt_tokens_details": {"cached_tokens": cached},
        }  # fmt: skip

    def _likely(self, tokens: Sequence[Token]) -> Any:
        if self.asked.logprobs is None:
            return None
        if self.asked.chat:
            return {"content": [{**self._word(t.id, t.probability), "top_logprobs": [self._word(*w) for w in t.likely]} for t in tokens]}
        words = [self.generator.word(t.id) for t in tokens]
        return {
            "tokens": words,
            "token_logprobs": [_log(t.probability) for t in tokens],
            "top_logprobs": [{self.generator.word(i): _log(p) for i, p in t.likely} for t in tokens],
            "text_offset": [sum(map(len, words[:k])) for k in range(len(words))],
        }

    def _word(self, token: int, probability: float) -> dict[str, Any]:
        word = self.generator.word(token)
        return {"token": word, "logprob": _log(probability), "bytes": list(word.encode())}


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -9999.0


def reason(text: Generation) -> str | None:
    return _REASONS.get(text.reason or "")
