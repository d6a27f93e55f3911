"""Matrix products: one kernel over any strides, with bias, residual and activation fused by passes."""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..ir import Graph, IRError, Node, Value, dims
from ..ir.dims import DimLike
from ..registry import Enum, Kernel, Step, adjoint, op
from ..tensor import HALVES, broadcast, broadcast_shapes, broadcast_to, cast, like, map_, reshape, squeeze, summed_to, swap, unsqueeze

AFTER_RESIDUAL = 100
ACTIVATIONS = Enum(
    "Activation",
    "none relu clip sigmoid tanh silu gelu gelu_tanh leaky_relu hardsigmoid hardswish elu",
    flag=("after_residual", AFTER_RESIDUAL),
)
BATCH_RANK = 6


def activation_params(node: Node) -> dict[str, Any]:
    """``act`` as (name, a, b), applied before the residual unless ``act_last``."""
    name, a, b = node.params.get("act", ("none", 0.0, 0.0))
    last = AFTER_RESIDUAL if node.params.get("act_last") and name != "none" else 0
    return {"act": ACTIVATIONS.index(name) + last, "act_a": a, "act_b": b}


def _params(node: Node) -> dict[str, Any]:
    a, b, y = node.ins["a"], node.ins["b"], node.out
    bias, residual = node.ins.get("bias"), node.ins.get("residual")
    batch, strides = batch_of(y, [a, b, y, *([residual] if residual is not None else [])])
    return {
        "nb": len(batch), "batch": batch, "abatch": strides[0], "bbatch": strides[1], "ybatch": strides[2],
        "m": y.shape[-2], "n": y.shape[-1], "k": a.shape[-1], "aoff": a.offset, "a_rs": a.strides[-2], "a_cs": a.strides[-1],
        "boff": b.offset, "b_rs": b.strides[-2], "b_cs": b.strides[-1], "yoff": y.offset, "y_rs": y.strides[-2],
        "bias_ms": bias.strides[0] if bias is not None else 0, "bias_ns": bias.strides[1] if bias is not None else 0,
        "band": node.params.get("band", 0),
        "res_off": residual.offset if residual is not None else 0, "res_rs": residual.strides[-2] if residual is not None else 0,
        "resbatch": strides[3] if residual is not None else 0, "alpha": node.params.get("alpha", 1.0), **activation_params(node),
    }  # fmt: skip


def batch_of(y: Value, values: list[Value]) -> tuple[list[DimLike], list[list[DimLike]]]:
    """Leading axes, neighbours merged where all operands walk them evenly."""
    batch: list[DimLike] = []
    strides: list[list[DimLike]] = [[] for _ in values]
    for axis, size in enumerate(y.shape[:-2]):
        if size == 1:
            continue
        here = [v.strides[axis] for v in values]
        if batch and all(dims.same(s[-1], h * size) for s, h in zip(strides, here, strict=True)):
            batch[-1] = batch[-1] * size
            for s, h in zip(strides, here, strict=True):
                s[-1] = h
            continue
        batch.append(size)
        for s, h in zip(strides, here, strict=True):
            s.append(h)
    if len(batch) > BATCH_RANK:
        raise IRError(f"more than {BATCH_RANK} batch dimensions")
    return batch, strides


MATMUL = Kernel(
    "matmul",
    ">y a b bias? residual?",
    "nb batch[6] abatch[6] bbatch[6] ybatch[6] m n k aoff a_rs a_cs boff b_rs b_cs yoff y_rs bias_ms bias_ns"
    " res_off res_rs resbatch[6] act alpha:f act_a:f act_b:f band",
    _params,
    ("epilogue", "strided", "smooth"),
    {"act": ACTIVATIONS},
)

#: Weights [k, n], or [n, k] where ``transposed``, both row-major, in the order in which the machine that runs this reads them, ``band``
#: rows of k together.
PACK = Kernel("pack", ">y w", "k n band transposed", None, ("inplace",))


