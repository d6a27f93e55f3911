"""What a file says of how text is made with it, for whoever generates: tokens, template, length."""

from __future__ import annotations

import json

from ..onnxfile.protobuf import ReadError
from .file import File

KEY = "generation"


def generation(file: File) -> dict[str, str]:
    """As one entry of a model's metadata, in JSON: context length, the ids of special tokens, the chat's template."""
    architecture = file.metadata.get("general.architecture", "")
    found: dict[str, object] = {"context_length": file.count(f"{architecture}.context_length", most=1 << 40)}
    for name in ("bos", "eos", "eot"):
        key = f"tokenizer.ggml.{name}_token_id"
        if key in file.metadata:
            value = file.number(key)
            if value != int(value) or value < 0:
                raise ReadError(f"metadata {key!r} is {value}, no token")
            found[name] = int(value)
    for name in ("add_bos_token", "add_eos_token"):
        if isinstance(given := file.metadata.get(f"tokenizer.ggml.{name}"), bool):
            found[name] = given
    if isinstance(template := file.metadata.get("tokenizer.chat_template"), str):
        found["chat_template"] = template
    return {KEY: json.dumps(found)}
