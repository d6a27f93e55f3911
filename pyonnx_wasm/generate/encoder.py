"""What encoders of texts and sounds read once, for the decoders that write of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..session import InferenceSession

Array = np.ndarray[Any, Any]
_KNOWN = {"input_ids", "input_features", "input_values", "pixel_values", "attention_mask"}
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class Heard:
    """What an encoder has read, and what it tells a decoder.

    Attributes:
        feed: ``encoder_hidden_states`` [1, length, width] and ``encoder_attention_mask`` [1, length].
    """

    source: Array
    feed: Mapping[str, Array]


def same(heard: Heard | None, source: Array) -> bool:
    return heard is not None and heard.source.shape == source.shape and bool(np.array_equal(heard.source, source))


class Encoder:
    """An encoder, for one source at a time.

    Args:
        session: reads token ids, features of sound, samples or a picture, and gives ``last_hidden_state``.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        names = [i.name for i in session.get_inputs()]
        own = [n for n in names if n != "attention_mask"]
        if len(own) != 1 or not set(names) <= _KNOWN or "last_hidden_state" not in {o.name for o in session.get_outputs()}:
            raise ValueError(f"the encoder reads {', '.join(names)}, which is of no kind that is known, or gives no last_hidden_state")
        self.input = next(i for i in session.get_inputs() if i.name == own[0])

    @property
    def reads_tokens(self) -> bool:
        return self.input.name == "input_ids"

    def source(self, given: Any) -> Array:
        """A source as the model takes it, [1, ...].

        Raises:
            ValueError: it is of another shape.
        """
        array = np.asarray(given, _TYPES[self.input.type])
        whole = array[None] if array.ndim == len(self.input.shape) - 1 else array
        fits = len(whole.shape) == len(self.input.shape) and all(
            not isinstance(d, int) or d == n for d, n in zip(self.input.shape, whole.shape, strict=True)
        )
        if not fits or whole.shape[0] != 1 or not whole.size:
            raise ValueError(f"the encoder reads {self.input.name!r} of {self.input.shape}, one at a time; it was given {array.shape}")
        return whole

    def _request(self, source: Array) -> dict[str, Array]:
        ones = np.ones((1, source.shape[-1]), np.int64)
        types = {i.name: _TYPES[i.type] for i in self.session.get_inputs()}
        return {n: source if n == self.input.name else ones.astype(dtype) for n, dtype in types.items()}

    def _heard(self, source: Array, hidden: Array) -> Heard:
        return Heard(source, {"encoder_hidden_states": hidden, "encoder_attention_mask": np.ones(hidden.shape[:2], np.int64)})

    def read(self, source: Array) -> Heard:
        return self._heard(source, self.session.run(["last_hidden_state"], self._request(source))[0])

    async def read_async(self, source: Array) -> Heard:
        return self._heard(source, (await self.session.run_async(["last_hidden_state"], self._request(source)))[0])
