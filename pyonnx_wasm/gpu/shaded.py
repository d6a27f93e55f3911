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


def _fits(node: Node) -> bool:
    """Whether a GPU can run a step of the host: it has a shader, and few enough buffers of dtypes that GPUs have."""
    if "shader" not in node.params:
        return False
    outs, ins = list(node.outs.values()), _inputs(node)
    few = len(outs) <= MAX_OUTPUTS and len(outs) + len(ins) <= MAX_STORAGE_BUFFERS
    return few and all(v.dtype in wgsl.SUPPORTED for v in (*outs, *ins))


def _inputs(node: Node) -> Sequence[Any]:
    """What its shader reads: not the sizes that the host is told."""
    given: Sequence[Any] = node.ins["x"]
    return given[: len(given) - bool(node.params["callback"].outputs)]


def shaded(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with steps for GPUs in the place of those of the host that a GPU can run; the others stay the host's."""
    out: list[Node] = []
    for node in nodes:
        if node.kernel is not CUSTOM and _fits(node):
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
