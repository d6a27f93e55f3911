"""The wire: one file of vectors for both sides."""

import json
import re
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.jupyter.wire import Assembler, Message, Tensor, WireError, encode

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VECTORS = json.loads((HERE / "wire_vectors.json").read_text())
CARRIED = {"call": ("op", "json", "tensors"), "result": ("json", "tensors"), "hello": ("json",), "progress": ("json",), "ack": ("seq",)}


def parsed(message: dict[str, Any]) -> Message:
    tensors = [
        Tensor(t["name"], DType[t["dtype"]], tuple(t["dims"]), memoryview(bytes.fromhex(t["hex"]))) for t in message.get("tensors", [])
    ]
    error = message.get("error")
    return Message(
        message["kind"],
        message["id"],
        message["peer"],
        message.get("op", ""),
        message.get("json"),
        tensors,
        (error["name"], error["message"]) if error else None,
        message.get("seq", 0),
    )


def plain(message: Message) -> dict[str, Any]:
    tensors = [{"name": t.name, "dtype": t.dtype.name, "dims": list(t.dims), "hex": t.data.hex()} for t in message.tensors]
    fields = {"op": message.op, "json": message.json, "tensors": tensors, "seq": message.seq}
    found = {"kind": message.kind, "id": message.id, "peer": message.peer}
    found |= {k: fields[k] for k in CARRIED.get(message.kind, ())}
    if message.error:
        found["error"] = {"name": message.error[0], "message": message.error[1]}
    return found


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda v: v["name"])
def test_messages(vector: dict[str, Any]) -> None:
    sent = [{"header": h, "buffers": [b.hex() for b in buffers]} for h, buffers in encode(parsed(vector["message"]), vector["frame_bytes"])]
    assert sent == vector["frames"]
    assembler = Assembler()
    got = [assembler.push(f["header"], [bytes.fromhex(b) for b in f["buffers"]]) for f in vector["frames"]]
    assert got[:-1] == [None] * (len(got) - 1)
    assert got[-1] is not None
    assert plain(got[-1]) == vector["message"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["name"])
def test_refused(vector: dict[str, Any]) -> None:
    def push_all() -> None:
        assembler = Assembler()
        for frame in vector["frames"]:
            assembler.push(frame["header"], [bytes.fromhex(b) for b in frame["buffers"]])

    with pytest.raises(WireError, match=vector["error"]):
        push_all()


def test_the_page_agrees(tmp_path: Path) -> None:
    bundle = tmp_path / "wire.mjs"
    esbuild = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
    subprocess.run(
        [esbuild, ROOT / "js/widget/wire.ts", "--bundle", "--format=esm", f"--outfile={bundle}", "--log-level=warning"], check=True
    )
    done = subprocess.run(["node", HERE / "wire_vectors.mjs", bundle, HERE / "wire_vectors.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("dtype", [d for d in DType if d.bits], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7, 3)], ids=str)
def test_arrays_survive(dtype: DType, shape: tuple[int, ...]) -> None:
    from pyonnx_wasm.dtypes import to_numpy

    rng = np.random.default_rng(0)
    kind = to_numpy(dtype)
    raw = rng.integers(0, 2 ** min(dtype.bits, 7), (*shape, kind.itemsize if dtype.bits >= 8 else 1), dtype=np.uint8)
    array = raw.view(kind).reshape(shape) if raw.size else np.zeros(shape, kind)
    message = Message("call", "k1", "p", "f", None, [Tensor.of(array, "x", dtype)])
    assembler = Assembler()
    for header, buffers in encode(message, 5):
        got = assembler.push(json.loads(json.dumps(header)), [bytes(b) for b in buffers])
    assert got is not None
    back = got.tensors[0].numpy()
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_strided_and_big_endian_arrays_are_made_plain() -> None:
    array = np.arange(12, dtype=">i4").reshape(3, 4).T[::2]
    tensor = Tensor.of(array)
    assert tensor.dtype is DType.int32
    assert tensor.numpy().tolist() == array.tolist()


def test_strings_travel() -> None:
    for items in ([["a", "", "日本"], ["\0", "𝄞", "a"]], [[]], np.empty((0, 3), object)):
        array = np.array(items, object)
        tensor = Tensor.of(array, "t")
        assert (tensor.dtype, tensor.dims, len(tensor.data)) == (
            DType.string,
            array.shape,
            8 * array.size + len("".join(array.reshape(-1)).encode()),
        )
        assert tensor.numpy().tolist() == array.tolist()
    with pytest.raises(ValueError, match="tensor 't' takes strings, element 1 is None"):
        Tensor.of(np.array(["a", None], object), "t", DType.string)
    outside = Tensor("t", DType.string, (1,), memoryview(bytes([2, 0, 0, 0, 0, 0, 0, 0, 97])))
    with pytest.raises(ValueError, match="tensor 't': a string lies outside its bytes"):
        outside.numpy()


def test_messages_interleave() -> None:
    assembler = Assembler()
    one = list(encode(Message("call", "k1", "a", "f", 1, [Tensor.of_bytes(bytes(range(10)))]), 4))
    two = list(encode(Message("call", "k1", "b", "f", 2, [Tensor.of_bytes(bytes(range(10, 20)))]), 4))
    got = [assembler.push(*frame) for pair in zip(one, two, strict=True) for frame in pair]
    assert [m.tensors[0].data.tolist() for m in got if m] == [list(range(10)), list(range(10, 20))]


def test_memory_is_taken_as_bytes_arrive() -> None:
    """A header may declare gigabytes."""
    length = 1 << 31
    declared = {"name": "x", "dtype": "uint8", "dims": [length], "offset": 0, "length": length}
    frame = {"v": 1, "kind": "call", "id": "a", "peer": "p", "op": "f", "last": False, "json": None, "tensors": [declared]}
    assembler = Assembler()
    tracemalloc.start()
    try:
        assert assembler.push({**frame, "seq": 0}, [bytes(1000)]) is None
        assert assembler.push({**frame, "seq": 1}, [bytes(5000)]) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_after_a_refusal_the_id_starts_anew() -> None:
    assembler = Assembler()
    frames = list(encode(Message("call", "k1", "a", "f", 1, [Tensor.of_bytes(bytes(10))]), 4))
    assembler.push(*frames[0])
    with pytest.raises(WireError, match=re.escape("frame 2 of call")):
        assembler.push(*frames[2])
    got = [assembler.push(*frame) for frame in frames]
    assert got[-1] is not None