def matmul(a: Value, b: Value, alpha: float = 1.0) -> Value:
    """numpy.matmul: [..., m, k] times [..., k, n], vectors promoted; float32 for the halves, int32 for small integers."""
    if a.dtype is not b.dtype:
        raise IRError(f"operands have dtypes {a.dtype.name} and {b.dtype.name}")
    if a.rank == 0 or b.rank == 0:
        raise IRError("an operand is a scalar")
    if a.dtype in HALVES:
        return cast(matmul(cast(a, DType.float32), cast(b, DType.float32), alpha), a.dtype)
    if a.dtype.is_int and a.dtype.bits < 32:
        return cast(matmul(cast(a, DType.int32), cast(b, DType.int32)), a.dtype)
    vector = b.rank == 1
    if a.rank == 1:
        b = unsqueeze(b, [1]) if vector else b
        return squeeze(matmul(unsqueeze(a, [0]), b, alpha), [-2, -1] if vector else [-2])
    if vector:
        return squeeze(matmul(a, unsqueeze(b, [1]), alpha), [-1])
    k, other = a.shape[-1], b.shape[-2]
    if not dims.same(k, other):
        Graph.current().check(dims.eq(k, other), f"inner sizes differ: {k} and {other}")
    if b.rank == 2 and a.rank > 2 and a.contiguous:
        flat = matmul(reshape(a, [dims.product(a.shape[:-1]), k]), b, alpha)
        return reshape(flat, [*a.shape[:-1], b.shape[-1]])
    a, b = broadcast(a, b, keep=2)
    y: Value = MATMUL({"y": (a.dtype, [*a.shape[:-1], b.shape[-1]])}, {"a": a, "b": b}, alpha=alpha)
    return y


@op()
def MatMul(A: Value, B: Value) -> Value:
    return matmul(A, B)


@op(since=7)
def Gemm(A: Value, B: Value, C: Value | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Value:
    a, b = swap(A, 0, 1) if transA else A, swap(B, 0, 1) if transB else B
    if not (A.dtype.is_float or (alpha == int(alpha) and beta == int(beta))):
        wide = [None if v is None else cast(v, DType.float64) for v in (a, b, C)]
        return cast(Gemm(*wide, alpha=alpha, beta=beta), A.dtype)
    if A.dtype.is_float:
        y = matmul(a, b, alpha)
    else:
        y = matmul(a, b)
        y = map_("mul", y, like(y, alpha)) if alpha != 1 else y
    if C is None or beta == 0:
        return y
    return map_("add", y, map_("mul", C, like(C, beta)) if beta != 1 else C)


@op("Gemm", since=1, until=6)
def Gemm_1(
    A: Value, B: Value, C: Value, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0
) -> Value:
    return Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)  # type: ignore[no-any-return]


@op()
def Einsum(*Inputs: Value, equation: str) -> Value:
    """Sums of products by label (numpy.einsum): one operand after another is multiplied in and its finished labels are summed."""
    terms, result = _labels(equation, [x.rank for x in Inputs])
    left, labels = _diagonal(Inputs[0], terms[0])
    for i, (x, term) in enumerate(zip(Inputs[1:], terms[1:], strict=True)):
        right, names = _diagonal(x, term)
        later = set(result).union(*terms[i + 2 :])
        left, labels = _contract(left, labels, right, names, later)
    left, labels = _sum_out(left, labels, set(result))
    from ..tensor import transpose

    return transpose(left, [labels.index(c) for c in result])


def _labels(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Label strings per operand and for the result; ellipsis axes become the digits 0..9, right-aligned."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise IRError(f"equation {equation!r} names {len(terms)} operands, there are {len(ranks)}")
    spread = [r - len(t.replace("...", "")) if "..." in t else 0 for t, r in zip(terms, ranks, strict=True)]
    most = max(spread)
    digits = "0123456789"[10 - most :] if most else ""
    full = [t.replace("...", digits[most - s :] if s else "") for t, s in zip(terms, spread, strict=True)]
    for term, rank in zip(full, ranks, strict=True):
        if len(term) != rank:
            raise IRError(f"equation {equation!r}: term {term!r} does not fit rank {rank}")
    joined = "".join(full)
    result = (
        right.replace("...", digits) if arrow else digits + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c.isalpha()))
    )
    return full, result


