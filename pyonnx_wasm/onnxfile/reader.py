"""Reads ONNX files: indexes first and maps weights lazily, so that a model of any size opens in a moment.

Nothing here knows an operator. Documentation strings and node metadata are skipped without being built.
"""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dtypes import DType
from .graph import AttributeRef, Function, FunctionKey, Graph, Inliner, Node, TypeInfo, ValueInfo, check_opset, order
from .protobuf import Field, ReadError, repeated, scan, signed, text
from .tensor import Files, SparseTensor, Tensor, dtype_of, read_sparse, read_tensor

__all__ = ["Graph", "Model", "Node", "ReadError", "SparseTensor", "Tensor", "TypeInfo", "ValueInfo", "read"]

MIN_IR, MAX_IR = 3, 14
MAX_NESTING = 64


@dataclass(slots=True)
class Model:
    """An ONNX model.

    Attributes:
        opsets: version per domain; ``""`` is ai.onnx.
        producer: the writer's name and version.
        domain, description, version: of the model, as its author gave them.
        files: path of the model file (``""`` when it was read from memory), then of the external data files.
    """

    graph: Graph
    opsets: dict[str, int]
    ir_version: int
    producer: str
    metadata: dict[str, str]
    files: list[str]
    _files: Files = field(repr=False)
    domain: str = ""
    description: str = ""
    version: int = 0

    def close(self) -> None:
        """Unmaps the files. Arrays taken from tensors stay valid; tensors do not."""
        self._files.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(
    source: str | os.PathLike[str] | bytes | memoryview,
    *,
    external: Mapping[str, bytes | memoryview] | None = None,
    replaced: Collection[str] = (),
) -> Model:
    """Reads a model.

    Args:
        source: path of an ``.onnx`` file, or its bytes, which are kept and not copied.
        external: external data by location, looked up before the model's directory; needed when ``source`` is bytes.
        replaced: names of tensors that nobody reads: their external data need not be there.

    Raises:
        ReadError: the file is damaged, is none of ONNX, or asks for what is not supported.
        OSError: the file cannot be opened.
    """
    if isinstance(source, str | os.PathLike):
        shown = os.fspath(source)
        files = Files(shown, external, replaced)
    else:
        files = Files(source if isinstance(source, bytes) else memoryview(source).cast("B"), external, replaced)
        shown = f"{len(files.buffers[0])} bytes"
    try:
        files.read_ahead(False)
        model = _Reader(files).model()
        files.read_ahead(True)
        return model
    except ReadError as error:
        foreign = _foreign(files)
        files.close()
        message = f"{shown}: {foreign}" if foreign else f"{shown}: {error}"
    raise ReadError(message)


