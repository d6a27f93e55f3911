"""What people wrote into a model and about operators: names of graphs, documentation of nodes and of the operators' schemas."""

from __future__ import annotations

import inspect
from typing import Any

from .. import ops
from ..gguf.file import MAGIC
from ..ir import IRError
from ..onnxfile import reader
from ..onnxfile.protobuf import scan, text
from ..registry import find

TEXT = 4000

ops.load_all()


def written(model: reader.Model) -> dict[str, Any]:
    """``graph``, its name; ``about``, its documentation; ``nodes``, documentation by the first output of a node; of ONNX files."""
    found: dict[str, Any] = {"graph": "", "about": "", "nodes": {}}
    buf = model._files.buffers[0]
    if bytes(buf[:4]) == MAGIC:
        return found
    graph = next(((a, b) for key, a, b in scan(buf, 0, len(buf)) if key == 0x3A), None)
    for key, a, b in scan(buf, *graph) if graph else ():
        if key == 0x12:
            found["graph"] = text(buf, a, b)
        elif key == 0x52:
            found["about"] = text(buf, a, b)[:TEXT]
        elif key == 0x0A:
            fields = {key: (a, b) for key, a, b in reversed(scan(buf, a, b)) if key in (0x12, 0x32)}
            if len(fields) == 2:
                found["nodes"][text(buf, *fields[0x12])] = text(buf, *fields[0x32])[:TEXT]
    return found


def operator(domain: str, name: str, opset: int) -> dict[str, Any]:
    """Documentation of an operator as its schema has it, and what implements it here.

    Returns:
        ``doc``, text; ``since``, the version that the opset selects; ``inputs``, ``outputs`` and ``attributes``: rows of name, type or
        default, text. What the schema tells needs the package ``onnx``; without it there are names and defaults alone. ``more`` is an
        address to read on, or empty.
    Raises:
        ValueError: neither a schema nor an implementation is known.
    """
    ours = _ours(domain, name, opset)
    schema = _schema(domain, name, opset)
    found = schema or ours
    if found is None:
        raise ValueError(f"nothing is known of the operator {domain or 'ai.onnx'}.{name}")
    pages = {"": "https://onnx.ai/onnx/operators/onnx__{}.html", "ai.onnx.ml": "https://onnx.ai/onnx/operators/onnx_aionnxml_{}.html"}
    more = pages[domain].format(name) if domain in pages else ""
    return {**found, "more": more, "supported": ours is not None}


def _ours(domain: str, name: str, opset: int) -> dict[str, Any] | None:
    try:
        entry = find(domain, name, opset)
    except IRError:
        return None
    defaults = entry.fn.__kwdefaults__ or {}
    attributes = [[a, "" if a in entry.needed else str(defaults.get(a)), ""] for a in entry.attrs]
    inputs = [[p, "", ""] for p in entry.params if p != "ctx"]
    return {"doc": inspect.getdoc(entry.fn) or "", "since": entry.since, "inputs": inputs, "outputs": [], "attributes": attributes}


def _schema(domain: str, name: str, opset: int) -> dict[str, Any] | None:
    try:
        from onnx import defs
    except ImportError:
        return None
    try:
        schema = defs.get_schema(name, opset, domain)
    except defs.SchemaError:
        return None
    attributes = []
    for a in schema.attributes.values():
        default = "" if a.required else _default(a.default_value)
        attributes.append([a.name, default, a.description.strip()])
    return {
        "doc": inspect.cleandoc(schema.doc or ""),
        "since": schema.since_version,
        "inputs": [[v.name, v.type_str, (v.description or "").strip()] for v in schema.inputs],
        "outputs": [[v.name, v.type_str, (v.description or "").strip()] for v in schema.outputs],
        "attributes": attributes,
    }


def _default(value: Any) -> str:
    from onnx import AttributeProto, helper

    if value.type == AttributeProto.UNDEFINED:
        return "none"
    found = helper.get_attribute_value(value)
    return found.decode() if isinstance(found, bytes) else f"{found:.6g}" if isinstance(found, float) else str(found)
