"""``bench --generate``: tokens per second of decoders with weights of 4 bits, beside other libraries in the same page or process.

``models`` makes the decoders, ``web`` and ``native`` measure, and ``gpu`` ours alone on one. A library is added beside those of ``native``,
or in ``page.mjs``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import report
from . import gpu, models, native, web
from .models import SIZES

MODELS = Path("build/decoders")
WRITE = Path(__file__).parents[3] / "js/pages/write/write.gguf"


def run(
    sizes: list[str], *, on_core: bool, threads: int, peers: Path, rounds: int, tokens: str, without: list[str], in_page: bool,
    as_json: bool, on_gpu: bool = False, real_gpu: bool = False,
) -> None:  # fmt: skip
    """Measures and prints.

    Args:
        sizes: names of models; empty: all.
        on_core: natively, not in Chromium.
        threads: up to so many, one and twice as many each time.
        tokens: how many the prompt has and how many follow it, ``"128,32"``.
        peers: the folder in whose ``node_modules`` the other libraries lie.
        without: peers that are left out.
        on_gpu: ours alone: from Python, or else in Node.js.
        real_gpu: refuse software drivers.
    Raises:
        ValueError: no such model, or something needed is not installed.
    """
    for name in sizes:
        if name not in SIZES:
            raise ValueError(f"there is no model {name!r}; there are {', '.join(SIZES)}")
    length, _, count = tokens.partition(",")
    if not (length.isdigit() and count.isdigit() and int(length) > 0 and int(count) > 1):
        raise ValueError(f"--tokens is {tokens!r}; it must look like 128,32")
    how = int(length), int(count), rounds
    chosen = {name: SIZES[name] for name in sizes or SIZES}
    document: dict[str, Any] = {"mode": "generate", "machine": report.machine(), "rounds": rounds, "rows": []}
    with tqdm(disable=as_json or not sys.stderr.isatty(), leave=False) as bar:
        bar.set_description_str("models")
        for name, size in chosen.items():
            models.made(name, size, MODELS)
        measure = partial(_on_gpu, on_core, real_gpu) if on_gpu else _natively if on_core else _in_pages
        measure(document, chosen, [n for n in (1, 2, 4, 8, 16) if n <= threads], peers, how, without, in_page, bar.set_description_str)
    print(json.dumps(document) if as_json else gpu.render(document) if on_gpu else render(document))


def _on_gpu(
    on_core: bool, real_gpu: bool, document: dict[str, Any], chosen: dict[str, models.Size], _threads: list[int], _peers: Path,
    how: tuple[int, int, int], _without: list[str], _in_page: bool, tell: Callable[[str], None],
) -> None:  # fmt: skip
    with gpu.Python(real_gpu) if on_core else gpu.Node(real_gpu) as host:
        document["versions"] = host.versions
        for name, size in chosen.items():
            document["rows"].append(gpu.measured(host, size, models.made(name, size, MODELS)[0], *how, tell))


def _natively(
    document: dict[str, Any], chosen: dict[str, models.Size], threads: list[int], _peers: Path, how: tuple[int, int, int],
    without: list[str], _in_page: bool, tell: Callable[[str], None],
) -> None:  # fmt: skip
    names = [name for name in native.SIDES if name not in without]
    for name, size in chosen.items():
        for against in names:
            for count in threads:
                gguf, export = models.made(name, size, MODELS)
                document["rows"].append(native.compared(size, gguf, export, against, count, *how, tell))
    document["versions"] = native.versions(names)


def _in_pages(
    document: dict[str, Any], chosen: dict[str, models.Size], threads: list[int], peers: Path, how: tuple[int, int, int],
    without: list[str], in_page: bool, tell: Callable[[str], None],
) -> None:  # fmt: skip
    if WRITE.exists():
        (MODELS / "write.gguf").write_bytes(WRITE.read_bytes())
    with web.Pages(peers, MODELS, in_page) as pages:
        document["versions"] = pages.versions
        for name, size in chosen.items():
            for side, file in (("transformers", f"{name}/onnx/model_q4.onnx"), ("wllama", f"{name}.gguf")):
                for n in [] if web.TITLES[side] in without else threads:
                    document["rows"].append(web.compared(pages, size, file, side, n, *how, tell))
        tell("memory")
        document["memory"] = {size.title: web.memory(pages, f"{name}.gguf") for name, size in chosen.items()}
        if WRITE.exists():
            tell("first token")
            document["first_token"] = web.first_token(pages, "write.gguf")


def render(document: dict[str, Any]) -> str:
    """The measurement as a person reads it."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [f"{document['machine']['cpu']}, {document['machine']['cores']} cores; {versions}; medians of {document['rounds']} pairs", ""]
    if document["rows"]:  # none beside no peer
        lines.append(report.table([_cells(row) for row in document["rows"]]))
    for title, found in document.get("memory", {}).items():
        peak = "unknown" if found["peak_bytes"] is None else f"{found['peak_bytes'] / 1e9:.2f} GB"
        opened = f"opened in {found['create_ms'] / 1e3:.1f} s, first token after {found['first_ms']} ms more"
        lines.append(f"{title} in a page: {peak} over an empty page; {opened}")
    if "first_token" in document:
        told = document["first_token"]
        lines.append(f"Trained model, second visit: create {told['create_ms']:.0f} ms, first token {told['first_ms']:.0f} ms later")
    return "\n".join(lines)


def _cells(row: report.Row) -> dict[str, str]:
    def pair(values: list[float]) -> str:
        return " : ".join(f"{v:.0f}" if v >= 100 else f"{v:.1f}" for v in values)

    return {
        "model": row["case"],
        "against": row["against"],
        "threads": str(row["threads"]),
        f"prefill {row['prompt']}, tokens/s": pair(row["prefill"]),
        "ratio": f"{row['prefill_ratio']:.2f}×",
        "decode, tokens/s": pair(row["decode"]),
        "ratio ": f"{row['decode_ratio']:.2f}×",
        "copy GB/s": f"{row['copy_gbs']:.1f}",
        "of it": " : ".join(f"{share:.0%}" for share in row["of_bandwidth"]),
        "same tokens": row["same"],
    }
