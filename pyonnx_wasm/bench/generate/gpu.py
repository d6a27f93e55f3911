"""Ours alone on a GPU: in Node.js by way of Dawn, or from Python through wgpu."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ...generate import Generator
from .. import report
from ..dawn import Host
from ..web import ONNXRUNTIME_WEB, PLAYERS
from . import native
from .models import Size
from .web import HERE, prompt


class Writer(Protocol):
    """What opens decoders on a GPU.

    Attributes:
        versions: of what is measured, and the adapter's name.
    """

    versions: dict[str, str]

    def open(self, gguf: Path) -> None: ...

    def write(self, ids: Sequence[int], count: int) -> tuple[float, list[float]]:
        """Milliseconds to the first token, and for each further one."""


class Node(AbstractContextManager["Node"]):
    """Raises ValueError where the player, Node.js, the npm package ``webgpu`` or a GPU is missing."""

    def __init__(self, real_gpu: bool) -> None:
        player = next((p for p in PLAYERS if (p / "generate.mjs").exists()), None)
        if player is None:
            raise ValueError("the player is not built: run `make build`")
        self._library = player.resolve().as_uri() + "/"
        self._host = Host(ONNXRUNTIME_WEB.parent / "webgpu", HERE / "page.mjs", real_gpu)
        self._stack = ExitStack()

    def __enter__(self) -> Node:
        self._host.find()
        self.versions = self._host.versions
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def open(self, gguf: Path) -> None:
        self._stack.close()
        self._process = self._stack.enter_context(self._host.process())
        options = {"worker": False, "executionProviders": ["webgpu", "wasm"]}
        self._process.call("open", ["ours", {"library": self._library, "model": str(gguf.resolve()), "threads": 1, **options}])

    def write(self, ids: Sequence[int], count: int) -> tuple[float, list[float]]:
        told = self._process.call("write", ["ours", list(ids), count])
        return told["first"], told["gaps"]


class Python(AbstractContextManager["Python"]):
    """Raises ValueError where wgpu or a GPU is missing."""

    def __init__(self, real_gpu: bool) -> None:
        try:
            import wgpu
        except ImportError as error:
            raise ValueError("wgpu is missing: pip install pyonnx-wasm[gpu]") from error
        self._side: native.Side | None = None
        info = wgpu.gpu.request_adapter_sync(power_preference="high-performance").info
        if real_gpu and info["adapter_type"] == "CPU":
            raise ValueError(f"--real-gpu: wgpu finds {info['device']} alone, which is software: install the GPU's Vulkan driver")
        self.versions = {"wgpu": wgpu.__version__, "adapter": info["device"]}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._side = None

    def open(self, gguf: Path) -> None:
        self._side = OnGpu(gguf)

    def write(self, ids: Sequence[int], count: int) -> tuple[float, list[float]]:
        assert self._side
        return native.written(self._side, ids, count)[:2]


class OnGpu(native.Ours):
    def __init__(self, gguf: Path) -> None:
        self.decoder = Generator(gguf, False, providers=["gpu"]).decoder


def measured(
    host: Writer, size: Size, gguf: Path, length: int, count: int, rounds: int, tell: Callable[[str], None]
) -> report.Row:  # fmt: skip
    """One row: medians of prefill and decode, and the bytes of weights that so many tokens read."""
    tell("open")
    host.open(gguf)
    first, each = [], []
    for turn in range(-1, rounds):  # the first to warm up
        tell(str(turn + 1))
        begin, gaps = host.write(prompt(length, turn + 1), count)
        if turn >= 0:
            first.append(begin)
            each.append(statistics.median(gaps))
    a, b = statistics.median(first), statistics.median(each)
    return {
        "case": size.title, "prompt": length, "rounds": rounds, "prefill": round(1000 * length / a, 2), "decode": round(1000 / b, 2),
        "read_gbs": round(size.read_bytes / b / 1e6, 2),
    }  # fmt: skip


def render(document: dict[str, Any]) -> str:
    """The measurement as a person reads it."""
    lines = [", ".join(f"{name} {version}" for name, version in document["versions"].items()), ""]
    cells = [
        {
            "model": row["case"], f"prefill {row['prompt']}, tokens/s": f"{row['prefill']:.0f}", "decode, tokens/s": f"{row['decode']:.1f}",
            "weights read, GB/s": f"{row['read_gbs']:.1f}",
        }
        for row in document["rows"]
    ]  # fmt: skip
    return "\n".join([*lines, report.table(cells)])