class _Reader:
    def __init__(self, files: Files) -> None:
        self.files = files
        self.buf = files.buffers[0]
        self.depth = 0
        self.in_function = False
        self.ir_version = 0

    def model(self) -> Model:
        buf = self.buf
        graph_span: tuple[int, int] | None = None
        functions_at: list[tuple[int, int]] = []
        opsets: dict[str, int] = {}
        metadata: dict[str, str] = {}
        producer, about, version = ["", ""], {0x22: "", 0x32: ""}, 0
        for key, a, b in scan(buf, 0, len(buf)):
            if key == 0x08:
                self.ir_version = signed(a)
            elif key in (0x12, 0x1A):
                producer[key == 0x1A] = text(buf, a, b)
            elif key in about:
                about[key] = text(buf, a, b)
            elif key == 0x28:
                version = signed(a)
            elif key == 0x3A:
                if graph_span:
                    raise ReadError(f"byte {a}: a second graph; two files may have been joined")
                graph_span = a, b
            elif key == 0x42:
                self.opset(a, b, opsets)
            elif key == 0x72:
                name, value = self.texts(a, b, 0x0A, 0x12)
                metadata[name] = value
            elif key == 0xCA:
                functions_at.append((a, b))
        if graph_span is None:
            raise ReadError("no graph in it; it is no ONNX model, or only its beginning")
        if self.ir_version < MIN_IR:
            raise ReadError(f"IR version {self.ir_version}; versions from {MIN_IR} on are supported")
        if self.ir_version > MAX_IR:
            warnings.warn(f"IR version {self.ir_version} is newer than {MAX_IR}, the newest one known; reading on", stacklevel=4)
        if "" in opsets:
            check_opset(opsets[""], "the model imports")
        self.in_function = True
        functions: dict[FunctionKey, Function] = {}
        for a, b in functions_at:
            self.function(a, b, functions)
        self.in_function = False
        graph = self.graph(*graph_span)
        if functions:
            graph.nodes = Inliner(functions, opsets, graph).expand(graph.nodes)
        order(graph)
        for name, reader in (graph.captures or {}).items():
            raise ReadError(f"{reader} reads {name!r}, which nothing defines")
        self.imported(graph, opsets, set())
        return Model(
            graph,
            opsets,
            self.ir_version,
            " ".join(filter(None, producer)),
            metadata,
            self.files.paths,
            self.files,
            about[0x22],
            about[0x32],
            version,
        )

    def imported(self, graph: Graph, opsets: dict[str, int], done: set[int]) -> None:
        """Checks that the standard operators' version is known; other domains count as version 1 when nothing is said."""
        for node in graph.nodes:
            if node.domain not in opsets and node.opset is None:
                if not node.domain:
                    raise ReadError(f"{node}: the model does not say which opset it uses; its opset_import lacks the domain ai.onnx")
                opsets[node.domain] = 1
            for sub in node.graphs():
                if id(sub) not in done:
                    done.add(id(sub))
                    self.imported(sub, opsets, done)

    def texts(self, pos: int, end: int, *keys: int) -> list[str]:
        """String fields of a small message; ``""`` for those that it lacks."""
        found = {key: (a, b) for key, a, b in scan(self.buf, pos, end) if key in keys}
        return [text(self.buf, *found[key]) if key in found else "" for key in keys]

    def opset(self, pos: int, end: int, opsets: dict[str, int]) -> None:
        domain, version = "", 0
        for key, a, b in scan(self.buf, pos, end):
            if key == 0x0A:
                domain = text(self.buf, a, b)
            elif key == 0x10:
                version = signed(a)
        domain = "" if domain == "ai.onnx" else domain
        opsets[domain] = max(version, opsets.get(domain, version))

    def function(self, pos: int, end: int, functions: dict[FunctionKey, Function]) -> None:
        buf = self.buf
        function = Function("", [], [], {}, [], {})
        domain = overload = ""
        nodes: list[tuple[int, int]] = []
        for key, a, b in scan(buf, pos, end):
            if key == 0x0A:
                function.name = text(buf, a, b)
            elif key == 0x22:
                function.inputs.append(text(buf, a, b))
            elif key == 0x2A:
                function.outputs.append(text(buf, a, b))
            elif key == 0x3A:
                nodes.append((a, b))
            elif key == 0x4A:
                self.opset(a, b, function.opsets)
            elif key == 0x52:
                domain = text(buf, a, b)
            elif key == 0x5A:
                name, value = self.attribute(a, b)
                function.defaults[name] = value
            elif key == 0x6A:
                overload = text(buf, a, b)
        identity = ("" if domain == "ai.onnx" else domain, function.name, overload)
        if identity in functions:
            raise ReadError(f"byte {pos}: function {function.name!r} of domain {domain!r} is defined twice")
        try:
            function.nodes = [self.node(a, b, i) for i, (a, b) in enumerate(nodes)]
        except ReadError as error:
            raise ReadError(f"function {function.name!r}: {error}") from None
        functions[identity] = function

    def graph(self, pos: int, end: int) -> Graph:
        buf = self.buf
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ReadError(f"byte {pos}: graphs nest deeper than {MAX_NESTING}")
        graph = Graph("", [], [], [], {}, {})
        inputs: list[ValueInfo] = []
        for key, a, b in scan(buf, pos, end):
            if key == 0x0A:
                graph.nodes.append(self.node(a, b, len(graph.nodes)))
            elif key == 0x12:
                graph.name = text(buf, a, b)
            elif key == 0x2A:
                self.initializer(graph, read_tensor(self.files, a, b), a)
            elif key == 0x5A:
                inputs.append(self.value_info(a, b))
            elif key == 0x62:
                graph.outputs.append(self.value_info(a, b))
            elif key == 0x6A:
                info = self.value_info(a, b)
                graph.value_info[info.name] = info.type
            elif key == 0x7A:
                self.initializer(graph, read_sparse(self.files, a, b).densify(), a)
        for name, count in Counter(i.name for i in inputs).items():
            if count > 1 or not name:
                raise ReadError(f"graph {graph.name!r} has {count} inputs named {name!r}; each needs a name of its own")
        graph.inputs = [i for i in inputs if i.name not in graph.initializers]
        if self.ir_version >= 4:
            graph.overridable = [i for i in inputs if i.name in graph.initializers]
        self.depth -= 1
        return graph

    def initializer(self, graph: Graph, tensor: Tensor, pos: int) -> None:
        if not tensor.name or tensor.name in graph.initializers:
            fault = f"is defined twice in graph {graph.name!r}" if tensor.name else "has no name"
            raise ReadError(f"byte {pos}: initializer {tensor.name!r} {fault}")
        graph.initializers[tensor.name] = tensor

    def node(self, pos: int, end: int, index: int) -> Node:
        buf = self.buf
        inputs: list[str] = []
        outputs: list[str] = []
        op_type = domain = name = overload = ""
        attributes: list[tuple[int, int]] = []
        for key, a, b in scan(buf, pos, end):
            if key == 0x0A:
                inputs.append(text(buf, a, b))
            elif key == 0x12:
                outputs.append(text(buf, a, b))
            elif key == 0x1A:
                name = text(buf, a, b)
            elif key == 0x22:
                op_type = text(buf, a, b)
            elif key == 0x2A:
                attributes.append((a, b))
            elif key == 0x3A:
                domain = text(buf, a, b)
            elif key == 0x42:
                overload = text(buf, a, b)
        domain = "" if domain == "ai.onnx" else domain
        node = Node(op_type, domain, name, overload, tuple(inputs), tuple(outputs), {}, index)
        if not op_type:
            raise ReadError(f"byte {pos}: node {index} {name!r} has no operator type; the file is damaged or no ONNX model")
        try:
            for a, b in attributes:
                attr, value = self.attribute(a, b)
                if attr in node.attrs:
                    raise ReadError(f"attribute {attr!r} is given twice")
                node.attrs[attr] = value
        except ReadError as error:
            raise ReadError(f"{node}: {error}") from None
        return node

    def attribute(self, pos: int, end: int) -> tuple[str, Any]:
        buf = self.buf
        name = ref = ""
        kind = 0
        found: dict[int, list[Field]] = {}
        for item in scan(buf, pos, end):
            key, a, b = item
            if key == 0x0A:
                name = text(buf, a, b)
            elif key == 0xA0:
                kind = a
            elif key == 0xAA:
                ref = text(buf, a, b)
            elif key in _ATTRIBUTE_KINDS:
                found.setdefault(_ATTRIBUTE_KINDS[key], []).append(item)
        if ref:
            if not self.in_function:
                raise ReadError(f"attribute {name!r} refers to {ref!r} of a function, but is in none")
            return name, AttributeRef(ref)
        if not kind and len(found) > 1:
            raise ReadError(f"attribute {name!r} has no type and several values")
        kind = kind or next(iter(found), _INTS)
        if kind in _SINGLE:
            fields = found.get(kind, [])
            if kind not in _DEFAULTS and len(fields) != 1:
                raise ReadError(f"attribute {name!r} at byte {pos} has {len(fields)} values instead of one")
            return name, self.single(kind, fields[-1]) if fields else _DEFAULTS[kind]
        if kind not in _ELEMENT:
            raise ReadError(f"attribute {name!r} at byte {pos} has type {kind}, which is not known")
        values: list[Any] = []
        for item in found.get(kind, []):
            if kind == _INTS:
                values += repeated(buf, item)
            elif kind == _FLOATS:
                count = (item[2] - item[1]) // 4
                values += struct.unpack(f"<{count}f", buf[item[1] : item[1] + 4 * count])
            else:
                values.append(self.single(_ELEMENT[kind], item))
        return name, values

    def single(self, kind: int, item: Field) -> Any:
        _, a, b = item
        if kind == _FLOAT:
            return struct.unpack("<f", self.buf[a:b])[0]
        if kind == _INT:
            return signed(a)
        if kind == _STRING:
            return str(self.buf[a:b], "utf-8", "surrogateescape")
        if kind == _TENSOR:
            return read_tensor(self.files, a, b)
        if kind == _SPARSE:
            return read_sparse(self.files, a, b)
        return self.graph(a, b) if kind == _GRAPH else self.type(a, b)

    def value_info(self, pos: int, end: int) -> ValueInfo:
        name = ""
        declared = TypeInfo("tensor")
        for key, a, b in scan(self.buf, pos, end):
            if key == 0x0A:
                name = text(self.buf, a, b)
            elif key == 0x12:
                declared = self.type(a, b)
        return ValueInfo(name, declared)

    def type(self, pos: int, end: int, depth: int = 0) -> TypeInfo:
        if depth > MAX_NESTING:
            raise ReadError(f"byte {pos}: types nest deeper than {MAX_NESTING}")
        for key, a, b in scan(self.buf, pos, end):
            if key in (0x0A, 0x42):
                return self.tensor_type("tensor" if key == 0x0A else "sparse", a, b)
            if key in (0x22, 0x4A):
                elem = next((self.type(x, y, depth + 1) for k, x, y in scan(self.buf, a, b) if k == 0x0A), TypeInfo("tensor"))
                return TypeInfo("sequence" if key == 0x22 else "optional", elem=elem)
            if key == 0x2A:
                info = TypeInfo("map", elem=TypeInfo("tensor"))
                for k, x, y in scan(self.buf, a, b):
                    if k == 0x08:
                        info.dtype = _declared(x, a)
                    elif k == 0x12:
                        info.elem = self.type(x, y, depth + 1)
                return info
            if key == 0x3A:
                return TypeInfo("opaque")
        return TypeInfo("tensor")

    def tensor_type(self, kind: str, pos: int, end: int) -> TypeInfo:
        buf = self.buf
        info = TypeInfo(kind)
        for key, a, b in scan(buf, pos, end):
            if key == 0x08:
                info.dtype = _declared(a, pos)
            elif key == 0x12:
                dims: list[int | str | None] = []
                for k, x, y in scan(buf, a, b):
                    if k == 0x0A:
                        dim: int | str | None = None
                        for part, u, v in scan(buf, x, y):
                            if part == 0x08:
                                dim = signed(u) if signed(u) >= 0 else None
                            elif part == 0x12:
                                dim = text(buf, u, v) or None
                        dims.append(dim)
                info.shape = tuple(dims)
        return info


