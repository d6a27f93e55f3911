"""Requests of OpenAI's API, checked; what is not supported is refused by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..generate import ContextError, Generation, Generator, Sampling
from ..generate.loop import fitted

MOST_CHOICES, MOST_PROMPTS, MOST_LIKELY, MOST_STOPS = 16, 64, 20, 16
#: What clients send that changes no text.
_SILENT = {"user", "stream_options", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"}
#: What is not supported, with the values that ask for nothing.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},), "suffix": ("",), "best_of": (1,), "echo": (False,),
    "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],), "response_format": ({"type": "text"},), "modalities": (["text"],),
}  # fmt: skip
_SETTINGS = {"temperature": float, "top_p": float, "top_k": int, "min_p": float, "repetition_penalty": float}


class Refused(Exception):
    """A request that cannot be answered, in the form in which clients are told."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": kind or "invalid_request_error", "param": param, "code": code}


@dataclass
class Asked:
    """One request.

    Attributes:
        texts: one after the other, those of a prompt together.
        logprobs: so many likely tokens are told of each; None: none are told.
    """

    texts: list[Generation]
    chat: bool
    stream: bool
    usage: bool
    logprobs: int | None


def asked(body: bytes, generator: Generator, name: str, chat: bool) -> Asked:
    """What the JSON of a request asks for.

    Raises:
        Refused: it is not understood, or not supported.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused("the request is no JSON") from None
    if not isinstance(given, dict):
        raise Refused("the request is no JSON object")
    if given.get("model") != name:
        raise Refused(f"the model {given.get('model')!r} is not here; {name!r} is", "model", "model_not_found", 404)
    for key, values in _REFUSED.items():
        if given.get(key) is not None and given[key] not in values:
            raise Refused(f"{key} is not supported", key)
    known = {"model", "stream", "stop", "seed", "n", "logprobs", "max_tokens", *_SILENT, *_REFUSED, *_SETTINGS}
    known |= {"messages", "max_completion_tokens", "top_logprobs"} if chat else {"prompt"}
    if unknown := sorted(set(given) - known):
        raise Refused(f"{unknown[0]!r} is not known", unknown[0])
    count = _whole(given, "n", 1, 1, MOST_CHOICES)
    likely = _likely(given, chat)
    stream, options = _truth(given, "stream"), given.get("stream_options") or {}
    texts = [_text(generator, given, prompt, k, likely, chat) for prompt in _prompts(given, chat) for k in range(count)]
    return Asked(texts, chat, stream, stream and isinstance(options, dict) and bool(options.get("include_usage")), likely)


def _whole(given: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    value = given.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refused(f"{key} is {value!r}; it must be a whole number from {least} to {most}", key)
    return value


def _truth(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key)
    if value not in (None, True, False):
        raise Refused(f"{key} is {value!r}; it must be true or false", key)
    return bool(value)


def _likely(given: Mapping[str, Any], chat: bool) -> int | None:
    if not chat:
        return None if given.get("logprobs") is None else _whole(given, "logprobs", 0, 0, MOST_LIKELY)
    if not _truth(given, "logprobs"):
        if given.get("top_logprobs"):
            raise Refused("top_logprobs goes with logprobs", "top_logprobs")
        return None
    return _whole(given, "top_logprobs", 0, 0, MOST_LIKELY)


def _prompts(given: Mapping[str, Any], chat: bool) -> list[Any]:
    if chat:
        return [_messages(given.get("messages"))]
    prompt = given.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(t, int) and not isinstance(t, bool) for t in prompt):
            return [prompt]
        texts = all(isinstance(p, str) for p in prompt)
        ids = all(isinstance(p, list) and p and all(isinstance(t, int) for t in p) for p in prompt)
        if (texts or ids) and len(prompt) <= MOST_PROMPTS:
            return prompt
    raise Refused(f"prompt must be a text, token ids, or a list of at most {MOST_PROMPTS} of these", "prompt")


def _messages(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given:
        raise Refused("messages must be a list of at least one", "messages")
    found = []
    for i, message in enumerate(given):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refused(f"messages[{i}] has no role", "messages")
        content = message.get("content")
        if isinstance(content, list):
            parts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in content]
            content = None if None in parts else "".join(map(str, parts))
        if not isinstance(content, str):
            raise Refused(f"messages[{i}] has a content that is no text; others are not supported", "messages")
        found.append({**message, "content": content})
    return found


def _text(generator: Generator, given: Mapping[str, Any], prompt: Any, k: int, likely: int | None, chat: bool) -> Generation:
    """The k-th text of a prompt."""
    seed = given.get("seed")
    seed = None if seed is None else _whole(given, "seed", 0, -(1 << 63), (1 << 64) - 1) + k
    settings: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    for key, kind in _SETTINGS.items():
        value = given.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise Refused(f"{key} is {value!r}; it must be a number", key)
        settings[key] = kind(value)
    stop = given.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, Sequence) or len(stops) > MOST_STOPS or not all(isinstance(s, str) for s in stops):
        raise Refused(f"stop must be a text, or a list of at most {MOST_STOPS}", "stop")
    where = "messages" if chat else "prompt"
    try:
        ids = generator.ids(prompt)
        room = _room(generator, ids)
        asked_for = given.get("max_completion_tokens" if chat and given.get("max_completion_tokens") is not None else "max_tokens")
        limit = (min(room, 1 << 12) if chat else 16) if asked_for is None else asked_for
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise Refused(f"max_tokens is {limit!r}; it must be a whole number, 1 or more", "max_tokens")
        sampling = Sampling(seed=seed, **settings)
        return generator.generate(ids, max_new_tokens=min(limit, room), stop=stops, likely=likely or 0, sampling=sampling)
    except ContextError as error:
        raise Refused(str(error), where, "context_length_exceeded") from None
    except ValueError as error:
        named = next((key for key in _SETTINGS if str(error).startswith(f"{key} is ")), where)
        raise Refused(str(error), named) from None


def _room(generator: Generator, ids: Sequence[int]) -> int:
    """How many tokens may follow."""
    if generator.context is None or generator.slides:
        return 1 << 20
    fitted(list(ids), generator.context, None)
    return generator.context - len(ids)
