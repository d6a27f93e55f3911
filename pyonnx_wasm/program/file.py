"""The compiled file ``model.ponnx``: ``PROGRAM.md`` section 1."""

from __future__ import annotations

import json
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..callbacks import Callback
from ..dtypes import DType
from ..ir import Face
from ..registry import KERNELS
from .model import Compiled, Program, Signature, Weight
from .section import GpuProgram, GpuSection

ALIGN = 256
FORMAT_VERSION = "1"


class FileError(ValueError):
    """A file that is no compiled model; the text says what it is and the cure."""


class Layout:
    """Where every byte of a compiled file lies. Weights are read from their source when they are asked for, not before.

    Attributes:
        parts: header, code and weights: (offset, array or reader's tensor), by offset; zeros lie between.
        nbytes: of the whole file.
    """

    def __init__(self, parts: list[tuple[int, Any]], nbytes: int) -> None:
        self.parts, self.nbytes = parts, nbytes

    def read(self, start: int, end: int) -> Iterator[Any]:
        """The bytes from ``start`` to ``end`` in order, as buffers over their sources where those are mapped."""
        k = max(bisect_right(self.parts, start, key=lambda part: part[0]) - 1, 0)
        for (offset, data), limit in zip(self.parts[k:], [o for o, _ in self.parts[k + 1 :]] + [self.nbytes], strict=True):
            if offset >= end:
                return
            content = memoryview(_bytes(data)).cast("B")
            first, last = max(start - offset, 0), min(end, limit) - offset
            yield content[first:last]
            if last > max(first, len(content)):
                yield bytes(last - max(first, len(content)))


def layout(compiled: Compiled, *, thin: bool = False) -> Layout:
    """Lays out the compiled file; ``thin`` as in :func:`save`."""
    programs = [p for p in (compiled.main, compiled.init) if p is not None]
    before_gpu = None if compiled.gpu is None else compiled.gpu.init
    if before_gpu is not None and before_gpu is not compiled.init:
        programs.append(before_gpu)
    blobs: list[tuple[int, Any]] = []
    at = 0

    def place(nbytes: int, data: Any) -> int:
        nonlocal at
        offset = at
        blobs.append((offset, data))
        at += -(-nbytes // ALIGN) * ALIGN
        return offset

    codes = [[place(p.code.nbytes, p.code), p.code.nbytes] for p in programs]
    modules: list[bytes] = []
    callbacks = [[c.json(modules) for c in p.callbacks] for p in programs]
    if compiled.gpu is not None:
        callbacks.append([c.json(modules) for c in compiled.gpu.program.callbacks])
    wasm = [[place(len(m), np.frombuffer(m, np.uint8)), len(m)] for m in modules]
    gpu: dict[str, Any] = {}
    if compiled.gpu is not None:
        # Ahead of the weights, so that pipelines are made while those stream in.
        section = np.frombuffer(json.dumps(compiled.gpu.section.json(), separators=(",", ":")).encode(), np.uint8)
        words = compiled.gpu.program.code
        programs.append(compiled.gpu.program)
        codes.append([place(words.nbytes, words), words.nbytes])
        first = {} if before_gpu is compiled.init else {"init": None if before_gpu is None else len(programs) - 2}
        gpu["gpu"] = {"program": len(programs) - 1, "section": [place(section.nbytes, section), section.nbytes], **first}
    weights = []
    for w in compiled.weights:
        row: dict[str, Any] = {"name": w.name, "dtype": w.dtype.name, "shape": list(w.shape), "bytes": w.nbytes}
        origin = _origin(w) if thin else None
        if origin is not None:
            row["from"] = list(origin)
        elif w.source is not None:
            row["at"] = place(w.nbytes, w.source)
        elif w.over is not None:
            row["over"] = w.over
        weights.append(row)
    slots, results = (sum(s.parts for s in values) for values in (compiled.inputs, compiled.outputs))
    header: dict[str, Any] = {
        "__metadata__": {"format": "ponnx", "version": FORMAT_VERSION},
        "abi": abi(),
        "provenance": {**compiled.provenance, "sha256": _digest(compiled)},
        "inputs": [_signature(s) for s in compiled.inputs],
        "outputs": [_signature(s) for s in compiled.outputs],
        "programs": [
            {
                "name": p.name,
                "target": "gpu" if p.name == "gpu" else "core",
                "code": code,
                "messages": p.messages,
                "origins": p.origins,
                **({"callbacks": calls} if calls else {}),
            }
            for p, code, calls in zip(programs, codes, callbacks, strict=True)
        ],
        "init": 1 if compiled.init is not None else None,
        "script": [{"run": 0, "in": list(range(slots)), "out": list(range(slots, slots + results))}],
        "results": list(range(slots, slots + results)),
        "weights": weights,
        **({"wasm": wasm} if wasm else {}),
        **gpu,
        **({"faces": [[_face(f) for f in faces] for faces in compiled.faces]} if compiled.faces else {}),
        **({"on_core": compiled.on_core} if compiled.on_core else {}),
    }
    if any("from" in row for row in weights):
        header["files"] = [os.path.basename(f) for f in compiled.files]
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % ALIGN)
    head = np.frombuffer(len(text).to_bytes(8, "little") + text, np.uint8)
    return Layout([(0, head), *((head.size + offset, data) for offset, data in blobs)], head.size + at)


