"""PyTorch's two exporters, over networks written here and torchvision's, with random weights."""

from __future__ import annotations

import io
import logging
import warnings
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import networks_control  # noqa: F401  they fill NETWORKS
import networks_sequence  # noqa: F401
import networks_vision  # noqa: F401
import numpy as np
import torch
from case import Case, main
from networks import NETWORKS, Feeds, Network
from torch import nn

OPSETS = {"dynamo": 20, "script": 18}


def dynamic(feeds: Feeds) -> dict[str, dict[int, str]]:
    """Names of the axes whose sizes differ between the feeds; equal pairs of sizes are one name."""
    axes: dict[str, dict[int, str]] = {}
    for name, first in feeds[0].items():
        sizes = enumerate(zip(first.shape, feeds[1][name].shape, strict=True))
        axes[name] = {i: f"d{a}_{b}" for i, (a, b) in sizes if a != b}
    return axes


def export(module: nn.Module, feeds: Feeds, exporter: str) -> bytes:
    given = tuple(torch.from_numpy(np.array(v)) for v in feeds[0].values())
    names, axes = list(feeds[0]), dynamic(feeds)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "script":
            file = io.BytesIO()
            torch.onnx.export(
                module, given, file, dynamo=False, input_names=names, dynamic_axes={k: v for k, v in axes.items() if v},
                    opset_version=OPSETS[exporter]
            )  # fmt: skip
            return file.getvalue()
        shapes = tuple(dict.fromkeys(axes[n], torch.export.Dim.DYNAMIC) for n in names)
        program = torch.onnx.export(
            module, given, dynamo=True, input_names=names, dynamic_shapes=shapes, opset_version=OPSETS[exporter], verbose=False
        )  # fmt: skip
        return bytes(program.model_proto.SerializeToString())


def case(name: str, exporter: str, network: Network, seed: int) -> Case:
    """The network is made with its inputs when it is exported, from a seed of its own."""
    feeds: Feeds = []

    def make() -> bytes:
        torch.manual_seed(seed)
        module, given = network.make(np.random.default_rng(seed))
        feeds.extend(given)
        return export(module if isinstance(module, torch.jit.ScriptModule) else module.eval(), feeds, exporter)

    return Case(f"{exporter}-{name}", make, feeds, network.tolerance, exporter)


def models(rng: np.random.Generator) -> Iterator[Case]:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    kept: dict[str, Any] = {
        name: partial(case, name, network=network, seed=zlib.crc32(name.encode())) for name, network in NETWORKS.items()
    }
    for exporter in ("dynamo", "script"):
        for name, made in kept.items():
            if exporter in NETWORKS[name].exporters:
                yield made(exporter)


if __name__ == "__main__":
    main(models)
