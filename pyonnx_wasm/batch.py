"""Batch inference on the engines that people have: what the recipes for Dask, Ray Data and Spark share (`docs/guides/batch.md`)."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .dtypes import DType, to_numpy
from .options import SessionOptions
from .session import InferenceSession

_SESSIONS: dict[tuple[str, Any, int], InferenceSession] = {}  # of this process
_LOCK = threading.Lock()


class BatchModel:
    """A model that runs on batches of rows, in whichever process it finds itself.

    It is picklable and holds the file's bytes, so that an engine broadcasts it once; each process makes one session of it, at the first
    batch, whatever the number of tasks, and keeps it.

    Args:
        source: an ``.onnx`` or ``.ponnx`` file, or its bytes. External data must be part of it: compile the model first.
        inputs: the column for each input of the model, where their names differ.
        outputs: the outputs wanted; by default all.
        providers: as :class:`InferenceSession` takes them.
        threads: of each session: engines run a process per core.
        rows: how many go through the model at once.
    Raises:
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Sequence[str] | None = None,
        providers: Sequence[str] | None = None,
        threads: int = 1,
        rows: int = 1024,
    ) -> None:
        if rows < 1:
            raise ValueError(f"rows must be 1 or more, not {rows}")
        self.data = source if isinstance(source, bytes) else Path(source).read_bytes()
        self.key = hashlib.sha256(self.data).hexdigest()
        self.inputs, self.outputs = dict(inputs or {}), outputs and list(outputs)
        self.providers, self.threads, self.rows = providers and tuple(providers), threads, rows

    @property
    def session(self) -> InferenceSession:
        """This process's session."""
        place = (self.key, self.providers, self.threads)
        with _LOCK:
            if place not in _SESSIONS:
                options = SessionOptions()
                options.intra_op_num_threads = self.threads
                _SESSIONS[place] = InferenceSession(self.data, options, self.providers and list(self.providers))
            return _SESSIONS[place]

    def __call__(self, batch: Any) -> Any:
        """Runs a batch of rows.

        Args:
            batch: a pandas DataFrame, or arrays by column; a row of a column may be an array or a list. Other columns stay as they are.
        Returns:
            The batch with a column for each output, of the same kind and as many rows: numbers where an output has one per row, else
            arrays. No row is the same for none.
        Raises:
            KeyError: a column is missing.
            ValueError: as :meth:`InferenceSession.run`; or an output has not a row for each row.
        """
        session = self.session
        wanted = [s for s in session.signature()[1] if not self.outputs or s.name in self.outputs]
        columns = {s.name: batch[self.inputs.get(s.name, s.name)] for s in session.signature()[0]}
        count = min(map(len, columns.values()), default=0)
        if count:
            arrays = {s.name: _stacked(columns[s.name], s.dtype) for s in session.signature()[0]}
            results = self._run(session, arrays, count, [s.name for s in wanted])
        else:
            results = {s.name: np.empty((0,) * max(1, len(s.shape)), to_numpy(s.dtype)) for s in wanted}
        if hasattr(batch, "assign"):
            return batch.assign(**{name: array if array.ndim == 1 else list(array) for name, array in results.items()})
        return {**batch, **results}

    def _run(self, session: InferenceSession, arrays: Mapping[str, np.ndarray], count: int, wanted: list[str]) -> dict[str, np.ndarray]:
        parts: list[list[np.ndarray]] = [[] for _ in wanted]
        for start in range(0, count, self.rows):
            size = min(self.rows, count - start)
            feed = {name: array[start : start + size] for name, array in arrays.items()}
            for part, name, found in zip(parts, wanted, session.run(wanted, feed), strict=True):
                if found.ndim == 0 or len(found) != size:
                    raise ValueError(f"output {name!r} has shape {list(found.shape)} for {size} rows: it has no row for each")
                part.append(found)
        return {name: np.concatenate(part) for name, part in zip(wanted, parts, strict=True)}


def _stacked(column: Any, dtype: DType) -> np.ndarray:
    """A column as one array of the input's dtype, with a row in front."""
    array = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if array.dtype == object and len(array) and not isinstance(array[0], str):
        array = np.stack([np.asarray(row) for row in array])
    return array if dtype is DType.string else np.ascontiguousarray(array, to_numpy(dtype))
