"""Convolutions of bytes with their channels side by side in memory, and what lies between them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ..dtypes import DType
from ..ir import Node, Storage, Value, dims
from ..ops.quantized import QCONV, QCONV_LAST
from ..tensor import CONCAT, COPY, MAP, split_strides
from .pack import packed

MOST_TAPS = 256  # of a depthwise window
LAST = (0, 2, 3, 1)  # the axes in memory


def channels_last(nodes: Sequence[Node], kept: Collection[Storage], init: list[Node]) -> list[Node]:
    """The nodes with others in place of convolutions that the core does faster that way, and copies where what is around them is laid
    out as it was; what packs their weights joins ``init``.

    Args:
        kept: storages that are read where no node shows.
    """
    chosen = {node for node in nodes if _suits(node)}
    return Layouts(nodes, kept, init, chosen).rewritten() if chosen else list(nodes)


def _suits(node: Node) -> bool:
    if node.kernel is not QCONV or node.ins.get("scale") is None or node.ins.get("residual") is not None:
        return False
    x, w = node.ins["x"], node.ins["w"]
    if x.rank != 4 or not (x.whole and node.out.whole and w.whole and w.storage.const and all(isinstance(n, int) for n in w.shape)):
        return False
    zero, group = node.ins.get("wzero"), node.params["group"]
    if zero is not None and not zero.storage.const:
        return False
    return group == 1 or (dims.same(x.shape[1], group) and w.shape[0] == group and w.shape[2] * w.shape[3] <= MOST_TAPS)


class Layouts:
    """Which storages have their channels side by side, and the nodes that follow from it."""

    def __init__(self, nodes: Sequence[Node], kept: Collection[Storage], init: list[Node], chosen: set[Node]) -> None:
        self.nodes, self.kept, self.init, self.chosen = nodes, kept, init, chosen
        self.shapes: dict[Storage, tuple[dims.DimLike, ...]] = {}  # of storages that are laid out so, as (n, c, h, w)
        self.readers: dict[Storage, list[Node]] = {}
        self.out: list[Node] = []
        self.copies: dict[tuple[Storage, bool], Value] = {}
        self.moved = self._moved()

    def _moved(self) -> set[Node]:
        """The element-wise calls whose results are to lie so: up from what convolutions read, and down from what they write."""
        for node in self.nodes:
            for value in node.inputs():
                self.readers.setdefault(value.storage, []).append(node)
        moved: set[Node] = set()
        for node in reversed(self.nodes):
            if _movable(node) and node.out.storage not in self.kept:
                wanted = [r for r in self.readers.get(node.out.storage, ()) if r in self.chosen or r in moved]
                if wanted:
                    moved.add(node)
        results = {n.out.storage for n in self.chosen | moved}
        for node in self.nodes:
            if _movable(node) and node not in moved and node.out.storage not in self.kept:
                given = any(v.storage in results and v.shape == node.out.shape for v in node.inputs())
                if given and any("strided" in r.kernel.traits for r in self.readers.get(node.out.storage, ())):
                    moved.add(node)
                    results.add(node.out.storage)
        return moved

    def rewritten(self) -> list[Node]:
        for node in self.nodes:
            if node in self.chosen:
                self._convolution(node)
            elif node in self.moved:
                self._elementwise(node)
            else:
                self.out.append(self._reading(node))
        return self.out

    def _convolution(self, node: Node) -> None:
        x, w, group = node.ins["x"], node.ins["w"], node.params["group"]
        x = self._last(x, node.origin)
        m, c, kh, kw = w.shape
        zero, by_taps = node.ins.get("wzero"), group != 1
        if by_taps:
            weights = packed(w.view([kh * kw, m], 0, [1, kh * kw]), self.init, node.origin, True, zero)
        else:
            if kh * kw > 1:
                w = self._copied(w.view([m, kh, kw, c], 0, [c * kh * kw, kw, 1, kh * kw]), node.origin, self.init)
            weights = packed(w.view([c * kh * kw, m], 0, [1, c * kh * kw]), self.init, node.origin)
        ins = {**node.ins, "x": x, "w": weights["b"], "sums": weights["sums"]} | ({"wzero": None} if by_taps else {})
        made = Node(QCONV_LAST, ins, {**node.params, "kernel": (kh, kw)}, node.origin)
        y = node.out
        if y.storage in self.kept:
            home = Storage(y.dtype, y.storage.size, "temp", producer=made)
            made.outs["y"] = last(home, y.dtype, y.shape)
            self.out += [made, _copy(made.outs["y"], y, node.origin)]
        else:
            self.shapes[y.storage] = y.shape
            made.outs["y"] = last(y.storage, y.dtype, y.shape)
            self.out.append(made)

    def _last(self, x: Value, origin: str) -> Value:
        """A whole value of [n, c, h, w] with its channels side by side, copied where it does not lie so."""
        if x.storage in self.shapes:
            return last(x.storage, x.dtype, x.shape)
        key = x.storage, True
        if key not in self.copies:
            home = Storage(x.dtype, x.size, "temp")
            self.copies[key] = last(home, x.dtype, x.shape)
            self.out.append(_copy(x, self.copies[key], origin))
        return self.copies[key]

    def _elementwise(self, node: Node) -> None:
        """The same call over the axes in their order in memory, in which its result is whole."""

        def permuted(v: Value) -> Value:
            return Value(v.storage, v.dtype, [v.shape[a] for a in LAST], v.offset, [v.strides[a] for a in LAST])

        params = node.params
        if node.kernel is CONCAT:
            params = {**params, "axis": LAST.index(params["axis"])}
        read = self._reading(node)
        made = Node(node.kernel, {"x": [permuted(v) for v in read.ins["x"]]}, params, node.origin)
        y = node.out
        self.shapes[y.storage] = y.shape
        made.outs["y"] = Value(y.storage, y.dtype, [y.shape[a] for a in LAST], 0)
        self.out.append(made)

    def _reading(self, node: Node) -> Node:
        """A call that reads what lies so as its kernel can."""
        if not any(v.storage in self.shapes for v in node.inputs()):
            return node
        strided = "strided" in node.kernel.traits
        made = Node(node.kernel, dict(node.ins), node.params, node.origin)
        made.replace(lambda v: self._view(v, strided, node.origin) if v.storage in self.shapes else v)
        made.outs = node.outs
        return made

    def _view(self, v: Value, strided: bool, origin: str) -> Value:
        shape = self.shapes[v.storage]
        whole = last(v.storage, v.storage.dtype, shape)
        if strided and v.whole:
            strides = whole.strides if v.shape == shape else split_strides(whole, v.shape)
            if strides is not None:
                return Value(v.storage, v.dtype, v.shape, 0, strides)
        if strided and (part := _part(v, whole)) is not None:
            return part
        key = v.storage, False
        if key not in self.copies:
            self.copies[key] = self._copied(whole, origin, self.out)
        home = self.copies[key]
        return Value(home.storage, v.dtype, v.shape, v.offset, v.strides)

    @staticmethod
    def _copied(x: Value, origin: str, to: list[Node]) -> Value:
        y = Value(Storage(x.dtype, x.size, "temp"), x.dtype, x.shape)
        node = _copy(x, y, origin)
        node.const = x.storage.const
        to.append(node)
        return y


def _movable(node: Node) -> bool:
    if node.kernel is not MAP and node.kernel is not CONCAT:
        return False
    if node.out.rank != 4 or not node.out.whole or node.out.dtype.bits < 8:
        return False
    return node.kernel is CONCAT or not any(name == "index" for name, *_ in node.params["code"])


def _part(v: Value, whole: Value) -> Value | None:
    """A part [n, c, h, w] of what lies in that order, where it lies with its channels side by side; None for views of other kinds."""
    sizes = [n for n in (*v.shape, *whole.shape, v.offset) if not isinstance(n, int)]
    if sizes or v.rank != 4 or v.dtype is not whole.dtype or any(n == 0 for n in v.shape):
        return None
    steps = [math.prod(whole.shape[axis + 1 :]) for axis in range(4)]
    begins = [v.offset // step % n for step, n in zip(steps, whole.shape, strict=True)]
    natural = all(n == 1 or stride == step for n, stride, step in zip(v.shape, v.strides, steps, strict=True))
    inside = all(begin + n <= size for begin, n, size in zip(begins, v.shape, whole.shape, strict=True))
    if not natural or not inside:
        return None
    return Value(v.storage, v.dtype, v.shape, sum(b * s for b, s in zip(begins, whole.strides, strict=True)), whole.strides)


def last(storage: Storage, dtype: DType, shape: Sequence[dims.DimLike]) -> Value:
    """A view [n, c, h, w] of what lies as [n, h, w, c]."""
    _, c, h, w = shape
    return Value(storage, dtype, shape, 0, [h * w * c, 1, w * c, c])


def _copy(x: Value, y: Value, origin: str) -> Node:
    node = Node(COPY, {"x": x}, {}, origin)
    y.storage.producer = node
    node.outs["y"] = y
    return node
