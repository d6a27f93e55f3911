"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..ir import Node, Value
from ..ir.dims import DimLike
from ..registry import Kernel


def _params(node: Node) -> dict[str, Any]:
    q, k, v, y, mask, p = node.ins["q"], node.ins["k"], node.ins["v"], node.out, node.ins.get("mask"), node.params
    batch, heads, sq, d = q.shape
    strides = (
        {"m_b": 0, "m_h": 0, "m_q": 0, "m_k": 0} if mask is None else dict(zip(("m_b", "m_h", "m_q", "m_k"), mask.strides, strict=True))
    )
    return {
        "batch": batch,
        "heads": heads,
        "rep": p.get("rep", 1),
        "sq": sq,
        "sk": k.shape[2],
        "d": d,
        "dv": v.shape[3],
        "causal": p.get("causal", 0),
        "past": p.get("past", 0),
        "nan_rows": p.get("nan_rows", 0),
        "qoff": q.offset,
        "q_b": q.strides[0],
        "q_h": q.strides[1],
        "q_s": q.strides[2],
        "koff": k.offset,
        "k_b": k.strides[0],
        "k_h": k.strides[1],
        "k_s": k.strides[2],
        "k_d": k.strides[3],
        "voff": v.offset,
        "v_b": v.strides[0],
        "v_h": v.strides[1],
        "v_s": v.strides[2],
        "moff": 0 if mask is None else mask.offset,
        **strides,
        "yoff": y.offset,
        "y_b": y.strides[0],
        "y_h": y.strides[1],
        "y_s": y.strides[2],
        "scale": p["scale"],
        "softcap": p.get("softcap", 0.0),
    }


ATTENTION = Kernel(
    "attention",
    ">y q k v mask?",
    "batch heads rep sq sk d dv causal past nan_rows qoff q_b q_h q_s koff k_b k_h k_s k_d voff v_b v_h v_s moff m_b m_h m_q m_k"
    " yoff y_b y_h y_s scale:f softcap:f",
    _params,
    ("strided", "smooth"),
)


def attention(
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    scale: float,
    *,
    rep: int = 1,
    causal: bool = False,
    past: DimLike = 0,
    softcap: float = 0.0,
    nan_rows: bool = False,
) -> Value:
    """softmax(softcap(scale * q k^T) + mask) v.

    Args:
        q, k, v: float32 [batch, heads, length, size]; unit stride over size in q and v.
        mask: float32, broadcast to [batch, heads, sq, sk], added before softmax.
        rep: heads of q per head of k and v.
        causal: query i sees keys up to i + past.
        nan_rows: a row whose keys are all masked is NaN, as softmax has it; else zeros, as Attention has it.
    Returns:
        float32 [batch, heads, sq, dv], laid out as [batch, sq, heads, dv].
    """
    from ..tensor import transpose

    batch, heads, sq, _ = q.shape
    shape: list[DimLike] = [batch, sq, heads, v.shape[3]]
    meaning: dict[str, Any] = {
        "scale": scale,
        "rep": rep,
        "causal": int(causal),
        "past": past,
        "softcap": softcap,
        "nan_rows": int(nan_rows),
    }
    y: Value = ATTENTION({"y": (DType.float32, shape)}, {"q": q, "k": k, "v": v, "mask": mask}, **meaning)
    seen = transpose(y, [0, 2, 1, 3])
    node = y.producer
    assert node is not None
    node.outs["y"] = seen
    return seen
