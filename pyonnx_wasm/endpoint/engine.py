"""One thread that writes the texts of all requests, several in each turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..generate import Generation, Generator, Token

#: Is told each token, and None when the text has ended.
Listener = Callable[[Token | None], None]


class Full(Exception):
    """More texts are asked for than may wait."""


class Engine:
    """Writes texts as they are asked for.

    Args:
        at_once: how many are written in one turn.
        queue: how many more may wait.
    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, generator: Generator, at_once: int = 8, queue: int = 32) -> None:
        if queue < 0:
            raise ValueError(f"queue is {queue}; it must be 0 or more")
        self.generator, self.most = generator, at_once + queue
        self._together = generator.together(at_once)
        self._listeners: dict[Generation, Listener] = {}
        self._fresh: list[Generation] = []
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="texts", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Texts that have not ended."""
        return len(self._listeners)

    def submit(self, texts: Sequence[tuple[Generation, Listener]]) -> None:
        """Begins texts; listeners are called from the engine's thread.

        Raises:
            Full: too many wait; none was begun.
        """
        with self._changed:
            if self._closed or len(self._listeners) + len(texts) > self.most:
                raise Full(f"{len(self._listeners)} texts are being written or wait, {self.most} may: try again later")
            for generation, listener in texts:
                self._listeners[generation] = listener
                self._fresh.append(generation)
            self._changed.notify()

    def close(self) -> None:
        """Ends all texts."""
        with self._changed:
            self._closed = True
            for generation in self._listeners:
                generation.cancel()
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._fresh or self._together.busy or self._closed):
                    self._changed.wait()
                fresh, self._fresh = self._fresh, []
            try:
                for generation in fresh:
                    self._together.add(generation)
                for generation, token in self._together.turn():
                    self._listeners[generation](token)
            except Exception as error:  # the texts are lost, the engine is not
                self._lost(error)
            self._end()
            if self._closed and not self._listeners:
                return

    def _lost(self, error: Exception) -> None:
        for generation in [g for g in self._listeners if g not in self._fresh]:
            generation.fail(error)
        self._together = self.generator.together(self._together.at_once)

    def _end(self) -> None:
        with self._changed:
            ended = [(g, tell) for g, tell in self._listeners.items() if g.reason is not None and g not in self._fresh]
            for generation, _ in ended:
                del self._listeners[generation]
        for _, tell in ended:
            tell(None)