def _declared(code: int, pos: int) -> DType | None:
    return dtype_of(code, f"the type at byte {pos}") if code else None


_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _SPARSE, _TYPE = 1, 2, 3, 4, 5, 6, 7, 11, 13
_SINGLE = {_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _SPARSE, _TYPE}
_DEFAULTS: dict[int, Any] = {_FLOAT: 0.0, _INT: 0, _STRING: ""}
_ELEMENT = {_FLOATS: _FLOAT, _INTS: _INT, 8: _STRING, 9: _TENSOR, 10: _GRAPH, 12: _SPARSE, 14: _TYPE}
_ATTRIBUTE_KINDS = {
    0x15: _FLOAT, 0x18: _INT, 0x22: _STRING, 0x2A: _TENSOR, 0x32: _GRAPH, 0x3A: _FLOATS, 0x3D: _FLOATS, 0x40: _INTS, 0x42: _INTS,
    0x4A: 8, 0x52: 9, 0x5A: 10, 0x72: _TYPE, 0x7A: 14, 0xB2: _SPARSE, 0xBA: 12,
}  # fmt: skip

_MAGIC: list[tuple[Callable[[bytes], Any], str]] = [
    (lambda h: h[4:8] == b"ORTM", "an .ort file of ONNX Runtime; use the .onnx model that it was made from"),
    (lambda h: h[4:8] == b"TFL3", "a TensorFlow Lite model; convert it with tf2onnx --tflite"),
    (lambda h: h[:4] == b"PK\3\4", "a zip archive, such as a PyTorch .pt, .npz or .keras file; export the model with torch.onnx.export"),
    (lambda h: h[:1] == b"\x80" and h[1:2] in (b"\2", b"\3", b"\4", b"\5"), "a Python pickle; export the model with torch.onnx.export"),
    (lambda h: h[:8] == b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as a Keras .h5 model; convert it with tf2onnx"),
    (lambda h: h[:4] == b"GGUF", "a GGUF file of llama.cpp, which has weights but no graph"),
    (lambda h: h[:2] == b"\x1f\x8b", "a gzip archive; unpack it first"),
    (lambda h: h[:6] == b"\x93NUMPY", "a numpy array"),
    (lambda h: len(h) > 8 and h[8:9] == b"{" and int.from_bytes(h[:8], "little") < 1 << 32, "a safetensors file: weights, no graph"),
    (lambda h: h.startswith(b"version https://git-lfs"), "a Git LFS pointer, not the model itself; fetch it with `git lfs pull`"),
    (lambda h: re.match(rb"\s*(<!doctype|<html|<\?xml)", h, re.I), "a web page or XML, not a model; the download went wrong"),
    (lambda h: re.match(rb'\s*[{\[]\s*["}\]{\[]', h), "JSON; a model saved as JSON becomes .onnx with onnx.load(..., format='json')"),
    (lambda h: re.match(rb"\s*<\s*ir_version", h), "ONNX in text form; onnx.parser.parse_model reads it, onnx.save writes .onnx"),
    (lambda h: re.fullmatch(rb"[\t\n\r -~]{16,}", h[:64]), "a text file, not an ONNX model"),
]


def _foreign(files: Files) -> str | None:
    """What a file that could not be read is, if it is of a known other kind."""
    buf = files.buffers[0]
    if not len(buf):
        return "the file is empty"
    head = bytes(buf[:64])
    for matches, what in _MAGIC:
        if matches(head):
            return f"this is {what}"
    try:
        keys = {key for key, _, _ in scan(buf, 0, len(buf))}
        if 0x10 in keys and keys & {0x22, 0x2A, 0x32, 0x3A, 0x4A, 0x52, 0x5A}:
            tensor = read_tensor(files, 0, len(buf))
            return f"this is a single tensor ({tensor.dtype.name} {list(tensor.shape)}), not a model"
    except ReadError:
        pass
    return None
