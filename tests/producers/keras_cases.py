"""What both producers with Keras share: each network through ``model.export(format="onnx")``."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from case import Case
from keras_networks import NETWORKS, made


def exported(name: str, feeds: list[dict[str, np.ndarray]]) -> bytes:
    """Feeds are filled once the name of the input is known."""
    model, arrays = made(name)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        model(arrays[0])
        model.export(str(path), format="onnx", verbose=False)
        data = path.read_bytes()
    given = onnx.load_from_string(data).graph.input
    feeds.extend({given[0].name: a} for a in arrays)
    return data


def cases(backend: str) -> Iterator[Case]:
    logging.disable(logging.WARNING)
    for name in NETWORKS:
        feeds: list[dict[str, np.ndarray]] = []
        yield Case(f"keras-{name}", lambda name=name, feeds=feeds: exported(name, feeds), feeds, group=f"keras ({backend})")