def _diagonal(x: Value, term: str) -> tuple[Value, str]:
    """Repeated labels of one operand walk its diagonal."""
    while len(set(term)) < len(term):
        first = next(i for i, c in enumerate(term) if c in term[i + 1 :])
        second = term.index(term[first], first + 1)
        Graph.current().check(
            dims.eq(x.shape[first], x.shape[second]), f"label {term[first]!r} stands for sizes that differ in one operand"
        )
        shape, strides = list(x.shape), list(x.strides)
        strides[first] = strides[first] + strides[second]
        del shape[second], strides[second]
        x, term = x.view(shape, x.offset, strides), term[:second] + term[second + 1 :]
    return x, term


def _sum_out(x: Value, labels: str, keep: set[str]) -> tuple[Value, str]:
    from ..tensor import reduce

    drop = [i for i, c in enumerate(labels) if c not in keep]
    if not drop:
        return x, labels
    narrow = x.dtype.is_int and x.dtype.bits < 32  # sums of these wrap: modulo 2^bits, as one in int32 that is cast back
    total = cast(reduce("sum", cast(x, DType.int32), drop), x.dtype) if narrow else reduce("sum", x, drop)
    return total, "".join(c for c in labels if c in keep)


def _contract(a: Value, la: str, b: Value, lb: str, later: set[str]) -> tuple[Value, str]:
    from ..tensor import transpose

    a, la = _sum_out(a, la, later | set(lb))
    b, lb = _sum_out(b, lb, later | set(la))
    batch = [c for c in la if c in lb and c in later]
    summed = [c for c in la if c in lb and c not in later]
    rows, columns = [c for c in la if c not in lb], [c for c in lb if c not in la]
    size = dict(zip(la, a.shape, strict=True))
    for c, s in zip(lb, b.shape, strict=True):
        (size[c],) = broadcast_shapes((size.get(c, 1),), (s,))

    def want(labels: list[str]) -> list[DimLike]:
        return [size[c] for c in labels]

    a = broadcast_to(transpose(a, [la.index(c) for c in [*batch, *rows, *summed]]), want([*batch, *rows, *summed]))
    b = broadcast_to(transpose(b, [lb.index(c) for c in [*batch, *summed, *columns]]), want([*batch, *summed, *columns]))
    m, k, n = (dims.product(want(cs)) for cs in (rows, summed, columns))
    y = matmul(reshape(a, [*want(batch), m, k]), reshape(b, [*want(batch), k, n]))
    return reshape(y, [*want(batch), *want(rows), *want(columns)]), "".join([*batch, *rows, *columns])


@adjoint("MatMul")
def _back_matmul(step: Step) -> list[Value | None]:
    a, b = step.inputs
    g = step.grad if b.rank > 1 else unsqueeze(step.grad, [step.grad.rank])
    left, right = a if a.rank > 1 else unsqueeze(a, [0]), b if b.rank > 1 else unsqueeze(b, [1])
    g = g if a.rank > 1 else unsqueeze(g, [g.rank - 1])
    by_a = matmul(g, swap(right, right.rank - 2, right.rank - 1))
    by_b = matmul(swap(left, left.rank - 2, left.rank - 1), g)
    return [reshape(summed_to(by_a, left.shape), a.shape), reshape(summed_to(by_b, right.shape), b.shape)]


@adjoint("Gemm")
def _back_gemm(step: Step) -> list[Value | None]:
    a, b, *c = step.inputs
    alpha, beta = step.attrs.get("alpha", 1.0), step.attrs.get("beta", 1.0)
    turned = step.attrs.get("transA", 0), step.attrs.get("transB", 0)
    by_a = matmul(step.grad, b if turned[1] else swap(b, 0, 1), alpha)
    by_b = matmul(a if turned[0] else swap(a, 0, 1), step.grad, alpha)
    found: list[Value | None] = [swap(by_a, 0, 1) if turned[0] else by_a, swap(by_b, 0, 1) if turned[1] else by_b]
    if c and c[0] is not None:
        found.append(summed_to(map_("mul", step.grad, like(step.grad, beta)), c[0].shape))
    return found
