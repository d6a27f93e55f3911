"""Finds what belongs to a model: its files, its tokenizer and template, the ends of its texts, how much it reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..gguf import file as gguf
from ..gguf.hints import KEY
from ..session import InferenceSession
from .text import from_files, from_gguf
from .vocabulary import TextError

_NAMES = (
    "decoder_model_merged.onnx", "model.onnx", "decoder_with_past_model.onnx", "model_q4.onnx", "model_quantized.onnx",
    "decoder_model_merged.ponnx", "decoder_with_past_model.ponnx", "model.ponnx",
)  # fmt: skip


@dataclass
class Export:
    """A model with what lies beside it.

    Attributes:
        first: the file that reads the beginning of a text, of exports in two files.
        encoder: the file that reads what a text is about.
        starts: tokens that a decoder's texts begin with, behind an encoder.
        never, never_first: tokens that are not to be chosen at all, and not as the first.
        context: how many tokens it reads.
        template: of chats.
        gguf: the model is a GGUF file.
    """

    model: Path
    first: Path | None = None
    encoder: Path | None = None
    starts: list[int] = field(default_factory=list)
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()
    tokenizer: Any = None
    context: int | None = None
    ends: list[int] = field(default_factory=list)
    begin: int | None = None
    template: str | None = None
    gguf: bool = False


def found(path: str | os.PathLike[str]) -> Export:
    """What a path means: a GGUF file, a model file, or the folder of an export.

    Raises:
        FileNotFoundError: there is no model.
    """
    at = Path(path)
    if at.is_file() and _is_gguf(at):
        return _from_gguf(at)
    folder = at if at.is_dir() else at.parent
    config = _json(folder / "genai_config.json").get("model", {})
    model = at if at.is_file() else _model_of(folder, config.get("decoder", {}).get("filename"))
    export = Export(model)
    if model.name.startswith("decoder_with_past_model"):
        export.first = model.with_name(model.name.replace("_with_past", ""))
    encoder = model.with_name(re.sub("^decoder(_with_past)?_model(_merged)?", "encoder_model", model.name))
    if encoder != model and encoder.is_file():
        export.encoder = encoder
    for home in (folder, folder.parent) if folder.name == "onnx" else (folder,):
        if (home / "tokenizer.json").exists() or (home / "config.json").exists():
            _beside(export, home, config)
            break
    return export


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == gguf.MAGIC


def _model_of(folder: Path, name: str | None) -> Path:
    for home in (folder, folder / "onnx"):
        for candidate in (name,) if name else _NAMES:
            if (home / candidate).is_file():
                return home / candidate
    raise FileNotFoundError(f"{folder} holds no model ({name or ', '.join(_NAMES)})")


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    held = json.loads(path.read_text(encoding="utf-8"))
    return held if isinstance(held, dict) else {}


def _beside(export: Export, home: Path, genai: dict[str, Any]) -> None:
    config, generation, tokens = (_json(home / f"{n}.json") for n in ("config", "generation_config", "tokenizer_config"))
    export.tokenizer = from_files(home)
    lengths = (config.get(n) for n in ("max_target_positions", "max_position_embeddings", *(() if export.encoder else ("n_positions",))))
    export.context = genai.get("context_length") or next((n for n in lengths if n), None)
    if export.encoder:
        _behind(export, config, generation)
    export.begin = genai.get("bos_token_id", config.get("bos_token_id"))
    ends: Any = next(
        (e for e in (genai.get("eos_token_id"), generation.get("eos_token_id"), config.get("eos_token_id")) if e is not None), []
    )
    export.ends = list(ends) if isinstance(ends, Sequence) else [ends]
    jinja = home / "chat_template.jinja"
    template = jinja.read_text(encoding="utf-8") if jinja.exists() else tokens.get("chat_template")
    if isinstance(template, list):  # several by name
        template = next((t.get("template") for t in template if t.get("name") == "default"), None)
    export.template = template


def _behind(export: Export, config: dict[str, Any], generation: dict[str, Any]) -> None:
    """How a decoder's texts begin behind an encoder, as transformers' configurations say it."""
    said = {**config, **{k: v for k, v in generation.items() if v is not None}}
    start = next((said[k] for k in ("decoder_start_token_id", "bos_token_id") if said.get(k) is not None), None)
    export.starts = [] if start is None else list(start) if isinstance(start, list) else [start]
    forced = [token for _, token in said.get("forced_decoder_ids") or () if token is not None]
    export.starts += forced or ([said["forced_bos_token_id"]] if said.get("forced_bos_token_id") is not None else [])
    export.never, export.never_first = (tuple(said.get(k) or ()) for k in ("suppress_tokens", "begin_suppress_tokens"))


def _from_gguf(path: Path) -> Export:
    export = Export(path, gguf=True)
    file = gguf.read(path)
    try:
        export.tokenizer = from_gguf(file)
    except TextError:
        export.tokenizer = None
    return export


def told(export: Export, session: InferenceSession) -> None:
    """Adds what the compiled model itself says."""
    hints = session.get_modelmeta().custom_metadata_map.get(KEY)
    if not hints:
        return
    held = json.loads(hints)
    export.context = export.context or held.get("context_length")
    export.ends = export.ends or sorted({held[k] for k in ("eos", "eot") if k in held})
    export.template = export.template or held.get("chat_template")
    if export.begin is None and held.get("add_bos_token", False):
        export.begin = held.get("bos")