def save(compiled: Compiled, path: str | os.PathLike[str], *, thin: bool = False, progress: Callable[[float], None] | None = None) -> int:
    """Writes a compiled model; returns the bytes written.

    Args:
        thin: store byte ranges of the source file and its external data instead of weights; they must then lie beside it.
        progress: told the share written, in [0, 1].
    """
    file = layout(compiled, thin=thin)
    partial = f"{os.fspath(path)}.partial"
    try:
        with open(partial, "wb") as f:
            for piece in file.read(0, file.nbytes):
                f.write(piece)
                if progress:
                    progress(f.tell() / file.nbytes)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    return file.nbytes


def _origin(weight: Weight) -> tuple[int, int] | None:
    """(file, offset) of a weight's bytes in the source files, where they lie there as they are."""
    offset = getattr(weight.source, "offset", None)
    return None if offset is None else (weight.source.file, offset)


def _bytes(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if data.size else b""
    return data.raw()


def abi() -> str:
    """Hash of all kernel declarations."""
    import hashlib

    from .. import ops

    ops.load_all()
    return hashlib.sha256("\n".join(KERNELS[k].text for k in sorted(KERNELS)).encode()).hexdigest()[:16]


def _digest(compiled: Compiled) -> str:
    if not compiled.files or not compiled.files[0] or not os.path.exists(compiled.files[0]):
        return ""
    import hashlib

    with open(compiled.files[0], "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _signature(s: Signature) -> dict[str, Any]:
    return {"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)}


def _face(face: Face) -> dict[str, Any]:
    kinds: dict[str, Any] = {name: True for name in ("sequence", "optional") if getattr(face, name)}
    if face.keys is not None:
        kinds |= {"keys": [str(k) for k in face.keys], "key": "string" if isinstance(face.keys[0], str) else "int64"}
    if face.key is not None:
        kinds |= {"key": face.key.name}
    return {"name": face.name, "dtype": face.dtype.name, "shape": None if face.shape is None else list(face.shape), **kinds}


def _keys(row: Mapping[str, Any]) -> tuple[int | str, ...] | None:
    """The keys of maps; integers travel as text, so that JavaScript reads them whole."""
    if "keys" not in row:
        return None
    keys = tuple(str(k) if row["key"] == "string" else int(k) for k in row["keys"])
    if not keys or len(row["shape"]) != 2 or row["shape"][1] != len(keys) or row.get("sequence") or row.get("optional"):
        raise FileError(f"the maps {row['name']!r} have keys that do not fit")
    return keys


def _faces(given: Any, name: str, inputs: list[Signature], outputs: list[Signature]) -> tuple[list[Face], list[Face]] | None:
    if given is None:
        return None
    both = []
    for rows, flat in zip(given, (inputs, outputs), strict=True):
        faces = [
            Face(
                str(row["name"]),
                bool(row.get("sequence")),
                bool(row.get("optional")),
                DType[row["dtype"]],
                None if row["shape"] is None else tuple(row["shape"]),
                _keys(row),
                DType[row["key"]] if "key" in row and "keys" not in row else None,
            )
            for row in rows
        ]
        if [(n, d) for face in faces for n, d, _ in face.tensors()] != [(s.name, s.dtype) for s in flat]:
            raise FileError(f"{name}: the tensors are not those of the faces")
        both.append(faces)
    return both[0], both[1]


def load(source: str | os.PathLike[str] | bytes | memoryview) -> Compiled:
    """Reads a compiled model; weights stay in the mapped file until they are used.

    Raises:
        FileError: naming the field or the range that is wrong.
    """
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "<bytes>"
    data = _map(source)
    size = len(data)
    if size < 8:
        raise FileError(f"{name}: {size} bytes are no compiled model (too short)")
    length = int.from_bytes(data[:8], "little")
    if length > size - 8 or bytes(data[8:9]) != b"{":
        raise FileError(f"{name}: not a compiled model (.ponnx); an .onnx file is compiled with: pyonnx-wasm compile model.onnx")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except ValueError as error:
        raise FileError(f"{name}: the header is no JSON: {error}") from None
    body = data[8 + length :]
    try:
        return _build(name, source, header, body)
    except FileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileError(f"{name}: the header is malformed: {type(error).__name__}: {error}") from None


def _map(source: str | os.PathLike[str] | bytes | memoryview) -> memoryview:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source)
    with open(source, "rb") as f:
        try:
            return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
        except (ValueError, OSError):
            return memoryview(f.read())


def _build(name: str, source: Any, header: dict[str, Any], body: memoryview) -> Compiled:
    meta = header["__metadata__"]
    if meta.get("format") != "ponnx":
        raise FileError(f"{name}: format {meta.get('format')!r} is not ponnx")
    if meta.get("version") != FORMAT_VERSION:
        raise FileError(f"{name}: format version {meta.get('version')}, this release reads {FORMAT_VERSION}: compile the model again")

    def take(what: str, offset: int, nbytes: int) -> memoryview:
        if not (isinstance(offset, int) and isinstance(nbytes, int) and offset >= 0 and nbytes >= 0 and offset + nbytes <= len(body)):
            raise FileError(f"{name}: {what}: bytes {offset} to {offset}+{nbytes} lie outside the file; is it complete?")
        return body[offset : offset + nbytes]

    modules = [bytes(take(f"WebAssembly module {k}", *row)) for k, row in enumerate(header.get("wasm", []))]
    programs = []
    for p in header["programs"]:
        offset, nbytes = p["code"]
        if nbytes % 4:
            raise FileError(f"{name}: program {p['name']!r}: {nbytes} bytes are no whole number of words")
        code = np.frombuffer(take(f"program {p['name']!r}", offset, nbytes), np.int32)
        callbacks = [Callback.read(c, modules) for c in p.get("callbacks", [])]
        programs.append(Program(str(p["name"]), code, [str(m) for m in p["messages"]], [str(o) for o in p["origins"]], callbacks=callbacks))
    sources = _sources(name, source, header)

    def weight(k: int, row: dict[str, Any]) -> memoryview | None:
        what = f"weight {row['name']!r}"
        if "at" in row:
            return take(what, row["at"], row["bytes"])
        if "from" not in row:
            return None
        file, offset = row["from"]
        if not (
            isinstance(file, int)
            and 0 <= file < len(sources)
            and isinstance(offset, int)
            and 0 <= offset <= len(sources[file]) - row["bytes"]
        ):
            raise FileError(f"{name}: {what}: its bytes lie outside the source file; was the source changed?")
        return sources[file][offset : offset + row["bytes"]]

    weights = list(_weights(name, header["weights"], weight))
    init = _init(name, header["init"], programs)
    run = header["script"][0]["run"]
    if len(header["script"]) != 1 or not 0 <= run < len(programs):
        raise FileError(f"{name}: the host script is malformed")
    inputs, outputs = ([_read_signature(name, s) for s in header[key]] for key in ("inputs", "outputs"))
    return Compiled(
        inputs,
        outputs,
        programs[run],
        init,
        weights,
        dict(header["provenance"]),
        [],
        body,
        gpu=_gpu(name, header, programs, take),
        on_core=str(header.get("on_core", "")),
        faces=_faces(header.get("faces"), name, inputs, outputs),
    )


def _init(name: str, number: Any, programs: list[Program]) -> Program | None:
    if number is not None and not (isinstance(number, int) and 0 <= number < len(programs)):
        raise FileError(f"{name}: init program {number} does not exist")
    return None if number is None else programs[number]


def _gpu(name: str, header: dict[str, Any], programs: list[Program], take: Callable[[str, int, int], memoryview]) -> GpuProgram | None:
    found = header.get("gpu")
    if found is None:
        return None
    if not (isinstance(found["program"], int) and 0 <= found["program"] < len(programs)):
        raise FileError(f"{name}: GPU program {found['program']!r} does not exist")
    program, init = programs[found["program"]], _init(name, found.get("init", header["init"]), programs)
    try:
        return GpuProgram(program, GpuSection.read(json.loads(bytes(take("the GPU section", *found["section"]))), program), init)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FileError(f"{name}: the GPU section is malformed: {error}") from None


def _sources(name: str, source: Any, header: dict[str, Any]) -> list[memoryview]:
    """The files that a thin model takes its weights from, mapped; they lie beside it."""
    files = header.get("files", [])
    if not files:
        return []
    if not isinstance(source, (str, os.PathLike)):
        raise FileError(f"{name}: a thin model must be opened by path, beside {files[0]!r}")
    folder = os.path.dirname(os.path.abspath(os.fspath(source)))
    mapped = []
    for file in files:
        if not isinstance(file, str) or file != os.path.basename(file) or file in ("", ".", ".."):
            raise FileError(f"{name}: source file name {file!r} is no plain name")
        if not os.path.isfile(os.path.join(folder, file)):
            raise FileError(f"{name}: its weights are in {file!r}, which must lie beside it")
        mapped.append(_map(os.path.join(folder, file)))
    return mapped


def _weights(name: str, rows: list[dict[str, Any]], read: Callable[[int, dict[str, Any]], memoryview | None]) -> Iterator[Weight]:
    for k, row in enumerate(rows):
        dtype = _dtype(name, row["dtype"])
        shape = tuple(row["shape"])
        weight = Weight(str(row["name"]), dtype, shape, None, row.get("over"))
        if any(not isinstance(s, int) or s < 0 for s in shape) or weight.nbytes != row["bytes"] or weight.nbytes > 1 << 47:
            raise FileError(f"{name}: weight {row['name']!r}: shape {list(shape)} and {row['bytes']} bytes disagree")
        if weight.over is not None and not (isinstance(weight.over, int) and 0 <= weight.over < len(rows) and weight.over != k):
            raise FileError(f"{name}: weight {row['name']!r} shares memory with weight {weight.over}, which does not exist")
        found = read(k, row)
        if found is not None:
            weight.source = np.frombuffer(found, np.uint8)
        yield weight


def _read_signature(name: str, row: dict[str, Any]) -> Signature:
    if any(not isinstance(d, (int, str)) for d in row["shape"]):
        raise FileError(f"{name}: {row['name']!r}: shape {row['shape']} is malformed")
    return Signature(str(row["name"]), _dtype(name, row["dtype"]), tuple(row["shape"]))


def _dtype(name: str, text: str) -> DType:
    if text not in DType.__members__:
        raise FileError(f"{name}: unknown dtype {text!r}")
    return DType[text]


def weight_bytes(weight: Weight) -> np.ndarray | None:
    """The bytes of a weight, without a copy where it is mapped; None when init computes it."""
    if weight.source is None:
        return None
    return np.frombuffer(_bytes(weight.source), np.uint8)
