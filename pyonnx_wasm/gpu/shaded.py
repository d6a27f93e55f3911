"""Operators of one's own that a GPU runs: steps with a shader in the place of those that the host does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..callbacks import Shader
from ..ir import Node
from ..ops.callbacks import CUSTOM
from ..tensor import LITERAL
from . import wgsl

MAX_OUTPUTS = len(CUSTOM.outputs)
MAX_STORAGE_BUFFERS = 8  # bindings that every adapter has (WebGPU's default maxStorageBuffersPerShaderStage)


def on_host(node: Node) -> str:
    """Why the host has to run this step; "" where a GPU can, or where it is none of the host's."""
    callback = node.params.get("callback")
    if callback is None:
        return ""
    if "shader" not in node.params:
        return "it has operators that the host runs, between steps of the core"
    outs, ins = list(node.outs.values()), _inputs(node)
    unknown = next((v.dtype for v in (*outs, *ins) if v.dtype not in wgsl.SUPPORTED), None)
    if unknown is not None:
        return f"{callback}: GPUs have no {unknown.name}"
    if len(outs) > MAX_OUTPUTS or len(outs) + len(ins) > MAX_STORAGE_BUFFERS:
        most = f"at most {MAX_OUTPUTS} and {MAX_STORAGE_BUFFERS} are possible"
        return f"{callback}: its WGSL has {len(outs)} outputs and {len(outs) + len(ins)} buffers, {most}"
    return ""


def _inputs(node: Node) -> Sequence[Any]:
    """What its shader reads: not the sizes that the host is told."""
    given: Sequence[Any] = node.ins["x"]
    return given[: len(given) - bool(node.params["callback"].outputs)]


def shaded(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with steps for GPUs in the place of those of the host that have a shader."""
    out: list[Node] = []
    for node in nodes:
        if "shader" in node.params and node.kernel is not CUSTOM:
            shader: Shader = node.params["shader"]
            callback = node.params["callback"]
            label = f"{callback.domain}.{callback.name}" if callback.domain else callback.name
            params = {"shader": shader, "names": shader.names, "label": label}
            direct = Node(CUSTOM, {"x": list(_inputs(node))}, params, node.origin)
            direct.outs = dict(zip((b.name for b in CUSTOM.outputs), node.outs.values(), strict=False))
            node = direct
        out.append(node)
    read = {v.storage for node in out for v in node.inputs()}
    told = {v.storage for node in nodes if "shader" in node.params for v in node.inputs()} - read
    return [node for node in out if node.kernel is not LITERAL or node.out.storage not in told]
