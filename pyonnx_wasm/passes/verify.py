"""What must hold of a graph between passes."""

from __future__ import annotations

from ..ir import Graph, Node, Storage, Value, dims


def verify(graph: Graph, after: str, known: set[Node] | None = None) -> None:
    """Raises AssertionError, naming the pass and the call, when something does not hold of a graph. Takes time linear in its size.

    Args:
        known: calls that were found sound by themselves before, and need not be looked into again, since a call never changes;
            those of this graph are added.
    """
    known = set() if known is None else known
    written: set[Storage] = set()
    at: Node | str = "the inputs"
    try:
        for name, value in graph.inputs:
            if value.storage.kind != "input" or not value.whole or value.storage in written:
                raise AssertionError(f"{name}: {value} is none")
            written.add(value.storage)
        for node in graph.nodes:
            at = node
            if node not in known:
                _buffers(node)
                _views(node)
                known.add(node)
            _operands(node, written)
            _results(node, written)
        at = "the result"
        for name, value in [*graph.outputs, *[(name, read.value) for name, read in graph.reads.items()]]:
            if value.storage not in written and value.storage.kind != "const":
                raise AssertionError(f"{name} is never written")
            _inside(value)
    except AssertionError as error:
        where = at if isinstance(at, str) else f"{at.kernel.name} ({at.origin})"
        raise AssertionError(f"after {after}: {where}: {error}") from None


def _buffers(node: Node) -> None:
    """Every buffer that the kernel declares has what it takes, and there are no others."""
    present = 0
    for spec in node.kernel.buffers:
        got = (node.outs if spec.output else node.ins).get(spec.name)
        present += spec.name in (node.outs if spec.output else node.ins)
        if got is None and not spec.optional and not spec.variadic:
            raise AssertionError(f"lacks {spec.name}")
        if got is not None and isinstance(got, Value) == spec.variadic:
            raise AssertionError(f"{spec.name} takes {'a list' if spec.variadic else 'one value'}")
    if present < len(node.ins) + len(node.outs):
        raise AssertionError(f"has no {sorted({*node.ins, *node.outs} - {spec.name for spec in node.kernel.buffers})}")


def _views(node: Node) -> None:
    """Views lie inside their storages; what runs in init depends on no size."""
    together = "elementwise" in node.kernel.traits
    for value in node.inputs():
        if together and value.shape != node.out.shape and not _alike(value, node.out):
            raise AssertionError(f"reads {value} of another shape than {node.out}")
        _inside(value)
    for value in node.outs.values():
        _inside(value)
    if node.const and not node.fixed():
        raise AssertionError("runs in init and depends on sizes")


def _operands(node: Node, written: set[Storage]) -> None:
    """What a call reads was written before; what runs in init reads constants."""
    for value in node.inputs():
        storage = value.storage
        if storage not in written and storage.kind != "const":
            raise AssertionError(f"reads {value} before it is written")
        if node.const and not storage.const:
            raise AssertionError(f"runs in init and reads {value}, which does not")


def _results(node: Node, written: set[Storage]) -> None:
    """Each storage is written once, by the call that it names."""
    for value in node.outs.values():
        storage = value.storage
        if storage.kind != "temp":
            raise AssertionError(f"writes {value}, which is of kind {storage.kind}")
        if storage in written:
            raise AssertionError(f"writes {value}, which has been written")
        if storage.producer is not node:
            raise AssertionError(f"writes {value}, which names another producer")
        written.add(storage)


def _alike(a: Value, b: Value) -> bool:
    return a.rank == b.rank and all(dims.same(x, y) for x, y in zip(a.shape, b.shape, strict=True))


def _inside(value: Value) -> None:
    """No element of a view lies outside its storage, as far as sizes are known."""
    offset, count = value.offset, value.storage.size
    if not isinstance(count, int) or not isinstance(offset, int):
        return
    low = high = offset
    for size, stride in zip(value.shape, value.strides, strict=True):
        if size == 0 or not isinstance(size, int) or not isinstance(stride, int):
            return
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    if low < 0 or (high + 1) * value.dtype.bits > -(-value.storage.dtype.bits * count // 8) * 8:
        raise AssertionError(f"{value} at {offset} with strides {list(value.strides)} leaves its {count} elements")
